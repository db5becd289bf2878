"""
From the spool to one destination, for as long as the bridge runs.

Invariants
* Each event that leaves the spool ends once: emitted, or dropped with a reason. `Ledger` and the spool's books are told how.
* What is on its way when the time to stop is up stays in a durable spool, for the next start; else it is dropped.
* A batch that cannot be processed costs itself: its neighbours are processed one by one.
* Resolving runs in a thread, and in one, so the event loop goes on taking requests and no two fight for the interpreter. A haul
  is read when a pass of the one before is resolved: earlier, each would find half of what waits. Meanwhile others are sent.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from typing import Protocol

from otel_bridge.clock.convert import settle
from otel_bridge.errors import BridgeError
from otel_bridge.export.protocol import Exporter
from otel_bridge.model.events import EventBatch, concatenate, divide
from otel_bridge.model.stream import trail
from otel_bridge.pipeline.stages import Stages, count_by_status
from otel_bridge.spans.assemble import assemble
from otel_bridge.spans.cuts import count_cuts
from otel_bridge.spans.fit import Taken, fit, sizes_of
from otel_bridge.spans.sealing import Payload
from otel_bridge.spool.protocol import Ended, Outlet, Record
from otel_bridge.telemetry.traces import SILENT, Traces

_log = logging.getLogger(__name__)

BATCH_EVENTS = 16_384
"""
Events that are resolved in one pass, at most, unless one block has more: enough to spread what a pass costs however few it has,
about half a millisecond.
"""
PASS_BYTES = 32 << 20
"""Of the spans that a pass makes, about, at most, unless one block has more: what a map says of an event may take 30 KB."""


class _TooMuch(Exception):
    """The spans of a pass would take `times` as many bytes as `PASS_BYTES`, rounded up."""

    def __init__(self, times: int) -> None:
        super().__init__(times)
        self.times = times


class Ledger(Protocol):
    """Told how events end."""

    def emitted(self, events: int, spans: int) -> None:
        """The back end took the spans of these events."""

    def dropped(self, events: int, reason: str, spans: int = 0) -> None:
        """Events were given up, and so many of their spans were refused by the back end or not taken in time."""

    def resolved(self, events: int, status: str, delegate: str) -> None:
        """Delegate events of a backend (or "") got this status."""

    def cut(self, texts: int) -> None:
        """So many texts of spans were longer than back ends take."""


class Pipeline:
    """
    Takes records from an outlet of the spool, resolves them and sends the spans.

    sift          takes the records that were read, keeps back those that must wait, and gives those that go on
    limit_bytes   size of a request to the back end
    linger_s      how long a pass waits for more events
    by_tenant     whether a request holds the spans of one tenant only
    traces        spans of the bridge's own
    """

    def __init__(
        self,
        outlet: Outlet,
        stages: Stages,
        exporter: Exporter,
        ledger: Ledger,
        *,
        sift: Callable[[Sequence[Record]], Awaitable[list[Record]]],
        limit_bytes: int,
        linger_s: float = 0.0,
        by_tenant: bool = False,
        traces: Traces = SILENT,
    ) -> None:
        self._outlet = outlet
        self._sift = sift
        self._stages = stages
        self._exporter = exporter
        self._ledger = ledger
        self._limit_bytes = limit_bytes
        self._linger_s = linger_s
        self._by_tenant = by_tenant
        self._traces = traces
        self._turn = asyncio.Lock()
        """Whoever has it reads, and resolves a first pass."""
        self._thread = ThreadPoolExecutor(1, "resolve")
        """Always the same: the C library keeps what a thread frees for that thread (pipeline/memory.py)."""

    async def run(self, workers: int = 3) -> None:
        """Work, once, until the spool is closed and empty; of `workers` hauls one is resolved, the others are sent."""
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(workers):
                    group.create_task(self._work())
        finally:
            self._thread.shutdown(wait=False)

    async def _work(self) -> None:
        while True:
            async with AsyncExitStack() as turn:
                await turn.enter_async_context(self._turn)
                read = await self._outlet.read(BATCH_EVENTS, self._linger_s)
                if not read:
                    return
                await self._end(read, turn)

    async def _end(self, read: Sequence[Record], turn: AsyncExitStack) -> None:
        """See to it that records end, and tell the outlet how; `turn` is given up before anything is sent."""
        records = read
        account = _Account(self._ledger, _events(read))
        try:
            records = await self._sift(read)
            account.left = _events(records)
            trails = (trail(stream) for record in records for stream in record.batch.streams)
            with self._traces.haul("haul", trails, {"otel_bridge.events": account.left}):
                await self._process(records, account, turn)
        except asyncio.CancelledError:
            if self._outlet.is_durable:
                raise
            if account.left:
                _log.error("%d events were on their way when the time to stop was up, and are dropped", account.left)
                account.dropped(account.left, "shutdown")
            await self._outlet.done(records, account.ended)
            raise
        except Exception:  # noqa: BLE001 - a durable spool would give the same records again, and again
            _log.exception("%d events cannot be processed and are dropped", account.left)
            account.dropped(account.left, "internal")
        await self._outlet.done(records, account.ended)

    async def _process(self, records: Sequence[Record], account: "_Account", turn: AsyncExitStack) -> None:
        taken: Taken = {}  # a request that takes several passes is one to the limits of traces
        whole = [await _settled(record.batch) for record in records]
        passes = deque((tenant, group) for tenant, batches in self._of_tenants(whole) for group in _passes(batches))
        while passes:
            tenant, group = passes.popleft()
            try:
                payloads = await self._resolve(group, taken)
            except _TooMuch as much:
                most = max(sum(map(len, group)) // much.times, 1)
                group = [await _settled(batch, most) for batch in group]
                whole += group  # `taken` knows streams by their `id`
                passes.extendleft((tenant, part) for part in reversed(list(_passes(group, most))))
                continue
            except Exception:  # noqa: BLE001 - a fault in one batch must not cost its neighbours, or the service
                if len(group) > 1:
                    _log.exception("a pass over %d batches failed; they are processed one by one", len(group))
                    passes.extendleft((tenant, [batch]) for batch in reversed(group))
                else:
                    _log.exception("a batch of %d events cannot be processed and is dropped", len(group[0]))
                    account.dropped(len(group[0]), "internal")
                continue
            await turn.aclose()  # before the first is sent: a tenant or a large request that takes long holds up no other haul
            for payload in payloads:
                await self._deliver(payload, tenant, account)

    def _of_tenants(self, batches: list[EventBatch]) -> Iterable[tuple[str, list[EventBatch]]]:
        if not self._by_tenant:
            return [("", batches)]
        found: dict[str, list[EventBatch]] = {}
        for batch in batches:
            found.setdefault(batch.streams[0].tenant, []).append(batch)  # a record is one request
        return found.items()

    async def _resolve(self, batches: list[EventBatch], taken: Taken) -> list[Payload]:
        loop = asyncio.get_running_loop()
        with self._traces.step("resolve", {"otel_bridge.events": sum(map(len, batches))}):
            return await loop.run_in_executor(self._thread, self._payloads, batches, taken)

    def _payloads(self, batches: list[EventBatch], taken: Taken) -> list[Payload]:
        scene = self._stages.run(concatenate(batches))
        sizes = sizes_of(scene)
        size = int(sizes.sum())
        if size > PASS_BYTES and min(len(scene.batch.blocks), len(scene.batch)) > 1:
            raise _TooMuch(-(-size // PASS_BYTES))
        after = taken.copy()
        fitting = fit(scene, after, sizes=sizes)
        payloads = assemble(fitting, self._limit_bytes)
        taken |= after  # not before: a pass that fails is done again
        if cuts := count_cuts(fitting):
            self._ledger.cut(cuts)
        for (status, delegate), events in count_by_status(scene).items():
            self._ledger.resolved(events, status, delegate)
        return payloads

    async def _deliver(self, payload: Payload, tenant: str, account: "_Account") -> None:
        try:
            told = {"otel_bridge.events": payload.events, "otel_bridge.spans": payload.spans}
            with self._traces.step("export", told):
                sent = await self._exporter.send(payload.data, tenant)
        except BridgeError as error:
            _log.warning("%d events were dropped: %s", payload.events, error)
            account.dropped(payload.events, error.reason, payload.spans)
            return
        except Exception:  # noqa: BLE001 - as above
            _log.exception("the exporter failed; %d events are dropped", payload.events)
            account.dropped(payload.events, "internal", payload.spans)
            return
        events, spans = payload.events, payload.spans
        if sent.rejected_spans:
            _log.warning("the back end refused %d of %d spans: %s", sent.rejected_spans, spans, sent.message)
        for reason, rejected in sent.by_reason():
            refused_spans = min(rejected, spans)
            refused = min(refused_spans, events)  # which spans were refused is not told; nearly all are events
            account.dropped(refused, reason, refused_spans)
            events, spans = events - refused, spans - refused_spans
        account.emitted(events, spans)


class _Account:
    """The events of one haul: how many have not ended yet, and how the others did."""

    def __init__(self, ledger: Ledger, events: int) -> None:
        self._ledger = ledger
        self.left = events
        self.ended = Ended()

    def emitted(self, events: int, spans: int) -> None:
        self.left -= events
        self.ended.add(Ended(events))
        self._ledger.emitted(events, spans)

    def dropped(self, events: int, reason: str, spans: int = 0) -> None:
        self.left -= events
        self.ended.add(Ended(dropped={reason: events}))
        self._ledger.dropped(events, reason, spans)


def _events(records: Sequence[Record]) -> int:
    return sum(len(record.batch) for record in records)


async def _settled(batch: EventBatch, most: int = BATCH_EVENTS) -> EventBatch:
    """A batch that takes several passes is placed in time as a whole, so that its pieces do not lie on top of each other."""
    if len(batch) <= most or batch.streams[0].settled:  # a record is one request
        return batch
    return await asyncio.to_thread(settle, batch)


def _passes(batches: list[EventBatch], most: int = BATCH_EVENTS) -> Iterator[list[EventBatch]]:
    """Batches in groups of at most `most` events; a larger one is divided, so that a pass has a bound whatever was sent."""
    group: list[EventBatch] = []
    events = 0
    for batch in batches:
        for piece in divide(batch, most):
            if group and events + len(piece) > most:
                yield group
                group, events = [], 0
            group.append(piece)
            events += len(piece)
    if group:
        yield group
