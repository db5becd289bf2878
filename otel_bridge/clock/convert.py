"""
Ticks of a device -> nanoseconds since 1970.

Invariants
* Integer arithmetic only: floor(ticks * numerator / denominator), exact to 2^64 ticks and any ratio of 64-bit integers.
  The map is monotone, so what was nested in ticks stays nested in nanoseconds.
* A counter narrower than 64 bits is unwrapped before it is converted, as the shortest way from the anchor.
* The same batch gives the same times, whenever it is converted: receipt and correction stand in its `Stream`.
* A clock without an anchor is placed by the runtime's own events on it (never by a delegate's), the last of which ends at
  `Stream.ended_ns`.
"""

import numpy as np
from numpy.typing import NDArray

from otel_bridge.model.events import EventBatch, EventKind
from otel_bridge.model.stream import Anchor, Clock, Stream

_MAX_NS = 2**63 - 2
_ENDS_BEFORE_START = np.uint64(2**63)


def to_unix_ns(batch: EventBatch) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """
    Start and end of each event, int64[n] nanoseconds since 1970, within 0 and 2^63 - 2; and bool[n] whether the clock is known.

    A clock is not known that has neither an anchor nor an event of the runtime: its times are right only among themselves.

    An event that ended before it started (only a 64-bit counter can show that) has length 0 at its start.
    """
    start_ns = np.zeros(len(batch), np.int64)
    end_ns = np.zeros(len(batch), np.int64)
    known = np.zeros(len(batch), np.bool_)
    own = batch.kind != EventKind.DELEGATE
    for stream, rows in _rows_by_stream(batch):
        for index in np.unique(batch.clock[rows]):
            of_clock = np.flatnonzero(batch.clock[rows] == index) + rows.start
            chosen: slice | NDArray[np.int64] = rows if len(of_clock) == rows.stop - rows.start else of_clock
            start_ns[chosen], end_ns[chosen] = _convert(batch, chosen, stream.clocks[index], stream)
            known[chosen] = stream.clocks[index].anchor is not None or bool(own[chosen].any())
    return start_ns, end_ns, known


def duration_ns(batch: EventBatch) -> NDArray[np.int64]:
    """True duration of each event, int64[n] nanoseconds: floor(ticks * ratio), 0 where the event ended before it started."""
    result = np.zeros(len(batch), np.int64)
    for stream, rows in _rows_by_stream(batch):
        for index, clock in enumerate(stream.clocks):
            chosen = np.flatnonzero(batch.clock[rows] == index) + rows.start
            result[chosen] = _scale(_length(batch.duration[chosen], clock), clock)
    return result


def _rows_by_stream(batch: EventBatch) -> list[tuple[Stream, slice]]:
    streams = np.array([block.stream for block in batch.blocks], np.int64)
    firsts = np.flatnonzero(np.diff(streams, prepend=-1))
    edges = [*batch.bounds[firsts].tolist(), len(batch)]
    return [
        (batch.streams[streams[first]], slice(edges[i], edges[i + 1]))
        for i, first in enumerate(firsts)
        if edges[i] < edges[i + 1]
    ]


def _convert(
    batch: EventBatch, rows: slice | NDArray[np.int64], clock: Clock, stream: Stream
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    start, length = batch.start[rows], _length(batch.duration[rows], clock)
    own = batch.kind[rows] != EventKind.DELEGATE
    anchor = _anchor(start, length, own, clock, stream)
    since = _since(start, anchor.ticks, clock)
    origin = min(anchor.unix_ns, _MAX_NS)  # a sender may say anything
    return _shift(_scale(since, clock), origin), _shift(_scale(_later(since, length), clock), origin)


def _anchor(
    start: NDArray[np.uint64], length: NDArray[np.int64], own: NDArray[np.bool_], clock: Clock, stream: Stream
) -> Anchor:
    if clock.anchor is not None:
        return Anchor(clock.anchor.ticks, clock.anchor.unix_ns + stream.correction_ns)
    if own.any():
        start, length = start[own], length[own]
    first = int(start[0])
    last = int(_later(_since(start, first, clock), length).max())
    return Anchor(first + last, stream.ended_ns)


def _length(duration: NDArray[np.uint64], clock: Clock) -> NDArray[np.int64]:
    if clock.counter_bits < 64:  # noqa: PLR2004 - the width of the column
        return (duration & np.uint64(2**clock.counter_bits - 1)).astype(np.int64)
    return np.where(duration >= _ENDS_BEFORE_START, np.uint64(0), duration).astype(np.int64)


def _since(ticks: NDArray[np.uint64], origin: int, clock: Clock) -> NDArray[np.int64]:
    """Signed distance from `origin`, the shorter way around the counter."""
    unused = np.uint64(64 - clock.counter_bits)
    distance = (ticks - np.uint64(origin % 2**64)) << unused
    return distance.view(np.int64) >> unused.astype(np.int64)


def _later(since: NDArray[np.int64], length: NDArray[np.int64]) -> NDArray[np.int64]:
    end: NDArray[np.int64] = since + np.minimum(length, np.iinfo(np.int64).max - np.maximum(since, 0))
    return end


def _scale(ticks: NDArray[np.int64], clock: Clock) -> NDArray[np.int64]:
    numerator, denominator = clock.numerator, clock.denominator
    if numerator == denominator or not len(ticks):
        return ticks
    largest = max(abs(int(ticks.min())), abs(int(ticks.max()))) // denominator + 1
    if largest * numerator < 2**62 and numerator * denominator < 2**62:
        whole, rest = np.divmod(ticks, denominator)
        scaled: NDArray[np.int64] = whole * numerator + rest * numerator // denominator
        return scaled
    exact = ticks.astype(object) * numerator // denominator  # Python integers: slow and without a bound
    return np.array([max(-_MAX_NS, min(_MAX_NS, value)) for value in exact], np.int64)


def _shift(since_ns: NDArray[np.int64], origin_ns: int) -> NDArray[np.int64]:
    """The sum, kept within the range of a time: clipped before adding, so that it cannot overflow."""
    placed: NDArray[np.int64] = np.clip(since_ns, -origin_ns, _MAX_NS - origin_ns) + origin_ns
    return placed
