"""
Rows that are alike, found without sorting where numbers are small.

Invariant: a table of about as many entries as there are rows is read and written faster than so many rows are sorted, and what
is told apart here (templates, kinds, instructions, names) comes in few numbers.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_LEAST_ROOM = 1 << 10
_ROOM_PER_ROW = 2
"""Entries of a table that is worth while, a row; a combination that needs more is sorted."""
_MOST = 2**62


def distinct(columns: Sequence[NDArray[np.integer[Any]]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """
    The first row of each distinct combination of the columns (none negative), and int64[n] which of them each row is like.

    The columns are folded into one integer a row, renumbered before its range grows beyond what a table can have.
    """
    key = columns[0].astype(np.int64, copy=False)
    span = int(key.max(initial=0)) + 1
    room = max(_LEAST_ROOM, _ROOM_PER_ROW * len(key))
    for column in columns[1:]:
        width = int(column.max(initial=0)) + 1
        if width == 1:
            continue
        if span * width > room:
            first, key = _number(key, span, room)
            span = max(len(first), 1)
        numbers = column.astype(np.int64, copy=False)
        if span * width >= _MOST:
            first, numbers = _number(numbers, width, room)
            width = len(first)
        key = key * width + numbers
        span *= width
    return _number(key, span, room)


def _number(key: NDArray[np.int64], span: int, room: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first row of each distinct key, by ascending keys, and which of them each row has; `span` is beyond all keys."""
    if span > room:
        _, first, number = np.unique(key, return_index=True, return_inverse=True)
        return first, number
    first_of = np.full(span, len(key))
    first_of[key[::-1]] = np.arange(len(key) - 1, -1, -1)  # of several rows the last that is written stays
    used = (first_of < len(key)).nonzero()[0]
    number_of = np.empty(span, np.int64)
    number_of[used] = np.arange(len(used))
    return first_of[used], number_of[key]
