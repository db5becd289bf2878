"""
The connections of the HTTP door: how many there are, and how long each may take over what it does.

Invariants
* A connection counts from its acceptance to its end, the TLS handshake included: whoever is too many is closed at once.
* At no time may a connection keep the bridge waiting without end: for a handshake, for the headers of a request, for the rest
  of a body that nobody reads, or for the next request.
* Headers are bounded, however slowly they come.
* The head of an answer goes out with the first of its body: each write is a call of the kernel and a packet of its own.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from otel_bridge.wire.exchange import IS_GONE
from otel_bridge.wire.guard import CLIENT_NAMES

_log = logging.getLogger(__name__)

MAX_HEAD_BYTES = 65_536
"""Headers of a request that come in several pieces have no more than this, and what one piece more holds."""

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


class Protocol(HttpToolsProtocol):
    """
    One connection.

    ended   told when it is gone
    """

    def __init__(self, limits: ConnectionLimits, ended: Callable[[], None], **uvicorn: Any) -> None:
        super().__init__(**uvicorn)
        self._limits = limits
        self._ended = ended
        self._in_head = False
        self._head_bytes = 0
        self._is_whole = True
        self._patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Tell requests who the client is, by the certificate that TLS has verified, and how to learn that it is gone."""
        super().connection_made(transport)
        self.app_state = {**self.app_state, IS_GONE: transport.is_closing}
        connection = transport.get_extra_info("ssl_object")
        shown = connection.getpeercert() if connection is not None else None
        if shown:
            self.app_state[CLIENT_NAMES] = [name for kind, name in shown.get("subjectAltName", ()) if kind in ("DNS", "URI")]
        self.timeout_keep_alive_task = self.loop.call_later(self._limits.idle_s, self.timeout_keep_alive_handler)

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of everything."""
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self._be_patient(None)
        self._ended()

    def data_received(self, data: bytes) -> None:
        """Take bytes; what stands between two requests counts as headers of the next."""
        if self._patience is None and self._is_whole and (self.cycle is None or self.cycle.response_complete):
            self._be_patient(self._limits.handshake_s)
        was_in_head = self._in_head
        super().data_received(data)
        if was_in_head and self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self.transport.close()

    def on_message_begin(self) -> None:
        """The headers of a request begin."""
        super().on_message_begin()
        self._in_head, self._head_bytes, self._is_whole = True, 0, False

    def on_headers_complete(self) -> None:
        """They are there."""
        self._in_head = False
        self._be_patient(None)
        super().on_headers_complete()
        if self.cycle is not None and not self.cycle.response_started:  # its answer is begun later, in a task
            self.cycle.transport = cast("asyncio.Transport", _Joined(self.cycle, self.transport))

    def on_message_complete(self) -> None:
        """The body is there."""
        self._is_whole = True
        self._be_patient(None)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """An answer that needed no body, or not all of it, leaves a rest; and the next request may have begun."""
        super().on_response_complete()
        if self._in_head:
            self._be_patient(self._limits.handshake_s)
        elif not self._is_whole and self.cycle.response_complete:
            self._be_patient(self._limits.body_s)

    def _be_patient(self, seconds: float | None) -> None:
        """Close the connection after so long; None: not any more."""
        if self._patience is not None:
            self._patience.cancel()
        self._patience = self.loop.call_later(seconds, self.timeout_keep_alive_handler) if seconds is not None else None


class _Joined:
    """What uvicorn writes an answer to: the head waits for the body that must follow."""

    __slots__ = ("_cycle", "_held", "_transport")

    def __init__(self, cycle: RequestResponseCycle, transport: asyncio.Transport) -> None:
        self._cycle = cycle
        self._transport = transport
        self._held = b""

    def write(self, data: bytes) -> None:
        """Send, or hold where more of the answer is to be written."""
        cycle = self._cycle
        if self._held:
            data, self._held = self._held + data, b""
        elif cycle.response_started and cycle.expected_content_length and cycle.scope["method"] != "HEAD":
            self._held = data
            return
        self._transport.write(data)

    def close(self) -> None:
        """Send what is held, and close."""
        if self._held:
            self._transport.write(self._held)
        self._transport.close()

    def is_closing(self) -> bool:
        """Whether the connection is closed, or about to be."""
        return self._transport.is_closing()
