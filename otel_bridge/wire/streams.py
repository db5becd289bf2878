"""
Streams of requests over gRPC, `ProfilingService.StreamEvents`: what a call costs is paid once for many requests.

Invariants
* A request of a stream passes what a call of its own passes: the gate, which may have changed its mind, the turnstile, the
  duplicates, the deadline. It is counted as one.
* Answers come in the order of the requests. The first that is refused ends the stream with its status, after all before it are
  answered; what has no answer may have been kept, and is a duplicate when it comes again.
* `MAX_AT_ONCE` requests of a stream are in work at most; until there is room the next is not read.
* A stream that waits for a request takes no place in the turnstile, which thousands of silent devices would fill. So a request
  counts once it is there, and until then short memory ends the stream (call.py).
* No stream is silent for ever. One that is ends as if its sender had ended it, and so does each when the bridge stops. Where
  nobody reads the answers it lasts as long as its connection may, and holds nothing but answers.
"""

import asyncio
import contextlib
import time
from functools import partial
from typing import TypeAlias

import grpc

from otel_bridge.errors import BridgeError, Overloaded
from otel_bridge.telemetry.traces import SILENT, TRACEPARENT, Traces
from otel_bridge.wire.call import Context, WayIn, abort, entry, is_given_up
from otel_bridge.wire.connections import ConnectionLimits
from otel_bridge.wire.eager import begin
from otel_bridge.wire.exchange import GIVEN_UP
from otel_bridge.wire.intake import SENT_KEY, Disconnected, Intake, said_later
from otel_bridge.wire.sender import renew_sender, sender
from otel_bridge.wire.status import code_of
from otel_bridge.wire.traced import note_code
from otel_bridge.wire.turnstile import RETRY_AFTER_S, Visit

MAX_AT_ONCE = 16
"""Requests of one stream that are in work at a time."""

_LATE = grpc.StatusCode.DEADLINE_EXCEEDED
_METHOD = "otel_bridge.v1.ProfilingService/StreamEvents"
_TOLD = {"rpc.system.name": "grpc", "rpc.method": _METHOD}

_Work: TypeAlias = "bytes | asyncio.Future[bytes]"
"""An answer, or what becomes one, or ends the stream."""


class Streams:
    """
    All streams of a door.

    limits   as many streams are open as connections may be, and one is silent for as long
    traces   spans of the bridge's own: one for each request, since a stream may be open for an hour
    """

    def __init__(self, intake: Intake, way_in: WayIn, limits: ConnectionLimits, traces: Traces = SILENT) -> None:
        self.intake = intake
        self.way_in = way_in
        self.silence_s = limits.idle_s
        self.traces = traces
        self._most = limits.connections
        self._open: set[_Stream] = set()
        self._has_ended = False

    def __len__(self) -> int:
        return len(self._open)

    async def answer(self, _messages: object, context: Context) -> None:
        """Answer the requests of a stream; a handler of grpc.aio."""
        if len(self._open) >= self._most:
            self.way_in.count(Overloaded.reason)
            said = f"{self._most} streams are open (ingress.max_connections); try again later, or send by calls"
            await abort(context, Overloaded(said, retry_after_s=RETRY_AFTER_S))
        stream = _Stream(self, context)
        self._open.add(stream)
        if self._has_ended:
            stream.hang_up()
        try:
            await stream.run()
        finally:
            self._open.discard(stream)

    def end(self) -> None:
        """Take no more requests of streams: each ends with its last answer, and one that had not begun yet at once."""
        self._has_ended = True
        for stream in self._open:
            stream.hang_up()


class _Stream:
    """
    One stream. Two tasks: one reads requests, the other waits for their work and writes the answers.

    An answer that is there at once, with none before it, is written by the first: there is nothing to wait for.
    """

    def __init__(self, streams: Streams, context: Context) -> None:
        self._streams = streams
        self._context = context
        self._is_given_up = partial(is_given_up, context)
        self._sent = entry(context, SENT_KEY)
        self._parent = entry(context, TRACEPARENT)
        self._peer = str(context.peer())
        self._opened_ns = time.monotonic_ns()
        # Beside those that it holds one is waited for by the writer, and one by the reader for its place.
        self._begun: asyncio.Queue[_Work | None] = asyncio.Queue(MAX_AT_ONCE - 2)
        self._unanswered = 0
        self._loop = asyncio.get_running_loop()
        self._moved_s = self._loop.time()
        self._is_listening = self._is_over = False

    async def run(self) -> None:
        """Answer until the stream is over."""
        self._reading = asyncio.ensure_future(self._read())
        self._watching = self._loop.call_later(self._streams.silence_s, self._watch)
        try:
            await self._write()
        except grpc.aio.AbortError:  # ended while a request was on its way, and counted there
            raise
        except Exception as error:  # noqa: BLE001 - each error has its row in the table
            with contextlib.suppress(grpc.aio.UsageError):  # it was ended for short memory while this was in work (call.py)
                await abort(self._context, error)
        finally:
            self._watching.cancel()
            self._reading.cancel()
            while not self._begun.empty():
                if (left := self._begun.get_nowait()) is not None:
                    _drop(left)

    async def _write(self) -> None:
        while (work := await self._begun.get()) is not None:
            await self._context.write(work if isinstance(work, bytes) else await _answer_of(work))
            self._unanswered -= 1

    def hang_up(self) -> None:
        """Read no more."""
        self._is_over = True
        if self._is_listening:
            self._reading.cancel()

    def _watch(self) -> None:
        left_s = self._moved_s + self._streams.silence_s - self._loop.time()
        if left_s <= 0 and self._is_listening:
            self.hang_up()
        else:
            self._watching = self._loop.call_later(left_s if left_s > 0 else self._streams.silence_s, self._watch)

    async def _read(self) -> None:
        try:
            while not self._is_over and (work := await self._take()) is not None:
                if isinstance(work, bytes) and not self._unanswered:
                    await self._context.write(work)  # the writer has nothing to write before it
                else:
                    self._unanswered += 1
                    await self._queue(work)
            await self._begun.put(None)
        except Exception as error:  # noqa: BLE001 - it is told in its turn
            end: asyncio.Future[bytes] = self._loop.create_future()
            end.set_exception(error)
            await self._queue(end)

    async def _take(self) -> "_Work | None":
        """The next request, begun; None: there is none. Its body is not kept here, where a silent stream would hold it."""
        way_in = self._streams.way_in
        try:
            body = await self._next()
            if body is None:
                return None
            renew_sender(self._peer)
            visit = await way_in.turnstile.enter()
            try:
                visit.resize(len(body))
            except Overloaded:
                visit.leave()
                raise
        except grpc.aio.AbortError:  # such was counted
            raise
        except Exception as error:
            way_in.count(_reason_of(error))
            raise
        return self._begin(body, visit)

    async def _queue(self, work: _Work) -> None:
        try:
            await self._begun.put(work)
        except asyncio.CancelledError:
            _drop(work)
            raise

    async def _next(self) -> bytes | None:
        """The next request; None: there is none."""
        self._is_listening = True
        self._moved_s = self._loop.time()  # it was not silent while there was no room for its next
        try:
            return await self._streams.way_in.arrivals.next(self._context)
        except asyncio.CancelledError:
            if self._is_over:
                return None
            raise
        finally:
            self._is_listening = False
            self._moved_s = self._loop.time()

    def _begin(self, body: bytes, visit: Visit) -> _Work:
        try:
            work = begin(self._answer(body))
        except BaseException:
            visit.leave()
            raise
        if isinstance(work, bytes):
            visit.leave()
        else:
            work.add_done_callback(lambda _: visit.leave())  # not in the task: one that is cancelled early has never run
        return work

    async def _answer(self, body: bytes) -> bytes:
        streams = self._streams
        sent = said_later(self._sent, time.monotonic_ns() - self._opened_ns)
        try:
            with streams.traces.request(_METHOD, self._parent, _TOLD) as span:
                try:
                    answer = await streams.intake.export_events(body, sent, sender().tenant, self._is_given_up)
                except asyncio.CancelledError:
                    note_code(span, grpc.StatusCode.CANCELLED)
                    raise
                except Exception as error:
                    note_code(span, _LATE if isinstance(error, Disconnected) else code_of(error).grpc)
                    raise
                note_code(span, grpc.StatusCode.OK)
        except (asyncio.CancelledError, Disconnected):
            streams.way_in.count(GIVEN_UP)
            raise
        except Exception as error:
            streams.way_in.count(_reason_of(error))
            raise
        streams.way_in.count("ok")
        return answer


async def _answer_of(work: "asyncio.Future[bytes]") -> bytes:
    try:
        return await asyncio.shield(work)  # else a stream whose client is gone would last until its request is kept
    except asyncio.CancelledError:
        _drop(work)
        raise


def _drop(work: _Work) -> None:
    """Nobody waits for its answer: what is being kept goes on (repeats.py), all else ends."""
    if isinstance(work, bytes):
        return
    work.cancel()
    work.add_done_callback(_hear)


def _hear(work: "asyncio.Future[bytes]") -> None:
    """What it raised was counted; asyncio would say that nobody has asked."""
    with contextlib.suppress(asyncio.CancelledError):
        work.exception()


def _reason_of(error: Exception) -> str:
    return error.reason if isinstance(error, BridgeError) else "internal"
