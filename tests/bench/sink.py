"""
A back end that costs little, in a process of its own (sink_app.py), and how a benchmark talks to it.

It counts nobody's word but its own: a span is counted when a request that holds it has arrived.
"""

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from programs import stop
from sink_app import KEPT, MOST_BYTES
from support.processes import accepts, free_ports

_APP = Path(__file__).with_name("sink_app.py")
_PATIENCE_S = 120.0
_OPTIONS = [("grpc.max_receive_message_length", MOST_BYTES), ("grpc.max_send_message_length", MOST_BYTES)]


@dataclass(frozen=True)
class Count:
    """What has arrived since the start; bytes are those before compression."""

    spans: int
    bytes: int
    requests: int


class Sink:
    """The back end, in a process that lasts as long as the `with` block. `address` is for gRPC, `http_address` for HTTP."""

    def __init__(self) -> None:
        ports = free_ports(2)
        self.address, self.http_address = (f"127.0.0.1:{port}" for port in ports)
        self._ports = ports
        self._process = subprocess.Popen([sys.executable, _APP, *map(str, ports)])
        self._channel = grpc.insecure_channel(self.address, options=_OPTIONS)

    def __enter__(self) -> Self:
        deadline = time.monotonic() + _PATIENCE_S
        while not all(map(accepts, self._ports)):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.__exit__()
                raise SystemExit("the back end of this benchmark does not listen")
            time.sleep(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()
        stop(self._process)

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
            at, size = KEPT.unpack_from(data, place)
            place += KEPT.size + size
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
