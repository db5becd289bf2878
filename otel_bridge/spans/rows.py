"""
Spans as rows of bytes.

A row is a head with ids and times, and a tail that many rows share (spans/tails.py):

    12 len | [22 08 parent id] | 0a 10 trace id | 12 08 span id | 39 start | 41 end | 85 01 flags | tail
    field 2     8 B                 16 B             8 B            8 B LE     8 B LE   4 B LE
    of ScopeSpans

Rows are joined from prototypes, whose ids and times are zero, and those are then written over all rows at once. A model gives
the same rows in each inference: prototypes of such a stretch are joined once.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from otel_bridge.spans import encode

_HEAD = b"\x0a\x10" + bytes(16) + b"\x12\x08" + bytes(8) + b"\x39" + bytes(8) + b"\x41" + bytes(8) + b"\x85\x01" + bytes(4)
_HEADS = np.dtype(
    {
        "names": ["trace", "span", "start", "end", "flags"],
        "formats": ["V16", ">u8", "<i8", "<i8", "<u4"],
        "offsets": [2, 20, 29, 38, 48],
        "itemsize": len(_HEAD),
    }
)
"""A head's ids and times in their places."""
_SPAN = b"\x12"
"""The tag of `ScopeSpans.spans`."""
_PARENT_FIELD = b"\x22\x08" + bytes(8)


_PARENTED_HEAD = _PARENT_FIELD + _HEAD

_LEAST_ROWS = 8
"""Of a stretch, on average, for which it is worth while to look whether it comes again."""
_LOOKED_AT = 16
"""Stretches, the first ones, that tell whether they come again."""


class Prototypes:
    """Rows with ids and times of zero, one for each tail: their bytes, and where their heads begin."""

    def __init__(self, tails: Iterable[bytes], roots: Iterable[tuple[bytes, bool]] = ()) -> None:
        """`tails` are of spans with a parent; `roots` say whether there is one."""
        size, parented, head = encode.varint, _PARENTED_HEAD, _HEAD
        self.rows = [b"".join((_SPAN, size(len(parented) + len(tail)), parented, tail)) for tail in tails]
        behind = [len(tail) + len(head) for tail in tails]
        for tail, has_parent in roots:
            front = parented if has_parent else head
            self.rows.append(b"".join((_SPAN, size(len(front) + len(tail)), front, tail)))
            behind.append(len(tail) + len(head))
        self.lengths = np.array(list(map(len, self.rows)), np.int64)
        self.heads = self.lengths - np.array(behind, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """What differs between rows of one tail: traces V16[n], span ids and parents uint64[n], times int64[n], flags uint32[n]."""

    trace: NDArray[np.void]
    span: NDArray[np.uint64]
    parent: NDArray[np.uint64]
    parented: NDArray[np.bool_]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    flags: NDArray[np.uint32]

    def take(self, order: NDArray[np.int64]) -> "Columns":
        """The same rows in another order."""
        return Columns(*(getattr(self, column.name)[order] for column in fields(self)))


class Rows:
    """
    n rows end to end, not joined yet.

    offsets   int64[n + 1]   where each row begins
    """

    def __init__(self, prototypes: Prototypes, which: NDArray[np.int64], columns: Columns, bounds: NDArray[np.int64]) -> None:
        """
        `which` is int64[n], the prototype of each row.

        `bounds` are those of stretches that may come again, from 0 to n, some of them empty; they decide what it costs, and
        nothing else.
        """
        n = len(which)
        self.offsets = np.zeros(n + 1, np.int64)
        prototypes.lengths[which].cumsum(out=self.offsets[1:])
        self._begin = self.offsets[:-1] + prototypes.heads[which]
        self._heads = np.frombuffer(bytearray(_HEAD) * n, _HEADS)
        for name in _HEADS.names or ():
            self._heads[name] = getattr(columns, name)
        self._child = columns.parented.nonzero()[0]
        self._parents = columns.parent[self._child].astype(">u8")
        self._parents_at = self._begin[self._child] - 8
        self._edges, self._pieces = _join_stretches(prototypes.rows, which, bounds)

    def tails(self, first: int, last: int) -> NDArray[np.int64]:
        """Where the tails of the rows from `first` to `last` begin."""
        return self._begin[first:last] + len(_HEAD)

    def pieces(self, first: int, last: int) -> Sequence[bytes | memoryview]:
        """What the rows from `first` to `last` are joined from, ids and times of zero in it."""
        begin = bisect_right(self._edges, first) - 1
        end = bisect_left(self._edges, last)
        if self._edges[begin] == first and self._edges[end] == last:
            return self._pieces[begin:end]
        pieces: list[bytes | memoryview] = [*self._pieces[begin:end]]
        if self._edges[end] != last:
            pieces[-1] = memoryview(pieces[-1])[: self._length(self._edges[end - 1], last)]
        if self._edges[begin] != first:
            pieces[0] = memoryview(pieces[0])[self._length(self._edges[begin], first) :]
        return pieces

    def _length(self, first: int, last: int) -> int:
        return int(self.offsets[last] - self.offsets[first])

    def move(self, shift: NDArray[np.int64]) -> None:
        """
        Say where rows are written to, once, before any is.

        `shift` is int64[n]: how much further behind each row stands in those bytes than by `offsets`.
        """
        self._begin += shift
        self._parents_at = self._begin[self._child] - 8

    def write(self, data: NDArray[np.uint8], first: int, last: int) -> None:
        """Write ids and times of the rows from `first` to `last` into `data`, where they were moved to."""
        overwrite(data, self._begin[first:last], self._heads[first:last])
        children = slice(bisect_left(self._child, first), bisect_left(self._child, last))
        overwrite(data, self._parents_at[children], self._parents[children])


def _join_stretches(
    rows: Sequence[bytes], which: NDArray[np.int64], bounds: NDArray[np.int64]
) -> tuple[list[int], list[bytes]]:
    """Bounds, and the prototypes of each stretch, joined: of all rows together, where stretches are short or mostly differ."""
    n = len(which)
    said, edges = which.tobytes(), (bounds * which.itemsize).tolist()
    known: dict[bytes, bytes] = {}
    pieces: list[bytes] = []
    for begin, end in pairwise(edges) if n >= _LEAST_ROWS * len(bounds) else ():
        key = said[begin:end]
        piece = known.get(key)
        if piece is None:
            numbers = np.frombuffer(key, which.dtype).tolist()
            piece = known[key] = b"".join(map(rows.__getitem__, numbers))
        pieces.append(piece)
        if len(pieces) == _LOOKED_AT and len(known) > _LOOKED_AT // 2:
            break
    if len(pieces) == len(bounds) - 1:
        return bounds.tolist(), pieces
    return [0, n], [b"".join(map(rows.__getitem__, which.tolist()))]


def overwrite(data: NDArray[np.uint8], at: NDArray[np.int64], values: NDArray[np.generic]) -> None:
    """Write each value to where `at` says; a view of every run of their width lets numpy copy whole values."""
    if len(at):
        width = values.dtype.itemsize
        runs = np.ndarray((len(data) - width + 1,), f"V{width}", buffer=data, strides=(1,))
        runs[at] = values.view(f"V{width}")
