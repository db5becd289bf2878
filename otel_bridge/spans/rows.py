"""
Spans as rows of bytes.

A row is a head with ids and times, and a tail that many rows share (spans/tails.py):

    12 len | [22 08 parent id] | 0a 10 trace id | 12 08 span id | 39 start | 41 end | 85 01 flags | tail
    field 2     8 B                 16 B             8 B            8 B LE     8 B LE   4 B LE
    of ScopeSpans

Rows are joined from prototypes, whose ids and times are zero, and those are then written over all rows at once.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields

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


def write_rows(
    prototypes: Prototypes, which: NDArray[np.int64], columns: Columns
) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """
    All rows end to end, int64[n + 1] where each begins, and int64[n] where its tail does.

    `which` chooses the prototype of each.
    """
    n = len(which)
    data = np.frombuffer(bytearray().join(map(prototypes.rows.__getitem__, which.tolist())), np.uint8)
    offsets = np.zeros(n + 1, np.int64)
    prototypes.lengths[which].cumsum(out=offsets[1:])
    begin = offsets[:-1] + prototypes.heads[which]

    heads = np.frombuffer(bytearray(_HEAD) * n, _HEADS)
    for name in _HEADS.names or ():
        heads[name] = getattr(columns, name)
    overwrite(data, begin, heads)
    if columns.parented.all():
        overwrite(data, begin - 8, columns.parent.astype(">u8"))
    else:
        child = columns.parented.nonzero()[0]
        overwrite(data, begin[child] - 8, columns.parent[child].astype(">u8"))
    return data, offsets, begin + len(_HEAD)


def overwrite(data: NDArray[np.uint8], at: NDArray[np.int64], values: NDArray[np.generic]) -> None:
    """Write each value to where `at` says; a view of every run of their width lets numpy copy whole values."""
    if len(at):
        width = values.dtype.itemsize
        runs = np.ndarray((len(data) - width + 1,), f"V{width}", buffer=data, strides=(1,))
        runs[at] = values.view(f"V{width}")
