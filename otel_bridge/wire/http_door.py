"""
The HTTP listener: uvicorn's server, with connections that are bounded (connections.py, http_protocol.py).

Start: bind before anything answers, so that a port in use is told at once. Stop: no new requests; requests under way may end
within the grace.
"""

import asyncio
import contextlib
import math
import socket
from collections.abc import Callable, Generator
from typing import cast

import uvicorn
from starlette.types import ASGIApp

from otel_bridge.wire.connections import ConnectionLimits, Connections
from otel_bridge.wire.http_protocol import Protocol
from otel_bridge.wire.port import bound, with_port
from otel_bridge.wire.tls import DoorTls


class HttpDoor:
    """
    An HTTP server for an ASGI application.

    grace_s       how long requests under way may go on when it stops
    limits        of its connections
    turned_away   told of each connection that is too many
    tls           None: plain text
    """

    def __init__(
        self,
        app: ASGIApp,
        grace_s: float,
        limits: ConnectionLimits,
        turned_away: Callable[[], None],
        *,
        tls: DoorTls | None = None,
    ) -> None:
        config = uvicorn.Config(
            app,
            ws="none",
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            proxy_headers=False,  # nothing here asks who is behind a proxy, and whoever is there could say anything
            timeout_graceful_shutdown=math.ceil(grace_s),
        )
        self._server = _Server(config, limits, turned_away, tls)
        self._listener: socket.socket | None = None
        self._serving: asyncio.Task[None] | None = None
        self.address = ""

    @property
    def connections(self) -> int:
        """How many are open."""
        return self._server.connections

    def bind(self, address: str, *, shares: bool = False) -> None:
        """Take the port, which `address` then holds; `shares` it with other workers. Raises `ConfigError`."""
        self._listener = bound("server.http_address", address, shares=shares)
        self.address = with_port(address, self._listener.getsockname()[1])

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


class _Server(uvicorn.Server):
    def __init__(
        self, config: uvicorn.Config, limits: ConnectionLimits, turned_away: Callable[[], None], tls: DoorTls | None
    ) -> None:
        super().__init__(config)
        self._limits = limits
        self._turned_away = turned_away
        self._tls = tls
        self._accepted: Connections | None = None

    @property
    def connections(self) -> int:
        return len(self._accepted) if self._accepted is not None else 0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections in the way of connections.py, which uvicorn has no setting for."""

        def protocol(ended: Callable[[], None]) -> Protocol:
            return Protocol(self._limits, ended, config=self.config, server_state=self.server_state, app_state={})

        (listener,) = sockets or []
        context = self._tls.context if self._tls is not None else None
        await self.lifespan.startup()
        self._accepted = Connections(listener, protocol, self._limits, context, self._turned_away)
        self.servers = [cast("asyncio.base_events.Server", self._accepted)]  # uvicorn closes it, and waits for that, no more
        self.started = True

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave signals to the application, which stops more than this server."""
        yield
