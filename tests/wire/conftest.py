"""Both doors, listening on loopback, with a spool behind them that nobody empties."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

import grpc
import httpx
import pytest
from starlette.applications import Starlette
from support.crowds import PATIENCE_S
from support.requests import ANYTHING
from support.spools import emitted, outlet_of, spool_of

from otel_bridge.auth.gate import Gate
from otel_bridge.mapping.memory import MemoryRegistry
from otel_bridge.mapping.quota import NO_QUOTA, Quota
from otel_bridge.model.events import EventBatch
from otel_bridge.spool.memory import MemorySpool
from otel_bridge.spool.protocol import Outlet
from otel_bridge.v1.mapping_pb2 import MissingMapping
from otel_bridge.wire.body import BodyLimits
from otel_bridge.wire.call import Arrivals, WayIn
from otel_bridge.wire.connections import ConnectionLimits
from otel_bridge.wire.grpc_door import GrpcDoor
from otel_bridge.wire.guard import GrpcGuard
from otel_bridge.wire.health import Condition
from otel_bridge.wire.http import http_app
from otel_bridge.wire.http_door import HttpDoor
from otel_bridge.wire.intake import Intake, Spend, TenantsBuildOf, for_nothing
from otel_bridge.wire.mappings import Mappings
from otel_bridge.wire.repeats import Repeats
from otel_bridge.wire.servicers import mapping_handler, profiling_handler
from otel_bridge.wire.streams import Streams
from otel_bridge.wire.tls import DoorTls
from otel_bridge.wire.turnstile import Limits, Memory, Turnstile

LOOPBACK = "127.0.0.1:0"
_LIMITS, _CONNECTIONS = Limits(), ConnectionLimits()


class Tally:
    """A `Watch` that adds up."""

    def __init__(self) -> None:
        self.taken = 0
        self.rejected: Counter[str] = Counter()
        self.drops: Counter[str] = Counter()
        self.outcomes: Counter[str] = Counter()
        self._changed = asyncio.Event()

    def accepted(self, events: int) -> None:
        """Add accepted events."""
        self.taken += events

    def refused(self, events: int, reason: str) -> None:
        """Add rejected events."""
        self.rejected[reason] += events

    def sender_dropped(self, events: int, reason: str) -> None:
        """Add what the sender dropped."""
        self.drops[reason] += events

    def duplicate(self) -> None:
        """Add a request that was sent again."""
        self.outcomes["duplicate"] += 1

    def sequence_reused(self) -> None:
        """Add a number that was used twice."""
        self.outcomes["sequence_reused"] += 1

    def turned_away(self) -> None:
        """Add a connection that was too many."""
        self.outcomes["turned_away"] += 1
        self._changed.set()

    def request(self, outcome: str) -> None:
        """Add the outcome of a request."""
        self.outcomes[outcome] += 1
        self._changed.set()

    async def heard(self, outcome: str) -> None:
        """Wait until a request ended so. Raises `TimeoutError` where none does."""
        async with asyncio.timeout(PATIENCE_S):
            while not self.outcomes[outcome]:
                self._changed.clear()
                await self._changed.wait()


@dataclass
class Doors:
    """What listens, and what is behind it."""

    spool: MemorySpool
    tally: Tally
    registry: MemoryRegistry
    grpc: GrpcDoor
    http: HttpDoor
    channel: grpc.aio.Channel
    client: httpx.AsyncClient
    app: Starlette
    turnstile: Turnstile
    streams: Streams
    ready: bool = True

    @property
    def outlet(self) -> Outlet:
        """The other end of the spool."""
        return outlet_of(self.spool)

    async def take(self) -> None:
        """Take a batch out of the spool."""
        records = await self.outlet.read(1)
        await self.outlet.done(records, emitted(records))

    async def batch(self) -> EventBatch:
        """The next batch of the spool, which stays there."""
        (record,) = await self.outlet.read(1)
        return record.batch


Opened = Callable[..., AbstractAsyncContextManager[Doors]]


@asynccontextmanager
async def _opened(
    *,
    limit_bytes: int = 1 << 20,
    spool_bytes: int = 1 << 20,
    build_of: TenantsBuildOf | None = None,
    read_timeout_s: float = 30.0,
    body_timeout_s: float = 30.0,
    missing: Sequence[MissingMapping] = (),
    missing_tenant: str = "",
    spend: Spend = for_nothing,
    quota_of: Callable[[str], Quota] = lambda _tenant: NO_QUOTA,
    gate: Gate | None = None,
    tls: DoorTls | None = None,
    limits: Limits = _LIMITS,
    memory: Memory | None = None,
    connections: ConnectionLimits = _CONNECTIONS,
    duplicates: int = 1000,
) -> AsyncIterator[Doors]:
    async def list_missing(tenant: str) -> list[MissingMapping]:
        return list(missing) if tenant == missing_tenant else []

    async def uploaded() -> None:
        """Nothing waits for it."""

    async def metrics() -> bytes:
        return b"a_metric 1\n"

    spool, tally, registry = spool_of(spool_bytes), Tally(), MemoryRegistry()
    repeats = Repeats(duplicates, 3600, spool, tally)
    intake = Intake(spool, ANYTHING, build_of or registry.build_of, tally, repeats, spend=spend)
    mappings = Mappings(registry, list_missing, uploaded, quota_of)
    turnstile = Turnstile(limits, memory or Memory(0, lambda: None))
    way_in = WayIn(turnstile, Arrivals(body_timeout_s, turnstile, tally.request), tally.request)
    app = http_app(
        intake,
        mappings,
        limits=BodyLimits(limit_bytes, read_timeout_s, body_timeout_s),
        turnstile=turnstile,
        ready=lambda: Condition(doors.ready, {"spool": "ok"}),
        metrics=metrics,
        count=tally.request,
        gate=gate,
    )
    guards = [GrpcGuard(gate, tally.request)] if gate is not None else []
    streams = Streams(intake, way_in, connections)
    handlers = (profiling_handler(intake, way_in, streams), mapping_handler(mappings, way_in))
    doors_grpc = GrpcDoor(handlers, limit_bytes, connections, way_in.arrivals, tls=tls, guards=guards)
    doors_http = HttpDoor(app, 5, connections, tally.turned_away, tls=tls)
    for door in (doors_grpc, doors_http):
        door.bind(LOOPBACK)
        await door.start()
    try:
        async with (
            grpc.aio.insecure_channel(doors_grpc.address) as channel,
            httpx.AsyncClient(base_url=f"http://{doors_http.address}", timeout=PATIENCE_S) as client,
        ):
            doors = Doors(spool, tally, registry, doors_grpc, doors_http, channel, client, app, turnstile, streams)
            yield doors
    finally:
        await doors_http.stop()
        await doors_grpc.stop(0)


@pytest.fixture
def opened() -> Opened:
    """Opens both doors on free ports for the time of an `async with`."""
    return _opened
