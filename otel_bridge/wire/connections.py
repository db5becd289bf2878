"""
The connections of the HTTP door: how many there are, and how long each may take over what it does.

Invariants
* A connection counts from its acceptance to its end, the TLS handshake included: whoever is too many is closed at once.
* At no time may a connection keep the bridge waiting without end: for a handshake, for the headers of a request, for the rest
  of a body that nobody reads, for the next request, or until it has read an answer.
* Headers and trailers are bounded, however they come, and so are requests that come before earlier ones are answered.
* The bridge speaks HTTP/1.1 here: an offer of another protocol is passed over.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from otel_bridge.wire.exchange import IS_GONE
from otel_bridge.wire.guard import CLIENT_NAMES
from otel_bridge.wire.transport import Flow, Parting

_log = logging.getLogger(__name__)

MAX_HEAD_BYTES = 65_536
"""Of headers and trailers come no more than this, and what one piece more holds."""
MAX_HEADERS = 100
MAX_PIPELINED = 16
"""Requests that wait behind the one that is answered."""
NOT_HTTP = (
    f"this is no request of HTTP/1.1 with at most {MAX_HEADERS} headers; gRPC has a door of its own (server.grpc_address), "
    "and TLS is spoken where server.tls_certificate is set"
)

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
        self._is_whole = True
        self._bare_bytes = 0
        self._phase = ""
        self._phase_end: asyncio.TimerHandle | None = None
        self._unread_end: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Tell requests who the client is, by the certificate that TLS has verified, and how to learn that it is gone."""
        super().connection_made(transport)
        self.flow = Flow(transport, self.pipeline)
        self._parting = Parting(transport, lambda: not self._is_whole, self._limits.body_s)
        self.app_state = {**self.app_state, IS_GONE: transport.is_closing}
        connection = transport.get_extra_info("ssl_object")
        shown = connection.getpeercert() if connection is not None else None
        if shown:
            self.app_state[CLIENT_NAMES] = [name for kind, name in shown.get("subjectAltName", ()) if kind in ("DNS", "URI")]
        self._mind_phase()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of everything."""
        super().connection_lost(exc)
        for timer in (self._phase_end, self._unread_end):
            if timer is not None:
                timer.cancel()
        self._ended()

    def data_received(self, data: bytes) -> None:
        """Take bytes; what stands between two requests counts as headers of the next."""
        if self._parting.has_begun:
            self._parting.discard(data)
            return
        if self._is_whole and not self._is_under_way:
            self._in_head = True
        elif not self._is_whole:
            self._bare_bytes += len(data)
        try:
            self._feed(data)
        except httptools.HttpParserError:
            self.logger.warning("%s", NOT_HTTP)
            self.send_400_response(NOT_HTTP)
            return
        if self._bare_bytes > MAX_HEAD_BYTES or len(self.headers or ()) > MAX_HEADERS:
            self.transport.close()
        self._mind_phase()

    def _feed(self, data: bytes) -> None:
        while data:
            try:
                self.parser.feed_data(data)
                data = b""
            except httptools.HttpParserUpgrade as offer:
                # The parser ends the request where the other protocol would begin. None is spoken here: it is read again.
                data = self._head_without_offer() + data[offer.args[0] :]
                self.parser = httptools.HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn sets its own

    def _head_without_offer(self) -> bytes:
        start = b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        lines = [start, *(b"%b: %b" % header for header in self.headers if header[0] != b"upgrade")]
        return b"\r\n".join(lines) + b"\r\n\r\n"

    def send_400_response(self, msg: str) -> None:
        """Say what is wrong, but where an earlier request still waits for its answer: it would take this for it."""
        if self._is_under_way:
            self.transport.close()
        else:
            head = (
                f"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\ncontent-length: {len(msg)}\r\nconnection: close\r\n"
            )
            self._parting.write(f"{head}\r\n{msg}".encode())
            self._parting.close()

    def on_message_begin(self) -> None:
        """The headers of a request begin."""
        super().on_message_begin()
        self._in_head, self._bare_bytes, self._is_whole = True, 0, False

    def on_headers_complete(self) -> None:
        """They are there. What is raised here ends the parsing."""
        if len(self.headers) > MAX_HEADERS or len(self.pipeline) >= MAX_PIPELINED or self.parser.get_method() == b"CONNECT":
            raise _Refused
        if not self.parser.should_upgrade():
            self._in_head = False
            super().on_headers_complete()
            self.cycle.transport = self._parting  # type: ignore[assignment]  # as much of a transport as a cycle asks for

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._bare_bytes, self.expect_100_continue = 0, False
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The body is there."""
        if not self.parser.should_upgrade():
            self._is_whole = True
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """An answer that needed no body, or not all of it, leaves a rest; and the next request may have begun."""
        if self._parting.has_begun:
            return
        super().on_response_complete()
        self._unset_keepalive_if_required()
        if self.expect_100_continue and not self._is_whole and not self._is_under_way:
            self._parting.close()  # the body was not asked for: whether it comes is not known
        self._mind_phase()

    def pause_writing(self) -> None:
        """The client does not read what it asked for: it has as long as for a body of its own."""
        super().pause_writing()
        self._unread_end = self.loop.call_later(self._limits.body_s, self.transport.abort)

    def resume_writing(self) -> None:
        """It has read all."""
        super().resume_writing()
        if self._unread_end is not None:
            self._unread_end.cancel()

    @property
    def _is_under_way(self) -> bool:
        """Whether a request that has begun is to be answered; what it may take is the application's to say."""
        return self.cycle is not None and not self.cycle.response_complete

    def _mind_phase(self) -> None:
        """Close the connection once what the client does, from when it began, has taken too long."""
        limits, seconds = self._limits, None
        if self._is_under_way:
            phase = "request"
        elif self._in_head:
            phase, seconds = "head", limits.handshake_s
        elif not self._is_whole:
            phase, seconds = "rest of a body", limits.body_s
        else:
            phase, seconds = "idle", limits.idle_s
        if phase == self._phase:
            return
        self._phase = phase
        if self._phase_end is not None:
            self._phase_end.cancel()
        self._phase_end = self.loop.call_later(seconds, self._end) if seconds is not None else None

    def _end(self) -> None:
        if self.transport.get_write_buffer_size():  # to close it would be to wait until the client has read that
            self.transport.abort()
        else:
            self.transport.close()


class _Refused(Exception):
    """A request that nothing answers."""
