"""
One connection of the HTTP door: uvicorn's protocol, with bounds to what a client may do, and how long it may take.

Invariants
* At no time may a connection keep the bridge waiting without end: for the headers of a request, for the rest of a body that
  nobody reads, for the next request, or until it has read an answer.
* Headers and trailers are bounded, however they come, and so are requests that come before earlier ones are answered.
* The bridge speaks HTTP/1.1 here: an offer of another protocol is passed over.
* A request begins once its body is there, so that a small one is answered in one go, without a task (eager.py). One that is
  asked for its body, has more of it than comes ahead anyway, or takes longer than `_AHEAD_S`, begins without the rest.
"""

import asyncio
import contextvars
import math
from collections.abc import Callable
from typing import Any

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from otel_bridge.wire.connections import ConnectionLimits
from otel_bridge.wire.eager import begin
from otel_bridge.wire.exchange import IS_GONE
from otel_bridge.wire.guard import CLIENT_NAMES
from otel_bridge.wire.transport import Flow, Parting

MAX_HEAD_BYTES = 65_536
"""Of headers and trailers come no more than this, and what one piece more holds."""
MAX_HEADERS = 100
MAX_PIPELINED = 16
"""Requests that wait behind the one that is answered."""
NOT_HTTP = (
    f"this is no request of HTTP/1.1 with at most {MAX_HEADERS} headers; gRPC has a door of its own (server.grpc_address), "
    "and TLS is spoken where server.tls_certificate is set"
)

_AHEAD_S = 0.05


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
        self._bare_bytes = 0
        self._phase = ""
        self._phase_end_s = self._look_s = math.inf
        self._looking: asyncio.TimerHandle | None = None
        self._unread_end: asyncio.TimerHandle | None = None
        self._next: tuple[RequestResponseCycle, Any] | None = None
        self._next_begin: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Tell requests who the client is, by the certificate that TLS has verified, and how to learn that it is gone."""
        super().connection_made(transport)
        self.flow = Flow(transport, self.pipeline)
        self._parting = Parting(transport, self._limits.body_s)
        self._context = contextvars.copy_context()
        self.app_state = {**self.app_state, IS_GONE: transport.is_closing}
        connection = transport.get_extra_info("ssl_object")
        shown = connection.getpeercert() if connection is not None else None
        if shown:
            self.app_state[CLIENT_NAMES] = [name for kind, name in shown.get("subjectAltName", ()) if kind in ("DNS", "URI")]
        self._mind_phase()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of everything."""
        super().connection_lost(exc)
        self._begin_next()  # to hear that it is over, and be counted
        for timer in (self._looking, self._unread_end):
            if timer is not None:
                timer.cancel()
        self._ended()

    def data_received(self, data: bytes) -> None:
        """Take bytes; what stands between two requests counts as headers of the next."""
        if self._parting.has_begun:
            self._parting.discard(data)
            return
        if self._parting.is_sending:
            self._bare_bytes += len(data)
        elif not self._is_under_way:
            self._in_head = True
        try:
            self._feed(data)
        except httptools.HttpParserError:
            self.logger.warning("%s", NOT_HTTP)
            self.send_400_response(NOT_HTTP)
            return
        if self._bare_bytes > MAX_HEAD_BYTES or len(self.headers or ()) > MAX_HEADERS:
            self.transport.close()
        self._look_at_next()
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
        self._in_head, self._bare_bytes, self._parting.is_sending = True, 0, True

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
            self._parting.is_sending = False
            super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """This is the next to be answered."""
        self._next = cycle, app

    def _look_at_next(self) -> None:
        """Begin the next request if its body is there, or is not to be waited for."""
        if self._next is None:
            return
        cycle, _ = self._next
        if not cycle.more_body or cycle.waiting_for_100_continue or len(cycle.body) > HIGH_WATER_LIMIT:
            self._begin_next()
        elif self._next_begin is None:
            self._next_begin = self.loop.call_later(_AHEAD_S, self._begin_next)

    def _begin_next(self) -> None:
        if self._next_begin is not None:
            self._next_begin.cancel()
            self._next_begin = None
        if self._next is None:
            return
        (cycle, app), self._next = self._next, None
        task = begin(cycle.run_asgi(app))
        if task is not None:
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    def on_response_complete(self) -> None:
        """An answer that needed no body, or not all of it, leaves a rest; and the next request may have begun."""
        if self._parting.has_begun:
            return
        # What uvicorn does here, but for its timer: `_mind_phase` has one for all of a connection.
        self.server_state.total_requests += 1
        if not self.transport.is_closing():
            if self.pipeline:
                self._start_asgi_task(*self.pipeline.pop())
            self.flow.resume_reading()  # after that: the rest of the last one may be on its way
        if self._next is not None:  # not within this one, which has a context and a span, and others have their turn
            self.loop.call_soon(self._look_at_next, context=self._context)
        if self.expect_100_continue and self._parting.is_sending and not self._is_under_way:
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
        elif self._parting.is_sending:
            phase, seconds = "rest of a body", limits.body_s
        else:
            phase, seconds = "idle", limits.idle_s
        if phase == self._phase:
            return
        self._phase = phase
        self._phase_end_s = self.loop.time() + seconds if seconds is not None else math.inf
        if self._phase_end_s < self._look_s:
            self._look_at(self._phase_end_s)

    def _look_at(self, when_s: float) -> None:
        """One timer, that is set again when it is due: a connection that is busy sets none with each request."""
        if self._looking is not None:
            self._looking.cancel()
        self._look_s = when_s
        self._looking = self.loop.call_at(when_s, self._look)

    def _look(self) -> None:
        self._look_s = math.inf
        if self._phase_end_s == math.inf:
            return
        if self.loop.time() < self._phase_end_s:
            self._look_at(self._phase_end_s)
            return
        if self.transport.get_write_buffer_size():  # to close it would be to wait until the client has read that
            self.transport.abort()
        else:
            self.transport.close()


class _Refused(Exception):
    """A request that nothing answers."""
