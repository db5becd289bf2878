"""
When events were and how long they took, in ticks of their clocks.

Invariants
* What a device sent may stay as it came until a pass needs it: the numbers of many requests are decoded in the time of one.
* `SentTicks` can be decoded, whatever its sender made of it: that is looked at when it is made. It keeps nothing but what came,
  so what waits takes no more memory for having been looked at.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from otel_bridge.model.varints import are_varints, decode_varints, unzigzag

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


class SentNumbers(NamedTuple):
    """
    What the fields `start_delta` and `duration` of `EventColumns` say, each of any length.

    start_delta   int64   from one start to the next of that clock, the first from 0
    duration      uint64
    """

    start_delta: NDArray[np.int64]
    duration: NDArray[np.uint64]


class SentTicks:
    """Of n events of one clock, as these two packed fields; see `Ticks`. Decoded anew whenever somebody asks."""

    __slots__ = ("_count", "deltas", "durations")

    def __init__(self, count: int, deltas: bytes, durations: bytes) -> None:
        self._count = count
        self.deltas = deltas
        self.durations = durations

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, rows: slice | NDArray[Any]) -> Ticks:
        return join_ticks((self,))[rows]

    @property
    def nbytes(self) -> int:
        """About what they take in memory."""
        return _OBJECT_BYTES + len(self.deltas) + len(self.durations)

    @property
    def start(self) -> NDArray[np.uint64]:
        """uint64[n]."""
        return join_ticks((self,)).start

    @property
    def duration(self) -> NDArray[np.uint64]:
        """uint64[n]."""
        return join_ticks((self,)).duration

    @property
    def numbers(self) -> SentNumbers:
        """Of each field n."""
        return _decode(self.deltas, self.durations)


AnyTicks = Ticks | SentTicks


def sent_ticks(count: int, deltas: bytes, durations: bytes) -> SentTicks | None:
    """The ticks in these fields; None where these do not hold so many numbers."""
    if are_varints(deltas, count) and are_varints(durations, count):
        return SentTicks(count, deltas, durations)
    return None


def join_ticks(parts: Sequence[AnyTicks]) -> Ticks:
    """Those of all parts, in order."""
    sent = [part for part in parts if isinstance(part, SentTicks)]
    if len(sent) < len(parts):
        return Ticks(np.concatenate([part.start for part in parts]), np.concatenate([part.duration for part in parts]))
    steps, duration = _decode(b"".join([part.deltas for part in sent]), b"".join([part.durations for part in sent]))
    sums = np.zeros(len(steps) + 1, np.uint64)
    steps.view(np.uint64).cumsum(out=sums[1:])
    start = sums[1:]
    if len(sent) > 1:  # each counts from 0
        counts = list(map(len, sent))
        start -= sums[[0, *accumulate(counts[:-1])]].repeat(counts)
    return Ticks(start, duration)


def _decode(deltas: bytes, durations: bytes) -> SentNumbers:
    decoded = decode_varints((deltas, durations))
    if decoded is None:
        raise AssertionError("what `are_varints` said yes to is decoded")
    return SentNumbers(unzigzag(decoded[0]).astype(np.int64, copy=False), decoded[1].astype(np.uint64, copy=False))
