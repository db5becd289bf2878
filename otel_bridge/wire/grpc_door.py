"""
The gRPC listener, with health and reflection.

Start: bind before anything answers, so that a port in use is told at once. Stop: health says NOT_SERVING first, so that
balancers turn away; then no new requests; requests under way may end within the grace.

What bounds its memory (measured with grpcio 1.85):
* A message is read once a handler asks for it (call.py). Until then a stream holds 64 KiB, and a connection as much: but only
  without `bdp_probe`, which else lets windows grow to megabytes that nobody asked for.
* `max_receive_message_length` bounds a message, as it comes and as it is decompressed.
* Calls that the event loop has not taken over wait in the core. From 1,000 on it would end them at random, as CANCELLED; here
  they are bounded by streams and connections.
* Health is open to all, and its calls may last: lookers.py.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from otel_bridge.errors import ConfigError
from otel_bridge.wire.call import Arrivals
from otel_bridge.wire.connections import ConnectionLimits
from otel_bridge.wire.health import Health
from otel_bridge.wire.lookers import Lookers
from otel_bridge.wire.port import bound, with_port
from otel_bridge.wire.servicers import MAPPING, PROFILING, Handler
from otel_bridge.wire.tls import DoorTls

Interceptor: TypeAlias = "grpc.aio.ServerInterceptor[Any, Any]"  # generic for type checkers only

_SERVICES = (PROFILING, MAPPING)
_REFLECTED = (*_SERVICES, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name, reflection.SERVICE_NAME)

MAX_STREAMS = 128
"""Calls of one connection at a time; a client holds further ones back."""
_MAX_PENDING = 65_536
_KEEPALIVE_S = 60
"""How often a client with a call open is asked whether it is there; one that does not answer for 20 s is gone."""
LEAST_PING_S = 10
"""A client may ask as often whether the bridge is there."""


class GrpcDoor:
    """
    A gRPC server with health and reflection.

    max_request_bytes   holds after decompression (gRPC core checks it)
    limits              of its connections
    arrivals            reads the messages of health
    tls                 None: plain text
    guards              interceptors that every call passes first, the outermost first
    """

    def __init__(
        self,
        handlers: Sequence[Handler],
        max_request_bytes: int,
        limits: ConnectionLimits,
        arrivals: Arrivals,
        *,
        tls: DoorTls | None = None,
        guards: Sequence[Interceptor] = (),
    ) -> None:
        self._handlers = tuple(handlers)
        self._tls = tls
        self._guards = (*guards, Lookers(arrivals))
        self._options = [("grpc.max_receive_message_length", max_request_bytes), *_options(limits)]
        self._health = Health(_SERVICES)
        self._server: grpc.aio.Server | None = None
        self.address = ""

    def bind(self, address: str, *, shares: bool = False) -> None:
        """
        Take the port, which `address` then holds; `shares` it with other workers.

        Call it on the running loop. Raises `ConfigError`.
        """
        bound("server.grpc_address", address, shares=shares).close()  # gRPC would write lines of its own, and not say why
        # Here and not before: it takes the running loop.
        options = [*self._options, ("grpc.so_reuseport", int(shares))]  # else a second bridge on the port is a mistake
        self._server = grpc.aio.server(interceptors=self._guards, options=options)
        self._server.add_generic_rpc_handlers(self._handlers)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection(_REFLECTED, self._server)
        try:
            if self._tls is None:
                port = self._server.add_insecure_port(address)
            else:
                port = self._server.add_secure_port(address, self._tls.credentials)
        except RuntimeError as error:
            raise ConfigError(f"server.grpc_address ({address}) cannot be listened on: {error}") from error
        self.address = with_port(address, port)

    async def start(self) -> None:
        """Begin to answer, health as not ready: `tell` when requests are welcome."""
        if self._server is None:
            raise RuntimeError("bind first")
        await self.tell(is_ready=False)
        await self._server.start()

    async def tell(self, *, is_ready: bool) -> None:
        """Tell balancers whether requests are welcome; no more once they are turned away."""
        await self._health.tell(is_ready=is_ready)

    async def turn_away(self) -> None:
        """Tell balancers that no more requests are welcome."""
        await self._health.enter_graceful_shutdown()

    async def stop(self, grace_s: float) -> None:
        """Take no new requests and let those under way end within the grace."""
        self._health.end()
        if self._server is not None:
            await self._server.stop(grace_s)


def _options(limits: ConnectionLimits) -> list[tuple[str, int]]:
    """What grpcio knows by these names; milliseconds."""
    return [
        ("grpc.http2.bdp_probe", 0),
        ("grpc.max_concurrent_streams", MAX_STREAMS),
        ("grpc.server.max_pending_requests", _MAX_PENDING),
        ("grpc.server.max_pending_requests_hard_limit", _MAX_PENDING),
        ("grpc.max_allowed_incoming_connections", limits.connections),
        ("grpc.server_handshake_timeout_ms", int(limits.handshake_s * 1000)),
        ("grpc.max_connection_idle_ms", int(limits.idle_s * 1000)),
        ("grpc.max_connection_age_ms", int(limits.age_s * 1000)),
        ("grpc.max_connection_age_grace_ms", int(limits.body_s * 1000)),
        ("grpc.keepalive_time_ms", _KEEPALIVE_S * 1000),
        ("grpc.http2.min_ping_interval_without_data_ms", LEAST_PING_S * 1000),
    ]
