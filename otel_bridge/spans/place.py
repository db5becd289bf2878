"""
Where on the time axis each span lies.

Invariants
* A root, an instruction and a stretch of the runtime lie where their ticks say: one clock measured them all.
* A delegate event lies where its ticks say if that is inside its call; else it is moved to the start of its call, with its
  length cut to the call's, and is marked: a child never silently sticks out of its parent.
* No span is empty (Jaeger: "Negative duration"): a length of 0 is shown as 1 ns inside the parent, and marked.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from otel_bridge.model.events import EventBatch, EventKind
from otel_bridge.spans.tree import NOWHERE, Tree

_BACKWARDS = np.uint64(2**63)


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """
    Times of n rows and m roots, nanoseconds since 1970; every end is after its start.

    start, end              int64[n]
    root_start, root_end    int64[m]    0 for a block without events
    moved                   bool[n]     the span does not lie where its ticks say
    length                  int64[n]    true length, by the event's own clock; 0: shown as 1 ns
    """

    start: NDArray[np.int64]
    end: NDArray[np.int64]
    root_start: NDArray[np.int64]
    root_end: NDArray[np.int64]
    moved: NDArray[np.bool_]
    length: NDArray[np.int64]


def place(
    batch: EventBatch, tree: Tree, start: NDArray[np.int64], end: NDArray[np.int64], known: NDArray[np.bool_]
) -> Timeline:
    """Times as they are shown, from `start`, `end` and `known` as the clock gives them (clock/convert.py)."""
    start, end = start.copy(), end.copy()
    delegate = batch.kind == EventKind.DELEGATE
    true_length = np.maximum(end - start, 0)
    moved = (batch.duration >= _BACKWARDS) & (true_length == 0)
    root_start, root_end = _roots(batch, tree, start, end, delegate)

    outer = np.flatnonzero(~delegate & (tree.parent == NOWHERE))
    _widen(start, end, outer, root_start[tree.block[outer]], root_end[tree.block[outer]])
    scopes = np.flatnonzero(~delegate & (tree.parent != NOWHERE))
    _widen(start, end, scopes, start[tree.parent[scopes]], end[tree.parent[scopes]])

    rows = np.flatnonzero(delegate)
    parent = tree.parent[rows]
    low = np.where(parent == NOWHERE, root_start[tree.block[rows]], start[parent])
    high = np.where(parent == NOWHERE, root_end[tree.block[rows]], end[parent])
    outside = (start[rows] < low) | (end[rows] > high) | ~known[rows]
    length = np.minimum(end[rows] - start[rows], high - low)
    start[rows] = np.where(outside, low, start[rows])
    end[rows] = np.where(outside, low + length, end[rows])
    moved[rows] |= outside
    _widen(start, end, rows, low, high)

    has_root = tree.root != NOWHERE
    start[tree.root[has_root]], end[tree.root[has_root]] = root_start[has_root], root_end[has_root]
    return Timeline(start, end, root_start, root_end, moved, true_length)


def _roots(
    batch: EventBatch, tree: Tree, start: NDArray[np.int64], end: NDArray[np.int64], delegate: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    first, last = batch.bounds[:-1], batch.bounds[1:]
    root_start = np.zeros(len(batch.blocks), np.int64)
    root_end = np.zeros(len(batch.blocks), np.int64)
    has_root = tree.root != NOWHERE
    root_start[has_root], root_end[has_root] = start[tree.root[has_root]], end[tree.root[has_root]]
    for block in np.flatnonzero(~has_root & (last > first)):
        rows = slice(first[block], last[block])
        own = ~delegate[rows] if not delegate[rows].all() else delegate[rows]
        root_start[block], root_end[block] = start[rows][own].min(), end[rows][own].max()
    return root_start, np.where(last > first, np.maximum(root_end, root_start + 1), root_end)


def _widen(
    start: NDArray[np.int64], end: NDArray[np.int64], rows: NDArray[np.int64], low: NDArray[np.int64], high: NDArray[np.int64]
) -> None:
    """Give rows of length 0 the length 1, to the left where the right would stick out of the parent."""
    empty = end[rows] <= start[rows]
    if not empty.any():
        return
    rows, low, high = rows[empty], low[empty], high[empty]
    back = (start[rows] >= high) & (start[rows] > low)
    start[rows] -= back
    end[rows] = start[rows] + 1
