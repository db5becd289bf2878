"""
Events whose mapping is not there yet.

Invariants
* A record is parked only if its sender named a build or an alias that has no mapping; without any model it goes on at once.
* An alias that gets its first mapping binds the records that wait for it, once and for all.
* A record is parked at most once. When its time is up, when a bound is met, or when the bridge stops with a spool in memory, it
  goes on as `no_mapping`, and is counted.
* An upload is never missed, also of another process: whatever was parked before the registry changed is looked at again after
  it has.
* A build and an alias of the same text are two things. What can never be an alias is not waited for.
* Each destination parks for itself when it comes to a record. What lets records go lets them go for all.
* A registry that cannot be reached for the moment costs time, and neither events nor the pipeline.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol

from otel_bridge.errors import MalformedMapping, Unavailable
from otel_bridge.mapping.cache import CompiledMappings
from otel_bridge.mapping.limits import check_alias
from otel_bridge.mapping.registry import Registry
from otel_bridge.model.stream import Stream
from otel_bridge.pipeline.missing import Missing, MissingMappings
from otel_bridge.spool.protocol import Awaited, Outlet, Record, Spool

_log = logging.getLogger(__name__)

Policy = Literal["park", "pass"]

TICK_S = 1.0
"""How often expiry, and uploads by other processes, are looked for. Uploads by this one are acted on at once."""

_ATTEMPTS = 5


class Ledger(Protocol):
    """Told how events wait."""

    def parked(self, destination: str, events: int) -> None:
        """Events began to wait for their mapping."""

    def unparked(self, destination: str, events: int, reason: str) -> None:
        """Events go on: `mapping`, `age`, `closed` at a stop, or the bound that kept them from waiting."""


class Parking:
    """
    Keeps records back that lack their mapping, and lets them go.

    policy    "park", or "pass": nothing waits
    now_ns    wall clock, nanoseconds since 1970
    """

    def __init__(
        self,
        spool: Spool,
        registry: Registry,
        mappings: CompiledMappings,
        ledger: Ledger,
        *,
        policy: Policy,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._spool = spool
        self._registry = registry
        self._mappings = mappings
        self._ledger = ledger
        self._policy = policy
        self._now_ns = now_ns
        self._missing = MissingMappings(spool.awaited(), now_ns())
        self._changed = asyncio.Event()
        self._seen = -1

    async def sift(self, outlet: Outlet, records: Sequence[Record]) -> list[Record]:
        """The records of an outlet that go on now; the others are parked, and no longer the caller's."""
        revision = self._registry.revision
        going = []
        for record, awaited in await self._find_all(records):
            if awaited is None or not await self._hold(outlet, record, awaited):
                going.append(record)
        if self._registry.revision != revision:  # an upload may have come between the look-up and the parking
            self._seen = -1
            self._changed.set()
        return going

    async def run(self) -> None:
        """Let records go as mappings arrive and time passes, until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    await self._changed.wait()
            self._changed.clear()
            try:
                await self.review()
            except Unavailable as error:
                _log.warning("what waits for its mapping is looked at again later: %s", error)
            except Exception:  # noqa: BLE001 - nothing would go on any more
                _log.exception("what waits for its mapping could not be looked at; it is tried again")

    async def review(self) -> None:
        """Let go what has got its mapping, and what has waited long enough."""
        await asyncio.to_thread(self._registry.refresh)
        revision = self._registry.revision
        if revision != self._seen:
            self._seen = revision  # before the look: `sift` may ask for another one meanwhile
            try:
                await self._release_all()
            except BaseException:
                self._seen = -1
                raise
        self._tell(await self._spool.expire(), "age")

    def stop(self) -> None:
        """Close the spool: what could not wait any longer goes on without its mapping."""
        self._tell(self._spool.close(), "closed")

    def uploaded(self) -> None:
        """A mapping or alias was written by this process."""
        self._changed.set()

    def missing(self, tenant: str = "") -> list[Missing]:
        """Builds and aliases that a tenant's devices named and that have no mapping, ascending by ref."""
        return self._missing.of(tenant)

    async def _release_all(self) -> None:
        awaited = list(dict.fromkeys((*self._spool.awaited(), *self._missing.awaited())))
        builds = await asyncio.to_thread(lambda: list(map(self._build_of, awaited)))
        for each, build in zip(awaited, builds, strict=True):
            if build is not None:
                self._tell(await self._spool.release(each, build), "mapping")
                self._missing.forget(each)

    def _tell(self, released: Mapping[str, int], reason: str) -> None:
        for destination, events in released.items():
            self._ledger.unparked(destination, events, reason)

    async def _hold(self, outlet: Outlet, record: Record, awaited: Awaited) -> bool:
        """Whether the record is parked; else it goes on without its mapping, which is counted."""
        entry = self._missing.note(awaited, record.batch.streams[0], self._now_ns())
        events, destination = len(record.batch), outlet.destination
        may_wait = self._policy == "park" and not record.has_waited
        met = await outlet.park(record, awaited) if may_wait else ""
        if met is None:
            self._ledger.parked(destination, events)
            return True
        entry.passed[destination] += events
        if met:
            self._ledger.unparked(destination, events, met)
        return False

    async def _find_all(self, records: Sequence[Record]) -> list[tuple[Record, Awaited | None]]:
        """`_find` of each; where the registry stays away, all go on as they are."""
        for _ in range(_ATTEMPTS):
            try:
                return await asyncio.to_thread(lambda: list(map(self._find, records)))
            except Unavailable as error:
                _log.warning("%s", error)
                await asyncio.sleep(TICK_S)
            except Exception:  # noqa: BLE001 - the stages find the record that is at fault, and it costs itself
                _log.exception("the mappings of %d batches could not be looked up", len(records))
                break
        return [(record, None) for record in records]

    def _find(self, record: Record) -> tuple[Record, Awaited | None]:
        """The record, and what it waits for; a record whose alias has got a mapping since is bound to it here."""
        (stream,) = record.batch.streams  # a record is one request
        if stream.build is None and stream.model.name:
            build = self._registry.build_of(stream.tenant, stream.model.name, stream.model.version)
            if build is None:
                return record, _alias(stream)
            record = record.bind(build)
            (stream,) = record.batch.streams
        if stream.build is None or self._mappings.get(stream.tenant, stream.build) is not None:
            return record, None
        return record, Awaited(stream.build, tenant=stream.tenant)

    def _build_of(self, awaited: Awaited) -> str | None:
        if awaited.name:
            return self._registry.build_of(awaited.tenant, awaited.name, awaited.version)
        return awaited.build if self._mappings.get(awaited.tenant, awaited.build) is not None else None


def _alias(stream: Stream) -> Awaited | None:
    """The alias that the sender gave, if a mapping can ever get it."""
    name, version = stream.model.name or "", stream.model.version
    try:
        check_alias(name, version, required=True)
    except MalformedMapping:
        return None
    return Awaited(name=name, version=version, tenant=stream.tenant)
