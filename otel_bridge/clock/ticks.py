"""
Arithmetic of ticks, a column at a time.

Invariants
* Integers only: floor(ticks * numerator / denominator), exact to 2^64 ticks and any ratio of 64-bit integers.
* Distances are counted from an origin, one for all rows or one a row, the shorter way around the counter.
* What is beyond the range of a time is brought to its edge, before a sum could overflow.
"""

import numpy as np
from numpy.typing import NDArray

from otel_bridge.model.stream import LATEST_NS, Anchor, Clock

ENDS_BEFORE_START = np.uint64(2**63)
_MOST = 2**63 - 1


def place_ticks(
    start: NDArray[np.uint64], duration: NDArray[np.uint64], clock: Clock, anchor: Anchor
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Start and end, int64[n] nanoseconds since 1970, of events that a clock counted in ticks, by the anchor that is given."""
    return place(start, duration, clock, np.uint64(anchor.ticks % 2**64), min(max(anchor.unix_ns, 0), LATEST_NS))


def place(
    start: NDArray[np.uint64],
    duration: NDArray[np.uint64],
    clock: Clock,
    ticks: NDArray[np.uint64] | np.uint64,
    unix_ns: NDArray[np.int64] | int,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The same by an origin: ticks uint64, and nanoseconds since 1970 within the range of a time; one, or one a row."""
    begin = since(start, ticks, clock)
    end = later(begin, length(duration, clock))
    return _shift(scale(begin, clock), unix_ns), _shift(scale(end, clock), unix_ns)


def length(duration: NDArray[np.uint64], clock: Clock) -> NDArray[np.int64]:
    """The ticks that events took; 0 for one that ended before it started."""
    if clock.counter_bits < 64:  # noqa: PLR2004 - the width of the column
        return (duration & np.uint64(2**clock.counter_bits - 1)).astype(np.int64)
    if duration.max(initial=0) < ENDS_BEFORE_START:
        return duration.view(np.int64)
    return np.where(duration >= ENDS_BEFORE_START, np.uint64(0), duration).view(np.int64)


def since(ticks: NDArray[np.uint64], origin: NDArray[np.uint64] | np.uint64, clock: Clock) -> NDArray[np.int64]:
    """Signed distance from `origin`, the shorter way around the counter."""
    distance = ticks - origin
    if clock.counter_bits < 64:  # noqa: PLR2004 - the width of the column
        unused = np.uint64(64 - clock.counter_bits)
        return (distance << unused).view(np.int64) >> unused.astype(np.int64)
    return distance.view(np.int64)


def later(begin: NDArray[np.int64], ticks: NDArray[np.int64]) -> NDArray[np.int64]:
    """The distances of ends, from those of starts and the ticks between."""
    end: NDArray[np.int64] = begin + np.minimum(ticks, _MOST - np.maximum(begin, 0))
    return end


def scale(ticks: NDArray[np.int64], clock: Clock) -> NDArray[np.int64]:
    """Ticks in nanoseconds."""
    numerator, denominator = clock.numerator, clock.denominator
    if numerator == denominator or not len(ticks):
        return ticks
    largest = max(abs(int(ticks.min())), abs(int(ticks.max()))) // denominator + 1
    if largest * numerator < 2**62 and numerator * denominator < 2**62:
        whole, rest = np.divmod(ticks, denominator)
        scaled: NDArray[np.int64] = whole * numerator + rest * numerator // denominator
        return scaled
    exact = ticks.astype(object) * numerator // denominator  # Python integers: slow and without a bound
    return np.array([max(-LATEST_NS, min(LATEST_NS, value)) for value in exact], np.int64)


def _shift(since_ns: NDArray[np.int64], origin_ns: NDArray[np.int64] | int) -> NDArray[np.int64]:
    """The sum, kept within the range of a time: clipped before adding, so that it cannot overflow."""
    placed: NDArray[np.int64] = np.minimum(np.maximum(since_ns, -origin_ns), LATEST_NS - origin_ns)
    placed += origin_ns
    return placed
