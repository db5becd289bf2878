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
from support.requests import ANYTHING
from support.spools import spool_of

from otel_bridge.auth.gate import Gate
from otel_bridge.mapping.memory import MemoryRegistry
from otel_bridge.mapping.quota import NO_QUOTA, Quota
from otel_bridge.model.events import EventBatch
from otel_bridge.spool.memory import MemorySpool
from otel_bridge.v1.mapping_pb2 import MissingMapping
from otel_bridge.wire.guard import GrpcGuard
from otel_bridge.wire.health import Condition
from otel_bridge.wire.http import http_app
from otel_bridge.wire.intake import Intake, Spend, TenantsBuildOf, for_nothing
from otel_bridge.wire.mappings import Mappings
from otel_bridge.wire.server import GrpcDoor, HttpDoor
from otel_bridge.wire.servicers import mapping_handler, profiling_handler
from otel_bridge.wire.tls import DoorTls

LOOPBACK = "127.0.0.1:0"


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

    def request(self, outcome: str) -> None:
        """Add the outcome of a request."""
        self.outcomes[outcome] += 1
        self._changed.set()

    async def heard(self, outcome: str) -> None:
        """Wait until a request ended so."""
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
    ready: bool = True

    async def batch(self) -> EventBatch:
        """The next batch of the spool, which stays there."""
        (record,) = await self.spool.read(1)
        return record.batch


Opened = Callable[..., AbstractAsyncContextManager[Doors]]


@asynccontextmanager
async def _opened(
    *,
    limit_bytes: int = 1 << 20,
    spool_bytes: int = 1 << 20,
    build_of: TenantsBuildOf | None = None,
    read_timeout_s: float = 30.0,
    missing: Sequence[MissingMapping] = (),
    missing_tenant: str = "",
    spend: Spend = for_nothing,
    quota_of: Callable[[str], Quota] = lambda _tenant: NO_QUOTA,
    gate: Gate | None = None,
    tls: DoorTls | None = None,
) -> AsyncIterator[Doors]:
    spool, tally, registry = spool_of(spool_bytes), Tally(), MemoryRegistry()
    intake = Intake(spool, ANYTHING, build_of or registry.build_of, tally, spend=spend)
    mappings = Mappings(registry, lambda tenant: list(missing) if tenant == missing_tenant else [], lambda: None, quota_of)
    handlers = (profiling_handler(intake, tally.request), mapping_handler(mappings, tally.request))
    app = http_app(
        intake,
        mappings,
        max_request_bytes=limit_bytes,
        read_timeout_s=read_timeout_s,
        ready=lambda: Condition(doors.ready, {"spool": "ok"}),
        metrics=lambda: b"a_metric 1\n",
        count=tally.request,
        gate=gate,
    )
    guards = [GrpcGuard(gate, tally.request)] if gate is not None else []
    doors_grpc, doors_http = GrpcDoor(handlers, limit_bytes, tls, guards), HttpDoor(app, 5, tls)
    for door in (doors_grpc, doors_http):
        door.bind(LOOPBACK)
        await door.start()
    try:
        async with (
            grpc.aio.insecure_channel(doors_grpc.address) as channel,
            httpx.AsyncClient(base_url=f"http://{doors_http.address}") as client,
        ):
            doors = Doors(spool, tally, registry, doors_grpc, doors_http, channel, client, app)
            yield doors
    finally:
        await doors_http.stop()
        await doors_grpc.stop(0)


@pytest.fixture
def opened() -> Opened:
    """Opens both doors on free ports for the time of an `async with`."""
    return _opened
