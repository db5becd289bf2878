"""
The devices that send: request bodies without end, each of which is new to the bridge.

Invariants
* No two bodies are the same request: stream ids are drawn at random once a run, sequences count up in each stream, and the
  anchor of the clock is the moment at which a body is made, so that its last event has just ended.
* A body costs microseconds: only the stream is serialised anew. Fields of a message may stand in any order and a repeated
  field may come in pieces (protobuf encoding specification, "Last One Wins"), so it is put in front of bytes that stay.
* Metadata differ in every event of every request.
"""

import itertools
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from otel_bridge import __version__
from otel_bridge.load.events import Pattern, Program
from otel_bridge.v1 import profiling_pb2 as pb

SERVICE = "otel-bridge-loadgen"
"""`service.name` of what is sent."""

DEVICE = "device.model.identifier"
"""The resource attribute in which devices differ: one that a bridge keeps by default."""

_STREAM, _METADATA = (
    bytes([pb.ExportEventsRequest.DESCRIPTOR.fields_by_name[name].number << 3 | 2]) for name in ("stream", "metadata")
)


@dataclass(frozen=True, slots=True)
class Body:
    """A serialised `ExportEventsRequest`, and how many events it holds."""

    data: bytes
    events: int


class Fleet:
    """
    Bodies, device after device; may be asked by several threads.

    programs        what runs; device number i runs number i modulo their count
    patterns        for each program, the requests that it sends in turn
    devices         streams, each with a sequence of its own
    metadata_bytes  of every delegate event; 0: none
    """

    def __init__(
        self,
        programs: Sequence[tuple[Program, Sequence[Pattern]]],
        *,
        devices: int = 1,
        metadata_bytes: int = 0,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._now_ns = now_ns
        self._streams = [_stream(programs[device % len(programs)][0], device) for device in range(devices)]
        self._tails = [itertools.cycle([_Tail(pattern, metadata_bytes) for pattern in each]) for _, each in programs]
        self._turn = itertools.count()
        self._lock = threading.Lock()

    def body(self) -> Body:
        """The next request."""
        with self._lock:
            turn = next(self._turn)
            device = turn % len(self._streams)
            sequence = turn // len(self._streams)
            tail = next(self._tails[device % len(self._tails)])
            stream = self._streams[device]
            stream.sequence = sequence
            stream.clocks[0].anchor_ticks = tail.ticks
            stream.clocks[0].anchor_unix_ns = self._now_ns()
            head = stream.SerializeToString()
        return Body(b"".join((_STREAM, _varint(len(head)), head, *tail.pieces())), tail.events)


class _Tail:
    """What stays of a request: all but its stream, and but for its metadata."""

    def __init__(self, pattern: Pattern, metadata_bytes: int) -> None:
        self.events = pattern.events
        self.ticks = pattern.ticks
        request = pb.ExportEventsRequest()
        request.CopyFrom(pattern.request)
        self._metadata: tuple[bytes, int, int] | None = None
        if metadata_bytes:
            column = np.zeros(pattern.events, np.uint32)
            column[list(pattern.delegate_rows)] = np.arange(1, len(pattern.delegate_rows) + 1)
            request.events.metadata.extend(column.tolist())
            self._metadata = (_METADATA + _varint(metadata_bytes), metadata_bytes, len(pattern.delegate_rows))
        self._kept = request.SerializeToString()

    def pieces(self) -> tuple[bytes, ...]:
        """The fields; metadata are drawn anew."""
        if self._metadata is None:
            return (self._kept,)
        head, length, count = self._metadata
        fields = np.empty((count, len(head) + length), np.uint8)
        fields[:, : len(head)] = np.frombuffer(head, np.uint8)
        fields[:, len(head) :] = np.frombuffer(os.urandom(count * length), np.uint8).reshape(count, length)
        return (fields.tobytes(), self._kept)


def _stream(program: Program, device: int) -> pb.Stream:
    stream = pb.Stream(stream_id=os.urandom(16), runtime_version=b"loadgen")
    stream.clocks.add(name=b"host")
    stream.resource.add(key=b"service.name").value.text = SERVICE.encode()
    stream.resource.add(key=b"service.version").value.text = __version__.encode()
    stream.resource.add(key=DEVICE.encode()).value.text = b"loadgen-%d" % device
    if program.build is not None:
        stream.model.build_id = program.build.encode()
    return stream


def _varint(number: int) -> bytes:
    written = bytearray()
    while number > 127:  # noqa: PLR2004 - seven bits a byte
        written.append(number & 127 | 128)
        number >>= 7
    written.append(number)
    return bytes(written)
