"""
Where on the time axis each span lies.

Invariants
* A root, an instruction and a stretch of the runtime lie where their ticks say: one clock measured them all.
* A delegate event lies inside its call, and where its ticks say if that can be. Whatever is done to it, within one call and
  clock the order of starts stays, and so does what contained what; a length changes only where it is cut at the call's edge
  or was never known. What does not lie where its ticks say is marked.
* No span is empty (Jaeger: "Negative duration"): a length of 0 is shown as 1 ns inside the parent, and marked.

How delegate events come inside their call, by call, clock and quality:

* Host's clock: if one of them begins inside the call, their ticks are of the call's axis, and what sticks out is cut there.
  If none does, they are moved together: the first begins with the call.
* Another clock with an anchor: if they do not fit as they are, they are moved together, no further than needed.
  Without an anchor: they are moved together, and the first begins with the call.
* `duration_only`: end to end from the start of the call, in the order of the log; what has no known length takes no room.
* A clock of which not even a tick's length is known, or a backend of which nothing is (`unknown`) and whose event is not
  inside: only the order of starts and ends is shown, a nanosecond a step, from the start of the call.
Moved together, distances and lengths stay; what then reaches beyond the call's end is cut there.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from otel_bridge.backends.backend import TimeQuality
from otel_bridge.clock.convert import HOST, Times
from otel_bridge.model.events import EventBatch, EventKind
from otel_bridge.model.stream import LATEST_NS
from otel_bridge.spans.tree import NOWHERE, Tree

UNKNOWN_NS = -1
"""Instead of a length: a tick of that clock is no length that is known."""

_DELEGATE = EventKind.DELEGATE.value
"""A plain int: a member of an IntEnum takes longer to reach, and to compare with."""
_BACKWARDS = np.uint64(2**63)
CODES = {quality: code for code, quality in enumerate(TimeQuality)}
"""The numbers that stand for qualities in a column."""
_UNKNOWN, _DURATION_ONLY = CODES[TimeQuality.UNKNOWN], CODES[TimeQuality.DURATION_ONLY]
_HAS_REAL_STARTS = np.array([quality in (TimeQuality.MEASURED, TimeQuality.FOREIGN_CLOCK) for quality in TimeQuality], np.bool_)


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """
    Times of n rows and m roots, nanoseconds since 1970; every end is after its start.

    start, end              int64[n]
    root_start, root_end    int64[m]    0 for a block without events
    moved                   bool[n]     the span does not lie where its ticks say
    length                  int64[n]    true length, by the event's own clock, or `UNKNOWN_NS`; 0: shown as 1 ns
    """

    start: NDArray[np.int64]
    end: NDArray[np.int64]
    root_start: NDArray[np.int64]
    root_end: NDArray[np.int64]
    moved: NDArray[np.bool_]
    length: NDArray[np.int64]


def axis_of(batch: EventBatch, quality: NDArray[np.int64]) -> NDArray[np.int64]:
    """
    int64[n]: equal for rows whose times may be compared, -1 where starts are not real; by clock and quality.

    `quality` is int64[n] (`CODES`). For `spans/tree.py`, which nests by it.
    """
    real = _HAS_REAL_STARTS[quality] & (batch.kind == _DELEGATE)
    return np.where(real, batch.clock * len(CODES) + quality, -1)


def place(batch: EventBatch, tree: Tree, times: Times, quality: NDArray[np.int64]) -> Timeline:
    """
    Times as they are shown.

    `tree` is as it grew, before delegate events were nested; `quality` is int64[n] (`CODES`).
    """
    start, end = times.start.copy(), times.end.copy()
    delegate = batch.kind == _DELEGATE
    length = np.maximum(end - start, 0)
    moved = (batch.duration >= _BACKWARDS) & (length == 0)
    root_start, root_end = _roots(batch, tree, start, end, delegate)

    empty = end <= start
    if empty.any():
        empty &= ~delegate
        outer = (empty & (tree.parent == NOWHERE)).nonzero()[0]
        _widen(start, end, outer, root_start[tree.block[outer]], root_end[tree.block[outer]])
        scopes = (empty & (tree.parent != NOWHERE)).nonzero()[0]
        _widen(start, end, scopes, start[tree.parent[scopes]], end[tree.parent[scopes]])

    # All rows, since nearly all are of delegates: to pick these out of each column takes longer.
    low, high = start[tree.parent], end[tree.parent]
    lone = (delegate & (tree.parent == NOWHERE)).nonzero()[0]
    low[lone], high[lone] = root_start[tree.block[lone]], root_end[tree.block[lone]]
    fitting = times.tied & times.known & (quality != _DURATION_ONLY) & (start >= low) & (np.maximum(start, end) <= high)
    if not (fitting | ~delegate).all():
        rows = delegate.nonzero()[0]
        parent = tree.parent[rows]
        inside = _Calls(
            call=np.where(parent == NOWHERE, len(batch) + tree.block[rows], parent),
            low=low[rows],
            high=high[rows],
            start=start[rows],
            end=np.maximum(start[rows], end[rows]),
            length=length[rows],
        )
        inside.place(batch.clock[rows], quality[rows], times.tied[rows], times.known[rows])
        moved[rows] |= (inside.start != start[rows]) | (inside.end != end[rows]) | inside.made
        start[rows], end[rows], length[rows] = inside.start, inside.end, inside.length
    empty = end <= start
    if empty.any():
        rows = (empty & delegate).nonzero()[0]
        _widen(start, end, rows, low[rows], high[rows])

    has_root = tree.root != NOWHERE
    start[tree.root[has_root]], end[tree.root[has_root]] = root_start[has_root], root_end[has_root]
    return Timeline(start, end, root_start, root_end, moved, length)


class _Calls:
    """The delegate events of a batch, in the order of the log, with the calls that they are to lie in: columns int64[k]."""

    def __init__(
        self,
        *,
        call: NDArray[np.int64],
        low: NDArray[np.int64],
        high: NDArray[np.int64],
        start: NDArray[np.int64],
        end: NDArray[np.int64],
        length: NDArray[np.int64],
    ) -> None:
        self.call, self.low, self.high = call, low, high
        self.start, self.end, self.length = start, end, length
        self.made = np.zeros(len(call), np.bool_)
        """Times that say nothing but order."""

    def place(
        self, clock: NDArray[np.uint8], quality: NDArray[np.int64], tied: NDArray[np.bool_], known: NDArray[np.bool_]
    ) -> None:
        """Bring all of them inside."""
        host = clock == HOST
        begins_inside = (self.start >= self.low) & (self.start <= self.high)
        believed = begins_inside & (self.end - self.start <= self.high - self.low)
        known = known & ~((quality == _UNKNOWN) & host & ~believed)
        self.length[~known] = UNKNOWN_NS
        without_start = quality == _DURATION_ONLY
        axis = (clock.astype(np.int64) * len(CODES) + quality) * 2 + tied
        self._move_together((known & ~without_start).nonzero()[0], axis, host, tied)
        self._lay_end_to_end(without_start.nonzero()[0])
        self._show_order((~known & ~without_start).nonzero()[0], axis)
        self.start = np.minimum(np.maximum(self.start, self.low), self.high)
        self.end = np.minimum(np.maximum(self.end, self.low), self.high)

    def _move_together(
        self, rows: NDArray[np.int64], axis: NDArray[np.int64], host: NDArray[np.bool_], tied: NDArray[np.bool_]
    ) -> None:
        low, high = self.low[rows], self.high[rows]
        misfit = ~tied[rows] | (self.start[rows] < low) | (self.end[rows] > high)
        if not misfit.any():
            return
        rows = rows[np.isin(self.call[rows], np.unique(self.call[rows[misfit]]))]
        rows, first, group = _grouped(rows, self.call, axis)
        low, high = self.low[rows[first]], self.high[rows[first]]
        begin = np.minimum.reduceat(self.start[rows], first)
        end = np.maximum.reduceat(self.end[rows], first)
        at_start = low - begin
        no_further = np.where(begin < low, at_start, np.maximum(np.minimum(high - end, 0), at_start))
        begins_inside = (self.start[rows] >= low[group]) & (self.start[rows] <= high[group])
        of_host = np.where(np.logical_or.reduceat(begins_inside, first), 0, at_start)
        by = np.where(tied[rows[first]], np.where(host[rows[first]], of_host, no_further), at_start)
        for column in (self.start, self.end):
            column[rows] += np.minimum(by[group], LATEST_NS - column[rows])

    def _lay_end_to_end(self, rows: NDArray[np.int64]) -> None:
        if not len(rows):
            return
        rows, first, group = _grouped(rows, self.call)
        # A call is as long as it is: capping what exceeds it by far keeps the sums within 64 bits.
        room = np.minimum(self.high[rows] - self.low[rows], 2**62 // len(rows))
        width = np.minimum(np.maximum(self.length[rows], 1), room + 1)
        width[self.length[rows] == UNKNOWN_NS] = 0  # what is no time takes none
        after = np.cumsum(width)
        before = after - width
        self.start[rows] = self.low[rows] + before - before[first][group]
        self.end[rows] = self.start[rows] + np.where(self.length[rows] == 0, 0, width)
        self.made[rows] = True

    def _show_order(self, rows: NDArray[np.int64], axis: NDArray[np.int64]) -> None:
        """Starts and ends become their rank among those of their call and axis: what was in order or nested still is."""
        if not len(rows):
            return
        rows, _, group = _grouped(rows, self.call, axis)
        groups, moments = np.tile(group, 2), np.concatenate((self.start[rows], self.end[rows]))
        order = np.lexsort((moments, groups))
        new = np.diff(moments[order], prepend=moments[order[:1]]) != 0
        step = np.cumsum(new)
        rank = np.empty(len(order), np.int64)
        rank[order] = step - step[np.searchsorted(groups[order], groups[order])]
        self.start[rows] = self.low[rows] + rank[: len(rows)]
        self.end[rows] = self.low[rows] + rank[len(rows) :]
        self.made[rows] = True


def _grouped(
    rows: NDArray[np.int64], *keys: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The rows sorted by keys (equal ones in the order of the log), the first position of each group, each row's group."""
    order = np.lexsort([key[rows] for key in reversed(keys)])
    rows = rows[order]
    new = np.zeros(len(rows), np.bool_)
    new[:1] = True
    for key in keys:
        new[1:] |= np.diff(key[rows]) != 0
    return rows, np.flatnonzero(new), np.cumsum(new) - 1


def _roots(
    batch: EventBatch, tree: Tree, start: NDArray[np.int64], end: NDArray[np.int64], delegate: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    first, last = batch.bounds[:-1], batch.bounds[1:]
    root_start = np.zeros(len(batch.blocks), np.int64)
    root_end = np.zeros(len(batch.blocks), np.int64)
    has_root = tree.root != NOWHERE
    root_start[has_root], root_end[has_root] = start[tree.root[has_root]], end[tree.root[has_root]]
    bare = (~has_root & (last > first)).nonzero()[0]
    if len(bare):
        root_start[bare], root_end[bare] = _hulls(batch, start, end, delegate, bare)
    return root_start, np.where(last > first, np.maximum(root_end, root_start + 1), root_end)


def _hulls(
    batch: EventBatch, start: NDArray[np.int64], end: NDArray[np.int64], delegate: NDArray[np.bool_], blocks: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """From the first start to the last end in each of these blocks, which have events; of delegates' only where all are."""
    size = batch.bounds[blocks + 1] - batch.bounds[blocks]
    begin = size.cumsum() - size
    rows = np.arange(int(size.sum())) + (batch.bounds[blocks] - begin).repeat(size)
    foreign = delegate[rows]
    aside = foreign & ~np.logical_and.reduceat(foreign, begin).repeat(size)
    first = np.minimum.reduceat(np.where(aside, LATEST_NS, start[rows]), begin)
    return first, np.maximum.reduceat(np.where(aside, -1, end[rows]), begin)


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
