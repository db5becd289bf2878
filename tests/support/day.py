"""
Eight hours in the life of a bridge, in seconds: the real parts between gate and exporter, on a virtual clock.

    hour   the back end         meanwhile
    0      takes everything     what has no mapping begins to wait, for an hour at most
    1-3    is away              the first to wait join the line; the oldest there grow older than 2.5 h; a token expires at 3
    4      takes everything     what is left of the line leaves, or begins to wait
    5      fails at random      at 5:00 a mapping arrives for some of what waits
    6      takes 8 s a request  at 6:00 a token is revoked
    7      takes everything     no more requests; what waits leaves when its hour is over
"""

import asyncio
import contextlib
import math
import random
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from support.lives import request
from support.mappings import mapping_of
from support.requests import ANYTHING
from support.timed_books import Books
from support.tokens import Issuer
from support.virtual_time import VirtualLoop

from otel_bridge.auth.gate import Gate, Refusal, Shown
from otel_bridge.auth.keyring import Keyring
from otel_bridge.auth.refusals import Refusals
from otel_bridge.errors import BackEndUnavailable
from otel_bridge.export.circuit import Circuit
from otel_bridge.export.isolate import Isolate
from otel_bridge.export.protocol import Sent
from otel_bridge.export.retry import Retry, RetryPolicy
from otel_bridge.mapping.cache import CompiledMappings
from otel_bridge.mapping.memory import MemoryRegistry
from otel_bridge.metadata.table import Decoders
from otel_bridge.model.destination import DEFAULT
from otel_bridge.model.identity import Scope
from otel_bridge.pipeline.loop import Pipeline
from otel_bridge.pipeline.parking import Parking
from otel_bridge.pipeline.stages import Stages
from otel_bridge.spool.commits import Commits
from otel_bridge.spool.lot import LotLimits
from otel_bridge.spool.opening import Clocks
from otel_bridge.spool.room import Bounds
from otel_bridge.spool.sqlite import SqliteSpool
from otel_bridge.v1 import mapping_pb2
from otel_bridge.v1 import profiling_pb2 as pb
from otel_bridge.wire.entrance import Entrance
from otel_bridge.wire.intake import Intake
from otel_bridge.wire.repeats import Repeats

HOUR_S = 3600.0
END_S = 8 * HOUR_S + 60
EVENTS = 3
EVERY_S = 10.0
MAX_AGE_S, PARKED_S = 2.5 * HOUR_S, HOUR_S
RETRY_MAX_S = 30.0
BUILDS = (None, "known", "late", "never")
TICK_S = 1.0


class BackEnd:
    """
    An exporter that does what the hour says.

    attempts   when it was asked
    taken      trace -> of each span, when it came, and its status of resolution; "": it has none
    """

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._chance = random.Random(6)  # noqa: S311 - the same hours each time
        self.attempts: list[float] = []
        self.taken: dict[bytes, list[tuple[float, str]]] = defaultdict(list)

    async def send(self, payload: bytes, tenant: str = "") -> Sent:
        """See `Exporter.send`."""
        assert not tenant
        now_s = self._loop.time()
        self.attempts.append(now_s)
        hour = int(now_s // HOUR_S)
        if hour in range(1, 4) or (hour == 5 and self._chance.random() < 0.5):
            raise BackEndUnavailable("away")
        if hour == 6:
            await asyncio.sleep(8)
        for resource in ExportTraceServiceRequest.FromString(payload).resource_spans:
            for span in (span for scope in resource.scope_spans for span in scope.spans):
                said = {each.key: each.value.string_value for each in span.attributes}
                self.taken[span.trace_id].append((self._loop.time(), said.get("executorch.resolution.status", "")))
        return Sent()

    async def close(self) -> None:
        """Nothing to let go of."""


class Day:
    """The parts, wired as the bridge wires them, and what happens to them."""

    def __init__(self, loop: VirtualLoop, folder: Path) -> None:
        self.loop = loop
        self.books = Books(loop)
        self.back_end = BackEnd(loop)
        self.registry = MemoryRegistry()
        self._put("known")
        bounds = Bounds(10**8, 10**8, MAX_AGE_S)
        lot = LotLimits(PARKED_S, 10**8, 10**6, 10**8, 10**6)
        clocks = Clocks(loop.wall_ns, loop.monotonic_ns)
        self.spool = SqliteSpool(folder / "data", bounds, lot, self.books.told, synchronous="NORMAL", clocks=clocks)
        mappings = CompiledMappings(self.registry, 1 << 20)
        self.parking = Parking(self.spool, self.registry, mappings, self.books.told, policy="park", now_ns=loop.wall_ns)
        retry = Retry(
            self.back_end,
            RetryPolicy(1.0, RETRY_MAX_S, math.inf, 300.0),
            Circuit(now=loop.time),
            random=lambda: 1.0,  # the longest wait of each, so that waits are known
            now=loop.time,
        )
        self.outlet = self.spool.outlets[DEFAULT]
        self.pipeline = Pipeline(
            self.outlet,
            Stages(mappings, Decoders(), 1 << 20),
            Isolate(retry),
            self.books,
            sift=partial(self.parking.sift, self.outlet),
            limit_bytes=1 << 20,
            linger_s=0.05,
        )
        repeats = Repeats(10_000, 600.0, self.spool, self.books, loop.time)
        self.intake = Intake(self.spool, ANYTHING, lambda *_: None, self.books, repeats, now_ns=loop.wall_ns)
        self.issuer = Issuer(folder / "tokens.json", self.now())
        self.old = self.issuer.issue(Scope.EVENTS_WRITE, lifetime=timedelta(hours=3))
        self.new = ""
        self.keyring = Keyring([self.issuer.file])
        self.gate = Gate(self.keyring, Refusals(lambda *_: None), certificates={}, needs_certificate=False, now=self.now)
        self.sent: dict[int, float] = {}
        self.doors: dict[str, list[tuple[float, str]]] = defaultdict(list)
        self.minutes = 0

    def now(self) -> datetime:
        """What the wall clock says."""
        return datetime.fromtimestamp(self.loop.wall_ns() / 1e9, UTC)

    def _put(self, build: str) -> None:
        self.registry.put("", mapping_pb2.MappingFile(build_id=build, mapping=mapping_of({"x": [1]})))

    async def devices(self) -> None:
        """A request every ten seconds, for seven hours; of four, one has no build, and two one without a mapping."""
        sequence = 0
        await asyncio.sleep(EVERY_S / 2)
        while self.loop.time() < 7 * HOUR_S:
            if sequence % 97 != 5:
                body = request(sequence, BUILDS[sequence % len(BUILDS)]).SerializeToString()
                self.sent[sequence] = self.loop.time()
                answer = await self.intake.export_events(body, None)
                assert pb.ExportEventsResponse.FromString(answer).accepted == EVENTS
            sequence += 1
            await asyncio.sleep(EVERY_S)

    async def people(self) -> None:
        """They rotate a token with an overlap, upload a mapping, and revoke the token."""
        await self._until(2.8 * HOUR_S)
        self.new = await asyncio.to_thread(self._issue)
        await self._until(5 * HOUR_S)
        self._put("late")
        self.parking.uploaded()
        await self._until(6 * HOUR_S)
        await asyncio.to_thread(self._revoke)

    def _issue(self) -> str:
        self.issuer.now = self.now()
        return self.issuer.issue(Scope.EVENTS_WRITE, name="new")

    def _revoke(self) -> None:
        self.issuer.now = self.now()
        self.issuer.revoke(self.new)

    async def knock(self) -> None:
        """Both tokens are shown at the gate every half second."""
        while True:
            for name, token in (("old", self.old), ("new", self.new)):
                if token:
                    decision = self.gate.decide(Shown([f"Bearer {token}"]), Scope.EVENTS_WRITE)
                    said = decision.reason if isinstance(decision, Refusal) else "in"
                    if not self.doors[name] or self.doors[name][-1][1] != said:
                        self.doors[name].append((self.loop.time(), said))
            await asyncio.sleep(0.5)

    async def audit(self) -> None:
        """Each minute the books balance, to the event."""
        while True:
            counts, spool = self.books.counts, self.outlet
            dropped = sum(self.books.dropped_events.values())
            held = spool.events, spool.parked_events
            assert counts["accepted"] == counts["emitted"] + dropped + sum(held), (self.loop.time(), counts, held)
            self.minutes += 1
            await asyncio.sleep(60)

    async def _until(self, time_s: float) -> None:
        await asyncio.sleep(time_s - self.loop.time())

    async def pass_by(self) -> None:
        """All of it; then the bridge stops."""
        entrance = Entrance(None, self.gate, self.keyring.refresh)
        entrance.start()
        running = asyncio.create_task(self.pipeline.run())
        others = [asyncio.create_task(each()) for each in (self.parking.run, self.devices, self.people, self.knock, self.audit)]
        await self._until(END_S)
        await entrance.stop()
        for each in others:
            if each.done():
                each.result()
            each.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        self.parking.stop()
        await running
        await self.spool.finish()


@contextlib.contextmanager
def passed(folder: Path) -> Iterator[Day]:
    """The day, after it has passed."""
    submit = Commits.submit

    def held(self: Commits, *arguments: Any, **more: Any) -> "asyncio.Future[Any]":
        answer = submit(self, *arguments, **more)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.hold(answer)  # another thread gives it
        return answer

    with pytest.MonkeyPatch.context() as patch, asyncio.Runner(loop_factory=VirtualLoop) as runner:
        patch.setattr(Commits, "submit", held)
        loop = runner.get_loop()
        assert isinstance(loop, VirtualLoop)
        day = Day(loop, folder)
        runner.run(day.pass_by())
        yield day
