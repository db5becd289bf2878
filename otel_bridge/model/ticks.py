"""
When events were and how long they took, in ticks of their clocks.

Invariants
* What a device sent may stay as it came until a pass needs it: the numbers of many requests are decoded in the time of one.
* `SentTicks` can be decoded, whatever its sender made of it: that is looked at when it is made.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otel_bridge.model.varints import Numbers, are_varints, decode_varints, unzigzag

_OBJECT_BYTES = 200
"""About what the objects take around what was sent."""


@dataclass(frozen=True, slots=True, eq=False)
class Ticks:
    """
    Of n events; numbers are modulo 2^64.

    start      uint64[n]
    duration   uint64[n]
    """

    start: NDArray[np.uint64]
    duration: NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.start)

    def __getitem__(self, rows: slice | NDArray[Any]) -> "Ticks":
        return Ticks(self.start[rows], self.duration[rows])

    @property
    def nbytes(self) -> int:
        """What they take in memory."""
        return self.start.nbytes + self.duration.nbytes


class SentTicks:
    """
    Of n events of one clock, as the packed fields `start_delta` and `duration` of `EventColumns` say it; see `Ticks`.

    Made by `sent_ticks`.
    """

    __slots__ = ("_count", "_ticks", "deltas", "durations")

    def __init__(self, count: int, deltas: bytes, durations: bytes) -> None:
        self._count = count
        self._ticks: Ticks | None = None
        self.deltas = deltas
        self.durations = durations

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        """About what they take in memory as long as nobody asks for them."""
        return _OBJECT_BYTES + len(self.deltas) + len(self.durations)

    @property
    def start_delta(self) -> NDArray[np.int64]:
        """int64[n]: from one start to the next, the first from 0."""
        return _steps(_decode_fields(self.deltas)[0])

    def __getitem__(self, rows: slice | NDArray[Any]) -> Ticks:
        return self._decoded()[rows]

    @property
    def start(self) -> NDArray[np.uint64]:
        """uint64[n]."""
        return self._decoded().start

    @property
    def duration(self) -> NDArray[np.uint64]:
        """uint64[n]."""
        return self._decoded().duration

    def _decoded(self) -> Ticks:
        if self._ticks is None:
            self._ticks = _decode((self,))
        return self._ticks


AnyTicks = Ticks | SentTicks


def sent_ticks(count: int, deltas: bytes, durations: bytes) -> SentTicks | None:
    """The ticks in these fields; None where they do not hold so many numbers, or one that is not decoded here."""
    if are_varints(deltas, count) and are_varints(durations, count):
        return SentTicks(count, deltas, durations)
    return None


def join_ticks(parts: Sequence[AnyTicks]) -> Ticks:
    """Those of all parts, in order."""
    if all(isinstance(part, SentTicks) for part in parts):
        return _decode([part for part in parts if isinstance(part, SentTicks)])
    return Ticks(np.concatenate([part.start for part in parts]), np.concatenate([part.duration for part in parts]))


def _decode(parts: Sequence[SentTicks]) -> Ticks:
    fields = b"".join([part.deltas for part in parts]), b"".join([part.durations for part in parts])
    deltas, durations = _decode_fields(*fields)
    sums = np.zeros(len(deltas) + 1, np.uint64)
    _steps(deltas).view(np.uint64).cumsum(out=sums[1:])
    start = sums[1:]
    if len(parts) > 1:  # each counts from 0
        counts = list(map(len, parts))
        start -= sums[[0, *accumulate(counts[:-1])]].repeat(counts)
    return Ticks(start, durations.astype(np.uint64, copy=False))


def _decode_fields(*fields: bytes) -> list[Numbers]:
    decoded = decode_varints(fields)
    if decoded is None:
        raise AssertionError("what `are_varints` said yes to is decoded")
    return decoded


def _steps(deltas: Numbers) -> NDArray[np.int64]:
    return unzigzag(deltas).astype(np.int64, copy=False)
