"""
A scene as OTLP requests: the fast path.

Invariants
* No protobuf object is made for an event: a span is a row of bytes (spans/rows.py).
* What is decoded from here equals what `spans/reference.py` builds, span by span.
* The order of spans depends on the scene alone, so equal scenes give equal bytes.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from otel_bridge.spans import encode, ids
from otel_bridge.spans.rows import columns_of, prototype, write_rows
from otel_bridge.spans.scene import Scene
from otel_bridge.spans.tails import root_tail, tails_of
from otel_bridge.spans.tree import NOWHERE


@dataclass(frozen=True, slots=True)
class Payload:
    """A serialised `ExportTraceServiceRequest`: how many spans it holds, and how many of them are events of the batch."""

    data: bytes
    spans: int
    events: int


@dataclass(frozen=True, slots=True, eq=False)
class _Piece:
    """Spans of one stream and one length, end to end; `is_event` bool[spans] tells those that are rows of the batch."""

    data: memoryview
    row_bytes: int
    is_event: NDArray[np.bool_]


def assemble(scene: Scene, limit_bytes: int) -> list[Payload]:
    """
    The spans of a scene as requests of at most about `limit_bytes`; one span that is larger makes a larger request.

    Spans are grouped by resource; a stream that does not fit goes over several requests.
    """
    sealing = _Sealing(limit_bytes)
    for stream, pieces in sorted(_pieces(scene).items()):
        sealing.add(encode.resource_head(scene.resources[stream]), pieces)
    return sealing.finish()


def _pieces(scene: Scene) -> dict[int, list[_Piece]]:
    """The spans of each stream."""
    batch, tree, timeline = scene.batch, scene.tree, scene.timeline
    n = len(batch)
    emitted = np.flatnonzero(scene.has_root_span)
    root_row = tree.root[emitted]
    made = emitted[root_row == NOWHERE]
    root_row[root_row == NOWHERE] = n + np.arange(len(made))
    if not n + len(made):
        return {}

    is_root = np.zeros(n + len(made), np.bool_)
    is_root[root_row] = True
    tails, tail = tails_of(scene)
    tail = np.concatenate((tail, np.zeros(len(made), np.int64)))
    tail[root_row] = np.arange(len(tails), len(tails) + len(emitted))
    tails += [root_tail(scene, b, r if r < n else None) for b, r in zip(emitted.tolist(), root_row.tolist(), strict=True)]

    block = np.concatenate((tree.block, made))
    at_root = np.full(len(made), ids.ROOT_PLACE, np.uint64)
    place = np.concatenate((tree.place, at_root))
    place[is_root] = ids.ROOT_PLACE
    columns = columns_of(
        scene.inferences,
        block,
        (place, np.concatenate((tree.parent_place, at_root))),
        (
            np.concatenate((timeline.start, timeline.root_start[made])),
            np.concatenate((timeline.end, timeline.root_end[made])),
        ),
        is_root,
    )
    in_app_trace = np.array([bool(inference.parent) for inference in scene.inferences], np.bool_)
    parented = ~is_root | in_app_trace[block]
    prototypes = [prototype(tail, parented=parented) for tail in tails for parented in (False, True)]
    which = tail * 2 + parented
    length = np.array([len(p) for p in prototypes], np.int64)[which]
    stream = np.array([b.stream for b in batch.blocks], np.int64)[block]

    order = np.lexsort((stream, length))  # stable, so rows of one kind keep the order of the batch
    pieces: dict[int, list[_Piece]] = {}
    for low, high in pairwise(_edges(length[order])):
        rows = order[low:high]
        used, local = np.unique(which[rows], return_inverse=True)
        written = write_rows([prototypes[number] for number in used], local, columns, rows)
        size = int(length[rows[0]])
        for first, last in pairwise(_edges(stream[rows])):
            piece = _Piece(written[first * size : last * size], size, rows[first:last] < n)
            pieces.setdefault(int(stream[rows[first]]), []).append(piece)
    return pieces


def _edges(ordered: NDArray[np.int64]) -> list[int]:
    """Where runs of equal values begin, and the end."""
    return [*np.flatnonzero(np.diff(ordered, prepend=-1)).tolist(), len(ordered)]


class _Sealing:
    """Packs spans into requests, each with the resource they belong to."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._sealed: list[Payload] = []
        self._resources: list[bytes | memoryview] = []
        self._bytes = self._spans = self._events = 0

    def add(self, resource_head: bytes, pieces: list[_Piece]) -> None:
        """Add the spans of one resource, over as many requests as they need."""
        spans: list[memoryview] = []
        for piece in pieces:
            done, count = 0, len(piece.is_event)
            while done < count:
                room = (self._limit - self._bytes) // piece.row_bytes
                if room <= 0 and self._spans:
                    self._close_resource(resource_head, spans)
                    self._close_request()
                    spans = []
                    continue
                taken = min(max(room, 1), count - done)
                spans.append(piece.data[done * piece.row_bytes : (done + taken) * piece.row_bytes])
                self._bytes += taken * piece.row_bytes
                self._spans += taken
                self._events += int(piece.is_event[done : done + taken].sum())
                done += taken
        self._close_resource(resource_head, spans)

    def finish(self) -> list[Payload]:
        """All requests."""
        self._close_request()
        return self._sealed

    def _close_resource(self, head: bytes, spans: list[memoryview]) -> None:
        if not spans:
            return
        in_scope = len(encode.SCOPE_HEAD) + sum(len(piece) for piece in spans)
        scope_field = encode.field(2, in_scope)
        self._resources += [encode.field(1, len(head) + len(scope_field) + in_scope), head, scope_field, encode.SCOPE_HEAD]
        self._resources += spans

    def _close_request(self) -> None:
        if self._spans:
            self._sealed.append(Payload(b"".join(self._resources), self._spans, self._events))
        self._resources = []
        self._bytes = self._spans = self._events = 0
