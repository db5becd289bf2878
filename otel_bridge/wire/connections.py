"""
The connections of the HTTP door: how they are accepted, how many there are, and how long each may take over what it does.

Invariants
* A connection counts from its acceptance to its end, the TLS handshake included: whoever is too many is closed at once.
* At no time may a connection keep the bridge waiting without end: for a handshake, or for what http_protocol.py bounds.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass

_log = logging.getLogger(__name__)

_BACKLOG = 2048
_REST_S = 0.5
"""How long nothing is accepted where the system has no file descriptor left."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Of a door: open connections; then seconds for a handshake or headers, for a body, without a request, and of life."""

    connections: int = 4096
    handshake_s: float = 10.0
    body_s: float = 120.0
    idle_s: float = 120.0
    age_s: float = 3600.0


class Connections:
    """
    Accepts connections until it is closed; takes the place of the `asyncio.Server` that uvicorn would make.

    listener        has the port; it is closed with this
    make_protocol   a protocol for each, which calls what it is given when the connection is gone
    tls             None: plain text
    turned_away     told of each connection that is too many
    """

    def __init__(
        self,
        listener: socket.socket,
        make_protocol: Callable[[Callable[[], None]], asyncio.Protocol],
        limits: ConnectionLimits,
        tls: ssl.SSLContext | None,
        turned_away: Callable[[], None],
    ) -> None:
        self._listener = listener
        self._make_protocol = make_protocol
        self._limits = limits
        self._tls = tls
        self._turned_away = turned_away
        self._open: set[socket.socket] = set()
        self._opening: set[asyncio.Task[None]] = set()
        listener.setblocking(False)
        listener.listen(_BACKLOG)
        self._accepting = asyncio.ensure_future(self._accept())

    def __len__(self) -> int:
        return len(self._open)

    def close(self) -> None:
        """Accept no more; connections that are open stay."""
        for task in (self._accepting, *self._opening):
            task.cancel()

    async def wait_closed(self) -> None:
        """Wait until nothing is accepted any more."""
        await asyncio.gather(self._accepting, *self._opening, return_exceptions=True)
        self._listener.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(self._listener)
            except OSError as error:  # it went away again, or there is no descriptor for it
                _log.warning("a connection over HTTP cannot be accepted: %s", error.strerror)
                await asyncio.sleep(_REST_S)
                continue
            if len(self._open) >= self._limits.connections:
                connection.close()
                self._turned_away()
                continue
            self._open.add(connection)
            opening = asyncio.ensure_future(self._begin(connection))
            self._opening.add(opening)
            opening.add_done_callback(self._opening.discard)

    async def _begin(self, connection: socket.socket) -> None:
        def end() -> None:
            self._open.discard(connection)

        patience = {"ssl_handshake_timeout": self._limits.handshake_s} if self._tls is not None else {}
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self._make_protocol(end), connection, ssl=self._tls, **patience
            )
        except BaseException as error:
            end()
            connection.close()
            if not isinstance(error, OSError):  # else no handshake came of it, in time or at all
                raise
