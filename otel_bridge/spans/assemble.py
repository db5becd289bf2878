"""
A scene as OTLP requests: the fast path.

Invariants
* A span is a row of bytes (spans/rows.py); protobuf objects are made once per distinct tail, and for an event that was moved.
* What is decoded from here equals what `spans/reference.py` builds, span by span.
* The order of spans depends on the scene alone, so equal scenes give equal bytes.
"""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from otel_bridge.spans import ids
from otel_bridge.spans.rows import Columns, Prototypes, Rows
from otel_bridge.spans.scene import Scene
from otel_bridge.spans.sealing import Payload, Sealing, Spans
from otel_bridge.spans.tails import root_tails_of, tails_of
from otel_bridge.spans.tree import NOWHERE


def assemble(scene: Scene, limit_bytes: int) -> list[Payload]:
    """
    The spans of a scene as requests of at most about `limit_bytes`; one span that is larger makes a larger request.

    Spans are grouped by resource, in the order of the batch; a stream that does not fit goes over several requests.
    """
    if not len(scene.batch):
        return []
    spans, stream = _spans(scene)
    sealing = Sealing(spans, limit_bytes)
    numbers: dict[bytes, int] = {}
    resource = np.array([numbers.setdefault(each.head, len(numbers)) for each in scene.resources], np.int64)[stream]
    edges = _stretches(resource)
    heads = list(numbers)
    for (first, last), number in zip(pairwise(edges.tolist()), resource[edges[:-1]].tolist(), strict=True):
        sealing.add(heads[number], first, last)
    return sealing.finish()


def _spans(scene: Scene) -> tuple[Spans, NDArray[np.int64]]:
    """The spans as rows, streams one after the other, and int64[n] the stream of each."""
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
    bounds = batch.bounds if order is None else _stretches(block[order])
    rows = Rows(Prototypes(tails, root_tails), tail, columns, bounds)
    entry, face_bytes = None, np.zeros(0, np.int64)
    if len(scene.metadata):
        entry, face_bytes = _entries(scene, root_row, len(is_root))
        if order is not None:
            entry, face_bytes = entry[order], face_bytes[order]
    events_before = np.zeros(len(events) + 1, np.int64)
    events.cumsum(out=events_before[1:])
    return Spans(rows, events_before, scene.metadata, entry, face_bytes), stream


def _stretches(number: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where runs of equal numbers begin, and the end of the last."""
    return np.concatenate(([0], np.flatnonzero(number[1:] != number[:-1]) + 1, [len(number)]))


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
