"""
Where the bridge is reached: gRPC and HTTP, with one admission behind both.

Invariant: the doors know of the rest of the bridge what they are given here; they neither resolve nor send.
"""

import asyncio
from collections.abc import Callable

from otel_bridge.app.faults import Faults
from otel_bridge.app.privacy import rules_of
from otel_bridge.app.watch import Recorder
from otel_bridge.config.bridge import BridgeConfig
from otel_bridge.mapping.registry import Registry
from otel_bridge.spool.protocol import Spool
from otel_bridge.telemetry.traces import Traces
from otel_bridge.wire.entrance import Entrance
from otel_bridge.wire.guard import GrpcGuard
from otel_bridge.wire.health import Condition
from otel_bridge.wire.http import http_app
from otel_bridge.wire.intake import Intake
from otel_bridge.wire.mappings import Mappings
from otel_bridge.wire.server import GrpcDoor, HttpDoor, Interceptor
from otel_bridge.wire.servicers import mapping_handler, profiling_handler
from otel_bridge.wire.traced import GrpcTraces


class Doors:
    """
    Both doors.

    entrance   who may come in
    ready      whether requests are welcome
    metrics    Prometheus text exposition
    traces     spans of the bridge's own
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
        metrics: Callable[[], bytes],
        traces: Traces,
    ) -> None:
        self._config = config.server
        self._entrance = entrance
        intake = Intake(spool, rules_of(config), registry.build_of, recorder, spend=entrance.spend, traces=traces)
        limit = config.server.max_request_bytes

        def count_grpc(outcome: str) -> None:
            recorder.request("grpc", outcome)

        handlers = (profiling_handler(intake, count_grpc), mapping_handler(mappings, count_grpc))
        guards: list[Interceptor] = [GrpcGuard(entrance.gate, count_grpc)] if entrance.gate is not None else []
        if traces.is_on:
            guards.append(GrpcTraces(traces))
        self.grpc = GrpcDoor(handlers, limit, entrance.tls, guards)
        app = http_app(
            intake,
            mappings,
            max_request_bytes=limit,
            read_timeout_s=config.server.read_timeout_s,
            ready=ready,
            metrics=metrics,
            count=lambda outcome: recorder.request("http", outcome),
            gate=entrance.gate,
            traces=traces,
        )
        self.http = HttpDoor(app, config.server.drain_s, entrance.tls)

    async def start(self) -> None:
        """Listen. Raises `ConfigError` where an address cannot be listened on."""
        self._entrance.start()
        faults = Faults()
        with faults.part():
            self.http.bind(self._config.http_address)
        with faults.part():
            self.grpc.bind(self._config.grpc_address)
        faults.tell()
        await self.http.start()
        await self.grpc.start()

    async def stop(self) -> None:
        """Take nothing more; what is on its way in has `server.drain_s`."""
        await asyncio.gather(self.grpc.stop(self._config.drain_s), self.http.stop())
        await self._entrance.stop()
