"""
A back end that costs little: it counts spans by walking over the bytes, in a process of its own.

    sink.py PORT        serve; `Sink` is how a benchmark talks to it

It counts nobody's word but its own: a span is counted when a request that holds it has arrived.
"""

import json
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from dataclasses import dataclass
from typing import Any, Self

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

MOST_BYTES = 1 << 30
_KEPT = struct.Struct("<QI")
_PATIENCE_S = 120.0
_OPTIONS = [("grpc.max_receive_message_length", MOST_BYTES), ("grpc.max_send_message_length", MOST_BYTES)]


def fields(data: bytes, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    """(number, begin, end) of each field of a message all of whose fields are length-delimited."""
    while begin < end:
        number = data[begin] >> 3
        size, shift, begin = 0, 0, begin + 1
        while True:
            byte = data[begin]
            size |= (byte & 127) << shift
            shift, begin = shift + 7, begin + 1
            if byte < 128:
                break
        yield number, begin, begin + size
        begin += size


def count_spans(data: bytes) -> int:
    """Spans of an `ExportTraceServiceRequest`: resource_spans = 1, in it scope_spans = 2, in it spans = 2."""
    return sum(
        number == 2
        for top, *resource in fields(data, 0, len(data))
        if top == 1
        for middle, *scope in fields(data, *resource)
        if middle == 2
        for number, _, _ in fields(data, *scope)
    )


class _Handler(grpc.GenericRpcHandler):
    """Takes exports, and does what `Sink` asks by the last part of a method's name."""

    def __init__(self) -> None:
        self.spans = self.bytes = self.requests = 0
        self.keeping = self.holding = False
        self.kept: list[tuple[int, bytes]] = []
        self.last = b""
        self.lock = threading.Lock()

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        """The function for a method."""
        return grpc.unary_unary_rpc_method_handler(getattr(self, details.method.rpartition("/")[2].lower()))

    def export(self, body: bytes, context: grpc.ServicerContext) -> bytes:
        """A request of OTLP."""
        if self.holding:
            context.abort(grpc.StatusCode.UNAVAILABLE, "the back end of this benchmark is away")
        spans = count_spans(body)
        with self.lock:
            self.last = body
            if self.keeping:
                self.kept.append((time.time_ns(), body))
            self.requests += 1
            self.bytes += len(body)
            self.spans += spans
        return b""

    def count(self, _body: bytes, _context: grpc.ServicerContext) -> bytes:
        return json.dumps({"spans": self.spans, "bytes": self.bytes, "requests": self.requests}).encode()

    def take(self, _body: bytes, _context: grpc.ServicerContext) -> bytes:
        return self.last

    def keep(self, body: bytes, _context: grpc.ServicerContext) -> bytes:
        """Keep what comes, or say what was kept and keep no more."""
        kept, self.kept, self.keeping = self.kept, [], body == b"1"
        return b"".join(_KEPT.pack(at, len(each)) + each for at, each in kept)

    def hold(self, body: bytes, _context: grpc.ServicerContext) -> bytes:
        self.holding = body == b"1"
        return b""


@dataclass(frozen=True)
class Count:
    """What has arrived since the start; bytes are those before compression."""

    spans: int
    bytes: int
    requests: int


class Sink:
    """The back end, in a process that lasts as long as the `with` block."""

    def __init__(self, port: int) -> None:
        self.address = f"127.0.0.1:{port}"
        self._process = subprocess.Popen([sys.executable, __file__, str(port)])
        self._channel = grpc.insecure_channel(self.address, options=_OPTIONS)

    def __enter__(self) -> Self:
        grpc.channel_ready_future(self._channel).result(timeout=_PATIENCE_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()
        self._process.terminate()
        self._process.wait()

    def _ask(self, method: str, body: bytes = b"") -> bytes:
        return self._channel.unary_unary(f"/bench/{method}")(body, timeout=_PATIENCE_S)

    def count(self) -> Count:
        """What has arrived."""
        return Count(**json.loads(self._ask("Count")))

    def wait_for(self, spans: int, process: "subprocess.Popen[bytes]") -> Count:
        """Wait until so many spans have arrived in all; ends the benchmark where they do not, or their sender has ended."""
        deadline = time.monotonic() + _PATIENCE_S
        while (count := self.count()).spans < spans:
            if time.monotonic() > deadline or process.poll() is not None:
                raise SystemExit(f"{process.args}: {spans} spans should be there, and {count.spans} are")
            time.sleep(0.01)
        return count

    def last(self) -> bytes:
        """The request that arrived last."""
        return self._ask("Take")

    def keep(self) -> None:
        """Keep what arrives from now on."""
        self._ask("Keep", b"1")

    def kept(self) -> list[tuple[int, bytes]]:
        """What has arrived since `keep`, each with its time in nanoseconds since 1970; no more is kept."""
        data = self._ask("Keep", b"0")
        found, place = [], 0
        while place < len(data):
            at, size = _KEPT.unpack_from(data, place)
            place += _KEPT.size + size
            found.append((at, data[place - size : place]))
        return found

    def hold(self, held: bool) -> None:  # noqa: FBT001 - a switch
        """Whether the back end is away: every request is answered UNAVAILABLE."""
        self._ask("Hold", b"1" if held else b"0")


def spans_of(data: bytes) -> dict[tuple[bytes, bytes], bytes]:
    """(trace id, span id) -> the span, serialised."""
    found = {}
    for resource in ExportTraceServiceRequest.FromString(data).resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                if not span.status.ByteSize():
                    span.ClearField("status")  # Go writes an empty one
                found[span.trace_id, span.span_id] = span.SerializeToString(deterministic=True)
    return found


def main() -> None:
    """Serve until somebody ends it."""
    server = grpc.server(futures.ThreadPoolExecutor(4), options=_OPTIONS)
    server.add_generic_rpc_handlers((_Handler(),))
    server.add_insecure_port(f"127.0.0.1:{sys.argv[1]}")
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    main()
