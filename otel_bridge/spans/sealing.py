"""
Rows as requests: which rows go into which, and their bytes.

Invariants
* A request is joined once from pieces that many requests share, and what is each row's own is written into it: nothing is
  copied a second time.
* Rows keep their order. A request holds rows that stand together.
"""

from dataclasses import dataclass
from io import BytesIO
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from otel_bridge.spans import encode
from otel_bridge.spans.rows import Rows
from otel_bridge.spans.scene import Metadata


@dataclass(frozen=True, slots=True)
class Payload:
    """A serialised `ExportTraceServiceRequest`: how many spans it holds, and how many of them are events of the batch."""

    data: bytes
    spans: int
    events: int


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """
    n spans as rows.

    events    int64[n + 1]   events of the batch that the rows before show: themselves and counters they bear; a root of the
                             bridge's making shows none
    entry     int64[n]       entry of a row's metadata, -1: none; None: no row has one
    face_bytes               int64[n]   of what stands in a row's tail before the form of its metadata
    """

    rows: Rows
    events: NDArray[np.int64]
    metadata: Metadata
    entry: NDArray[np.int64] | None
    face_bytes: NDArray[np.int64]

    def write(self, data: NDArray[np.uint8], first: int, last: int) -> None:
        """Write what is the own of the rows from `first` to `last`; see `Rows.write`."""
        self.rows.write(data, first, last)
        if self.entry is not None:
            form = self.rows.tails(first, last) + self.face_bytes[first:last]
            self.metadata.fill(data, form, self.entry[first:last])


class _Range(NamedTuple):
    """Rows from `first` to `last`: where they begin by `Rows.offsets`, and their bytes."""

    first: int
    last: int
    begin: int
    size: int


class _Request(NamedTuple):
    """A request that is not joined yet, and the rows in it."""

    pieces: list[bytes | memoryview]
    first: int
    last: int
    events: int


class Sealing:
    """Packs rows into requests, each with the resource they belong to; what follows under one resource shares its place."""

    def __init__(self, spans: Spans, limit_bytes: int) -> None:
        self._spans = spans
        self._limit = limit_bytes
        self._closed: list[_Request] = []
        self._counts: list[int] = []
        self._shifts: list[int] = []
        self._resources: list[tuple[bytes, list[_Range]]] = []
        self._bytes = self._count = self._events = 0

    def add(self, resource_head: bytes, first: int, last: int) -> None:
        """Add the rows of one resource, which follow on those before, over as many requests as they need."""
        offsets = self._spans.rows.offsets
        offset_of, events_before = offsets.item, self._spans.events.item
        while first < last:
            known = bool(self._resources) and self._resources[-1][0] == resource_head
            room = self._limit - self._bytes - (0 if known else len(resource_head))
            begin, end, size = offset_of(first), last, offset_of(last) - offset_of(first)
            if size > room:
                end = int(np.searchsorted(offsets, begin + room, "right")) - 1
                if end <= first and self._count:
                    self._close_request()
                    continue
                end = min(max(end, first + 1), last)
                size = offset_of(end) - begin
            if not known:
                self._resources.append((resource_head, []))
                self._bytes += len(resource_head)
            self._resources[-1][1].append(_Range(first, end, begin, size))
            self._bytes += size
            self._count += end - first
            self._events += events_before(end) - events_before(first)
            first = end

    def finish(self) -> list[Payload]:
        """All requests."""
        self._close_request()
        self._spans.rows.move(np.repeat(self._shifts, self._counts))  # once for all: a request pays for what it has to write
        return list(map(self._joined, self._closed))

    def _close_request(self) -> None:
        if not self._count:
            return
        pieces: list[bytes | memoryview] = []
        at = 0
        for head, ranges in self._resources:
            front = _front(head, sum([each.size for each in ranges]))
            pieces.append(front)
            at += len(front)
            for first, last, begin, size in ranges:
                pieces += self._spans.rows.pieces(first, last)
                self._counts.append(last - first)
                self._shifts.append(at - begin)
                at += size
        first = self._resources[0][1][0].first
        self._closed.append(_Request(pieces, first, first + self._count, self._events))
        self._resources = []
        self._bytes = self._count = self._events = 0

    def _joined(self, request: _Request) -> Payload:
        # Bytes that nothing else refers to can be written to there, and are given up without a copy.
        whole = BytesIO(b"".join(request.pieces))
        with whole.getbuffer() as view:
            self._spans.write(np.frombuffer(view, np.uint8), request.first, request.last)
        return Payload(whole.getvalue(), request.last - request.first, request.events)


def _front(head: bytes, size: int) -> bytes:
    """What stands in a `ResourceSpans` before its spans, which take `size` bytes."""
    scope = encode.field(2, len(encode.SCOPE_HEAD) + size) + encode.SCOPE_HEAD
    return encode.field(1, len(head) + len(scope) + size) + head + scope
