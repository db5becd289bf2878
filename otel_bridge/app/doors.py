"""
Where the bridge is reached: gRPC and HTTP, with one admission behind both.

Invariant: the doors know of the rest of the bridge what they are given here; they neither resolve nor send.
"""

import asyncio
from collections.abc import Awaitable, Callable

from otel_bridge.app.crew import Crew
from otel_bridge.app.faults import Faults
from otel_bridge.app.privacy import rules_of
from otel_bridge.app.watch import Recorder
from otel_bridge.config.bridge import BridgeConfig
from otel_bridge.mapping.registry import Registry
from otel_bridge.pipeline.memory import give_back_memory
from otel_bridge.spool.protocol import Spool
from otel_bridge.telemetry.process import memory_rss_bytes
from otel_bridge.telemetry.traces import Traces
from otel_bridge.wire.body import BodyLimits
from otel_bridge.wire.call import Arrivals, WayIn
from otel_bridge.wire.connections import ConnectionLimits
from otel_bridge.wire.entrance import Entrance
from otel_bridge.wire.grpc_door import GrpcDoor, Interceptor
from otel_bridge.wire.guard import GrpcGuard
from otel_bridge.wire.health import Condition
from otel_bridge.wire.http import http_app
from otel_bridge.wire.http_door import HttpDoor
from otel_bridge.wire.intake import Intake
from otel_bridge.wire.mappings import Mappings
from otel_bridge.wire.repeats import Repeats
from otel_bridge.wire.servicers import mapping_handler, profiling_handler
from otel_bridge.wire.streams import Streams
from otel_bridge.wire.traced import GrpcTraces
from otel_bridge.wire.turnstile import Limits, Memory, Turnstile


class Doors:
    """
    Both doors.

    turnstile  how much is between them and the spool
    entrance    who may come in
    ready      whether requests are welcome
    metrics    Prometheus text exposition
    traces     spans of the bridge's own
    crew       the other workers, with whom the ports are shared
    repeats    what was sent before
    """

    def __init__(
        self,
        config: BridgeConfig,
        entrance: Entrance,
        spool: Spool,
        *,
        registry: Registry,
        mappings: Mappings,
        recorder: Recorder,
        ready: Callable[[], Condition],
        metrics: Callable[[], Awaitable[bytes]],
        traces: Traces,
        crew: Crew,
    ) -> None:
        self._config = config.server
        self._entrance = entrance
        given, limit = config.ingress, config.server.max_request_bytes
        self._shares = not crew.is_alone
        repeats = Repeats(given.duplicate_entries, given.duplicate_s, spool, recorder, elsewhere=crew.elsewhere())
        self.repeats = repeats
        intake = Intake(spool, rules_of(config), registry.build_of, recorder, repeats, spend=entrance.spend, traces=traces)
        memory = Memory(given.memory_bytes, memory_rss_bytes, give_back_memory)
        self.turnstile = Turnstile(Limits(given.max_requests, given.max_bytes, given.max_waiting, given.max_wait_s), memory)
        limits = ConnectionLimits(
            given.max_connections, given.handshake_timeout_s, given.body_timeout_s, given.idle_timeout_s, given.connection_age_s
        )

        def count_grpc(outcome: str) -> None:
            recorder.request("grpc", outcome)

        way_in = WayIn(self.turnstile, Arrivals(given.body_timeout_s, self.turnstile, count_grpc), count_grpc)
        self._streams = Streams(intake, way_in, limits, traces)
        handlers = (profiling_handler(intake, way_in, self._streams), mapping_handler(mappings, way_in))
        guards: list[Interceptor] = [GrpcGuard(entrance.gate, count_grpc)] if entrance.gate is not None else []
        if traces.is_on:
            guards.append(GrpcTraces(traces))
        self.grpc = GrpcDoor(handlers, limit, limits, way_in.arrivals, tls=entrance.tls, guards=guards)
        app = http_app(
            intake,
            mappings,
            limits=BodyLimits(limit, config.server.read_timeout_s, given.body_timeout_s),
            turnstile=self.turnstile,
            ready=ready,
            metrics=metrics,
            count=lambda outcome: recorder.request("http", outcome),
            gate=entrance.gate,
            traces=traces,
        )
        self.http = HttpDoor(app, config.server.drain_s, limits, recorder.turned_away, tls=entrance.tls)

    async def start(self) -> None:
        """Listen. Raises `ConfigError` where an address cannot be listened on."""
        self._entrance.start()
        faults = Faults()
        with faults.part():
            self.http.bind(self._config.http_address, shares=self._shares)
        with faults.part():
            self.grpc.bind(self._config.grpc_address, shares=self._shares)
        faults.tell()
        await self.http.start()
        await self.grpc.start()

    async def stop(self) -> None:
        """Take nothing more; what is on its way in has `server.drain_s`."""
        self._streams.end()
        await asyncio.gather(self.grpc.stop(self._config.drain_s), self.http.stop())
        await self._entrance.stop()
