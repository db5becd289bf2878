"""
The two listeners: gRPC and HTTP, on one event loop.

Start: bind both ports before either answers, so that a port in use is told at once. Stop: health says NOT_SERVING first, so
that balancers turn away; then no new requests; requests under way may end within the grace.
"""

import asyncio
import contextlib
import math
import socket
from collections.abc import Generator, Sequence
from typing import Any, TypeAlias

import grpc
import uvicorn
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from starlette.applications import Starlette
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from otel_bridge.config.values import split_address
from otel_bridge.errors import ConfigError
from otel_bridge.wire.guard import CLIENT_NAMES
from otel_bridge.wire.health import Health
from otel_bridge.wire.servicers import MAPPING, PROFILING, Handler
from otel_bridge.wire.tls import DoorTls

Interceptor: TypeAlias = "grpc.aio.ServerInterceptor[Any, Any]"  # generic for type checkers only

_SERVICES = (PROFILING, MAPPING)
_REFLECTED = (*_SERVICES, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name, reflection.SERVICE_NAME)


class GrpcDoor:
    """
    A gRPC server with health and reflection.

    max_request_bytes   holds after decompression (gRPC core checks it)
    tls                 None: plain text
    guards              interceptors that every call passes, the outermost first
    """

    def __init__(
        self,
        handlers: Sequence[Handler],
        max_request_bytes: int,
        tls: DoorTls | None = None,
        guards: Sequence[Interceptor] = (),
    ) -> None:
        self._handlers = tuple(handlers)
        self._tls = tls
        self._guards = guards
        self._options = [
            ("grpc.max_receive_message_length", max_request_bytes),
            ("grpc.so_reuseport", 0),  # a second bridge on the port is a mistake, not a worker
        ]
        self._health = Health(_SERVICES)
        self._server: grpc.aio.Server | None = None
        self.address = ""

    def bind(self, address: str) -> None:
        """Take the port, which `address` then holds. Call it on the running loop. Raises `ConfigError`."""
        _bound("server.grpc_address", address).close()  # gRPC would write lines of its own to stderr, and not say why
        # Here and not before: it takes the running loop.
        self._server = grpc.aio.server(interceptors=self._guards, options=self._options)
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
        self.address = _with_port(address, port)

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


class HttpDoor:
    """
    An HTTP server for an ASGI application.

    grace_s   how long requests under way may go on when it stops
    tls       None: plain text
    """

    def __init__(self, app: Starlette, grace_s: float, tls: DoorTls | None = None) -> None:
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            http=_Protocol,
            server_header=False,
            timeout_graceful_shutdown=math.ceil(grace_s),
            ssl_context_factory=(lambda _config, _default: tls.context) if tls is not None else None,
        )
        self._server = _Server(config)
        self._listener: socket.socket | None = None
        self._serving: asyncio.Task[None] | None = None
        self.address = ""

    def bind(self, address: str) -> None:
        """Take the port, which `address` then holds. Raises `ConfigError`."""
        self._listener = _bound("server.http_address", address)
        self.address = _with_port(address, self._listener.getsockname()[1])

    async def start(self) -> None:
        """Begin to answer."""
        if self._listener is None:
            raise RuntimeError("bind first")
        self._serving = asyncio.create_task(self._server.serve(sockets=[self._listener]))
        while not self._server.started:  # uvicorn has no event for it
            await asyncio.sleep(0.01)
            if self._serving.done():
                await self._serving

    async def stop(self) -> None:
        """Take no new requests, and let those under way end within the grace."""
        self._server.should_exit = True
        if self._serving is not None:
            await self._serving
        elif self._listener is not None:
            self._listener.close()


def _bound(setting: str, address: str) -> socket.socket:
    host, port = split_address(address)
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise ConfigError(f"{setting} ({address}) cannot be listened on: {error.strerror or error}") from error
    return listener


def _with_port(address: str, port: int) -> str:
    host, _ = split_address(address)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class _Protocol(HttpToolsProtocol):
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Tell requests who the client is, by the certificate that TLS has verified."""
        super().connection_made(transport)
        connection = transport.get_extra_info("ssl_object")
        shown = connection.getpeercert() if connection is not None else None
        if shown:
            names = [name for kind, name in shown.get("subjectAltName", ()) if kind in ("DNS", "URI")]
            self.app_state = {**self.app_state, CLIENT_NAMES: names}


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave signals to the application, which stops more than this server."""
        yield
