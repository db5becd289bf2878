"""
A stream of requests, as a load generator uses it: `ProfilingService.StreamEvents` shared by several senders.

Invariants
* Answers are told apart by their order, so requests are written in the order in which their senders begin to wait.
* Where a stream ends, the first without an answer has its status; the others come again. The next request opens another stream.
"""

import queue
import threading
from collections import deque
from concurrent.futures import Future
from typing import TypeAlias

import grpc

from otel_bridge.client.connection import CALL_TIMEOUT_S, UNREACHABLE, Connection
from otel_bridge.errors import BridgeRefused, BridgeUnavailable
from otel_bridge.load.doors import GrpcDoor
from otel_bridge.v1 import profiling_pb2 as pb

ENDED = "stream_ended"
"""Reason of a `BridgeUnavailable`: the stream ended before this request was answered."""

_STREAM = "/otel_bridge.v1.ProfilingService/StreamEvents"

_Answer: TypeAlias = "Future[pb.ExportEventsResponse]"


class EventStream:
    """A stream over a connection, opened by the first request and again after it ended. Several threads may use it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._opened: _Opened | None = None

    def send(self, body: bytes) -> pb.ExportEventsResponse:
        """One attempt. Raises `BridgeUnavailable`, `BridgeRefused`."""
        with self._lock:
            if self._opened is None or not self._opened.is_open:
                self._opened = _Opened(self._connection)
            opened = self._opened
            answer = opened.begin(body)
        try:
            return answer.result(CALL_TIMEOUT_S)
        except TimeoutError:
            opened.cancel()
            return answer.result()

    def close(self) -> None:
        """End the stream; what is under way is waited for."""
        with self._lock:
            opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()


class _Opened:
    """One stream, from its beginning to its end."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._bodies: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._waiting: deque[_Answer] = deque()
        self.is_open = True
        self._end: BridgeRefused | BridgeUnavailable = _ended(None)
        method = connection.channel.stream_stream(_STREAM, None, pb.ExportEventsResponse.FromString)
        self._call = method(iter(self._bodies.get, None), metadata=connection.metadata())
        self._hearing = threading.Thread(target=self._hear, name="load-answers", daemon=True)
        self._hearing.start()

    def begin(self, body: bytes) -> _Answer:
        """Write a request; what its answer will be."""
        answer: _Answer = Future()
        with self._lock:
            if self.is_open:
                self._waiting.append(answer)
                self._bodies.put(body)
            else:
                answer.set_exception(self._end)
        return answer

    def cancel(self) -> None:
        """End it at once."""
        self._call.cancel()  # type: ignore[no-untyped-call]  # the stubs leave it open

    def close(self) -> None:
        """Write no more, and wait for the end."""
        self._bodies.put(None)
        self._hearing.join()

    def _hear(self) -> None:
        failure: BridgeRefused | BridgeUnavailable | None = None
        try:
            for answer in self._call:
                self._waiting.popleft().set_result(answer)
        except grpc.RpcError as error:
            failure = self._connection.failure(error)
        first, rest = failure or _ended(None), _ended(failure)
        with self._lock:
            self.is_open = False
            self._end = rest if self._waiting else first  # where nothing was sent yet, what is sent next is what was refused
        self._bodies.put(None)  # gRPC waits for it in a thread
        for place, unanswered in enumerate(self._waiting):
            unanswered.set_exception(first if not place else rest)


def _ended(failure: BridgeRefused | BridgeUnavailable | None) -> BridgeUnavailable:
    """What requests behind the one that was refused are told."""
    if isinstance(failure, BridgeUnavailable):
        if failure.reason == UNREACHABLE:
            return failure
        return BridgeUnavailable("the stream ended before the answer", retry_after_s=failure.retry_after_s, reason=ENDED)
    return BridgeUnavailable("the stream ended before the answer", reason=ENDED)


class StreamDoor(GrpcDoor):
    """Requests over a stream that others may use at the same time."""

    def __init__(self, connection: Connection, stream: EventStream) -> None:
        super().__init__(connection)
        self._stream = stream

    def send(self, body: bytes) -> pb.ExportEventsResponse:
        """Hand in a serialised `ExportEventsRequest`."""
        return self._stream.send(body)

    def close(self) -> None:
        """End the stream."""
        self._stream.close()
