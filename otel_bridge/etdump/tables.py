"""
Tables of a flatbuffer, many at a time: positions in, positions and numbers out, all within the file.

Anything that could be wrong raises `Unusual`; what it is, is for the plain reader to say (read.py).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otel_bridge.etdump.layout import read_profile_layout, read_vtable

Positions = NDArray[np.int64]
"""Bytes of the file."""
_FEW = 8
"""Vtables that are told apart without sorting; flatcc writes one for each set of fields."""


class Unusual(Exception):
    """Something that the plain reader must look at."""


@dataclass(frozen=True, slots=True, eq=False)
class Texts:
    """Where the lengths of texts or payloads stand, and these lengths; 0 for one that is absent or empty."""

    at: Positions
    length: Positions


class Source:
    """The bytes of a file, read as numbers from any position."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size = len(data)
        self._every: dict[str, NDArray[Any]] = {}
        """By dtype, the number that begins at each byte."""

    def numbers(self, at: Positions, form: str) -> NDArray[Any]:
        """The numbers of a dtype that begin at these bytes, as int64 or uint64."""
        every = self._every.get(form)
        if every is None:
            room = max(self.size - np.dtype(form).itemsize + 1, 0)
            every = self._every[form] = np.ndarray((room,), form, self.data, strides=(1,))
        require(np.maximum.reduce(at.view(np.uint64), initial=0) < len(every))  # what is negative is huge
        return every[at].astype(np.uint64 if form == "<u8" else np.int64)

    def follow(self, at: Positions) -> Positions:
        """Where the unsigned offsets at these bytes lead, each from its own place."""
        led: Positions = at + self.numbers(at, "<u4")
        return led

    def fields(self, tables: Positions, slots: int, *, profile: bool = False) -> NDArray[np.int64]:
        """int64[slots, n]: offsets of fields in these tables; 0: the field is not there. `profile`: no two may overlap."""
        vtables = tables - self.numbers(tables, "<i4")
        distinct, which = _distinct(vtables)
        offsets = np.zeros((slots, len(distinct)), np.int64)
        for number, vtable in enumerate(distinct):
            offsets[:, number] = read_vtable(self.data, vtable, slots)
            if profile:
                read_profile_layout(self.data, vtable)
        return offsets.take(which, 1)

    def values(self, tables: Positions, offsets: NDArray[np.int64], form: str, default: int) -> NDArray[Any]:
        """A scalar field of these tables."""
        if offsets.all():
            return self.numbers(tables + offsets, form)
        there = offsets.nonzero()[0]
        found = np.full(len(tables), default, np.uint64 if form == "<u8" else np.int64)
        found[there] = self.numbers(tables[there] + offsets[there], form)
        return found

    def texts(self, tables: Positions, offsets: NDArray[np.int64]) -> Texts:
        """A field of these tables that is a text or a byte vector."""
        there = offsets.nonzero()[0]
        found = self.follow((tables + offsets)[there])
        lengths = self.numbers(found, "<u4")
        require((found + lengths).max(initial=0) <= self.size - 4)
        if len(there) == len(tables):
            return Texts(found, lengths)
        at, length = np.zeros(len(tables), np.int64), np.zeros(len(tables), np.int64)
        at[there], length[there] = found, lengths
        return Texts(at, length)


def _distinct(vtables: Positions) -> tuple[list[int], NDArray[np.int64]]:
    """The distinct ones, and which of them each is. Mostly they are few, and to take out one after the other is no sorting."""
    found: list[int] = []
    which = np.zeros(len(vtables), np.int64)
    rest = np.arange(len(vtables))
    while len(rest):
        if len(found) == _FEW:
            distinct, which = np.unique(vtables, return_inverse=True)
            return distinct.tolist(), which
        own = vtables[rest]
        other = own != own[0]
        which[rest] = len(found)  # those left are told apart by a later turn
        found.append(int(own[0]))
        rest = rest[other]
    return found, which


def require(holds: bool | np.bool_) -> None:  # noqa: FBT001 - an assertion has one argument
    """Leave the file to the plain reader unless this holds."""
    if not holds:
        raise Unusual
