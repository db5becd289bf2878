"""
A scene as OTLP requests: the fast path.

Invariants
* A span is a row of bytes (spans/rows.py); protobuf objects are made once per distinct tail, and for an event that was moved.
* What is decoded from here equals what `spans/reference.py` builds, span by span.
* The order of spans depends on the scene alone, so equal scenes give equal bytes.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from otel_bridge.spans import encode, ids
from otel_bridge.spans.rows import Columns, Prototypes, write_rows
from otel_bridge.spans.scene import Scene
from otel_bridge.spans.tails import root_tails_of, tails_of
from otel_bridge.spans.tree import NOWHERE


@dataclass(frozen=True, slots=True)
class Payload:
    """A serialised `ExportTraceServiceRequest`: how many spans it holds, and how many of them are events of the batch."""

    data: bytes
    spans: int
    events: int


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """
    The spans of a scene as rows of bytes, streams one after the other.

    offsets   int64[n + 1]   where each row begins
    stream    int64[n]       stream of each row
    events    int64[n + 1]   events of the batch that the rows before show: themselves and counters they bear; a root of the
                             bridge's making shows none
    """

    data: memoryview
    offsets: NDArray[np.int64]
    stream: NDArray[np.int64]
    events: NDArray[np.int64]


def assemble(scene: Scene, limit_bytes: int) -> list[Payload]:
    """
    The spans of a scene as requests of at most about `limit_bytes`; one span that is larger makes a larger request.

    Spans are grouped by resource, in the order of the batch; a stream that does not fit goes over several requests.
    """
    if not len(scene.batch):
        return []
    rows = _rows(scene)
    sealing = _Sealing(rows, limit_bytes)
    numbers: dict[bytes, int] = {}
    resource = np.array([numbers.setdefault(each.head, len(numbers)) for each in scene.resources], np.int64)[rows.stream]
    edges = [0, *((resource[1:] != resource[:-1]).nonzero()[0] + 1).tolist(), len(resource)]
    heads = list(numbers)
    for (first, last), number in zip(pairwise(edges), resource[edges[:-1]].tolist(), strict=True):
        sealing.add(heads[number], first, last)
    return sealing.finish()


def _rows(scene: Scene) -> _Rows:
    batch, tree = scene.batch, scene.tree
    n = len(batch)
    roots = scene.has_root_span.nonzero()[0]
    root_row = tree.root[roots]
    made = roots[root_row == NOWHERE]
    root_row[root_row == NOWHERE] = n + np.arange(len(made))
    is_root = np.zeros(n + len(made), np.bool_)
    is_root[root_row] = True

    tails, tail = tails_of(scene)
    root_tails, root_tail = root_tails_of(scene, roots, root_row)
    block = tree.block
    if len(made):
        tail, block = np.concatenate((tail, made)), np.concatenate((block, made))
    tail[root_row] = root_tail + len(tails)
    stream = np.array([b.stream for b in batch.blocks], np.int64)[block]
    columns = _columns(scene, block, made, is_root)
    events = np.concatenate((1 + scene.counters.borne, np.zeros(len(made), np.int64)))
    order = _order(scene, stream, made)
    if order is not None:
        tail, stream, events, columns = tail[order], stream[order], events[order], columns.take(order)
    data, offsets, tail_at = write_rows(Prototypes(tails, root_tails), tail, columns)
    if len(scene.metadata):
        entry, face_bytes = _entries(scene, root_row, len(is_root))
        chosen = slice(None) if order is None else order
        scene.metadata.fill(data, tail_at + face_bytes[chosen], entry[chosen])
    events_before = np.zeros(len(events) + 1, np.int64)
    events.cumsum(out=events_before[1:])
    return _Rows(data.data, offsets, stream, events_before)


def _entries(scene: Scene, root_row: NDArray[np.int64], rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Of each row the entry of its metadata (-1: none, or a root, whose tail has its values), and the bytes of its face."""
    n = len(scene.batch)
    entry, face_bytes = np.full(rows, -1), np.zeros(rows, np.int64)
    entry[:n] = scene.decoded
    entry[root_row] = -1
    face_bytes[:n] = np.array([len(each.encoded) for each in scene.templates], np.int64)[scene.template]
    return entry, face_bytes


def _order(scene: Scene, stream: NDArray[np.int64], made: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """The rows that have spans, streams one after the other; None: all of them, as they are."""
    silent = scene.counters.silent
    if not len(made) and not silent.any():
        return None
    order = np.argsort(stream, kind="stable") if len(made) else np.arange(len(stream))
    shown: NDArray[np.int64] = order[~np.concatenate((silent, np.zeros(len(made), np.bool_)))[order]]
    return shown


def _columns(scene: Scene, block: NDArray[np.int64], made: NDArray[np.int64], is_root: NDArray[np.bool_]) -> Columns:
    tree, timeline, inferences = scene.tree, scene.timeline, scene.inferences
    at_root = np.full(len(made), ids.ROOT_PLACE, np.uint64)
    place = np.concatenate((tree.place, at_root))
    place[is_root] = ids.ROOT_PLACE
    derived = np.frombuffer(b"".join(scene.derived), "V16")
    halves = np.ascontiguousarray(derived.view(">u8").astype(np.uint64).reshape(-1, 2).T)
    keys = halves.take(block, 1).T  # ten times as fast as an index
    parent = ids.span_ids(np.concatenate((tree.parent_place, at_root)), keys)
    parent[is_root] = 0
    trace = derived[block]
    flags = np.full(len(block), inferences[0].flags, np.uint32)
    if any(each.trace_id or each.flags != each.root_flags for each in inferences):
        inference = scene.inference[block]
        of_app = np.array([int.from_bytes(each.parent, "big") for each in inferences], np.uint64)
        parent[is_root] = of_app[inference[is_root]]
        foreign = np.array([bool(each.trace_id) for each in inferences], np.bool_)[inference]
        traces = np.frombuffer(b"".join(each.trace_id or bytes(16) for each in inferences), "V16")
        trace[foreign] = traces[inference[foreign]]
        flags = np.array([(each.flags, each.root_flags) for each in inferences], np.uint32)[inference, is_root.astype(np.int64)]
    return Columns(
        trace=trace,
        span=ids.span_ids(place, keys),
        parent=parent,
        parented=parent != 0,
        start=np.concatenate((timeline.start, timeline.root_start[made])),
        end=np.concatenate((timeline.end, timeline.root_end[made])),
        flags=flags,
    )


class _Sealing:
    """Packs rows into requests, each with the resource they belong to; streams of one resource share its place."""

    def __init__(self, rows: _Rows, limit_bytes: int) -> None:
        self._rows = rows
        self._limit = limit_bytes
        self._sealed: list[Payload] = []
        self._resources: list[tuple[bytes, list[memoryview]]] = []
        self._bytes = self._spans = self._events = 0

    def add(self, resource_head: bytes, first: int, last: int) -> None:
        """Add the rows of one resource, over as many requests as they need."""
        offset_of, events_before = self._rows.offsets.item, self._rows.events.item
        while first < last:
            known = bool(self._resources) and self._resources[-1][0] == resource_head
            room = self._limit - self._bytes - (0 if known else len(resource_head))
            begin, end = offset_of(first), last
            if offset_of(last) - begin > room:
                end = int(np.searchsorted(self._rows.offsets, begin + room, "right")) - 1
                if end <= first and self._spans:
                    self._close_request()
                    continue
                end = min(max(end, first + 1), last)
            if not known:
                self._resources.append((resource_head, []))
                self._bytes += len(resource_head)
            spans = self._rows.data[begin : offset_of(end)]
            self._resources[-1][1].append(spans)
            self._bytes += len(spans)
            self._spans += end - first
            self._events += events_before(end) - events_before(first)
            first = end

    def finish(self) -> list[Payload]:
        """All requests."""
        self._close_request()
        return self._sealed

    def _close_request(self) -> None:
        if self._spans:
            pieces = [piece for head, spans in self._resources for piece in _sealed(head, spans)]
            self._sealed.append(Payload(b"".join(pieces), self._spans, self._events))
        self._resources = []
        self._bytes = self._spans = self._events = 0


def _sealed(head: bytes, spans: list[memoryview]) -> list[bytes | memoryview]:
    """One `ResourceSpans`, as pieces."""
    size = sum(map(len, spans))
    scope = encode.field(2, len(encode.SCOPE_HEAD) + size) + encode.SCOPE_HEAD
    return [encode.field(1, len(head) + len(scope) + size), head, scope, *spans]
