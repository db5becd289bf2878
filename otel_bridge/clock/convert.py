"""
Ticks of a device -> nanoseconds since 1970.

Invariants
* Integer arithmetic only: floor(ticks * numerator / denominator), exact to 2^64 ticks and any ratio of 64-bit integers.
  The map is monotone, so what was nested in ticks stays nested in nanoseconds.
* A counter narrower than 64 bits is unwrapped before it is converted, as the shortest way from the anchor.
* The same batch gives the same times, whenever it is converted: receipt and correction stand in its `Stream`.
* A clock without an anchor is placed by the runtime's own events on it (never by a delegate's), the last of which ends at
  `Stream.ended_ns`. One that only delegates read, but for the host's, has no place on the time axis (`Times.tied`).
* A request whose runtime would have ended after `Stream.latest_ns` is moved back as a whole to end at receipt: order and
  distances stay.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from otel_bridge.model.events import EventBatch, EventKind
from otel_bridge.model.stream import LATEST_NS, Anchor, Clock, Settled, Stream

HOST = 0
"""Index of the host's clock in a stream."""
_ENDS_BEFORE_START = np.uint64(2**63)


@dataclass(frozen=True, slots=True, eq=False)
class Times:
    """
    When each of n events of s streams happened.

    start, end   int64[n]   nanoseconds since 1970, within 0 and 2^63 - 2
    tied         bool[n]    whether the clock of the event is tied to the time axis; if not, only distances mean anything
    known        bool[n]    whether a tick is a length of time that is known; if not, only the order means anything
    moved_ns     per stream, what was added to all of its times so that they do not lie in the future; 0 or less
    settled      per stream, what places its events; None: it has none
    """

    start: NDArray[np.int64]
    end: NDArray[np.int64]
    tied: NDArray[np.bool_]
    known: NDArray[np.bool_]
    moved_ns: tuple[int, ...]
    settled: tuple[Settled | None, ...]


def settle(batch: EventBatch) -> EventBatch:
    """The batch, with what places its streams written down: divided, its parts have the times that they have in the whole."""
    settled = to_unix_ns(batch).settled
    streams = tuple(replace(stream, settled=each) for stream, each in zip(batch.streams, settled, strict=True))
    return replace(batch, streams=streams)


def to_unix_ns(batch: EventBatch) -> Times:
    """
    The times of a batch.

    An event that ended before it started (only a 64-bit counter can show that) has length 0 at its start.
    """
    n = len(batch)
    start_ns, end_ns = np.zeros(n, np.int64), np.zeros(n, np.int64)
    tied = np.ones(n, np.bool_)
    own = batch.kind != EventKind.DELEGATE
    placed: list[Settled | None] = [None] * len(batch.streams)
    for number, rows in _rows_by_stream(batch):
        stream = batch.streams[number]
        settled = stream.settled
        anchors: list[Anchor | None] = [None] * len(stream.clocks)
        ties = [False] * len(stream.clocks)
        for index in np.unique(batch.clock[rows]).tolist():
            of_clock = np.flatnonzero(batch.clock[rows] == index) + rows.start
            chosen: slice | NDArray[np.int64] = rows if len(of_clock) == rows.stop - rows.start else of_clock
            clock = stream.clocks[index]
            ticks, duration = batch.start[chosen], batch.duration[chosen]
            anchor = settled.anchors[index] if settled is not None else None
            anchor = anchor or _anchor(ticks, _length(duration, clock), own[chosen], clock, stream)
            start_ns[chosen], end_ns[chosen] = place_ticks(ticks, duration, clock, anchor)
            is_tied = settled.tied[index] if settled is not None else _is_tied(index, clock, own[chosen])
            anchors[index], ties[index], tied[chosen] = anchor, is_tied, is_tied
        moved_ns = settled.moved_ns if settled is not None else _out_of_the_future(end_ns[rows], own[rows], stream)
        if moved_ns:
            for column in (start_ns[rows], end_ns[rows]):
                np.maximum(column + moved_ns, 0, out=column)
        placed[number] = settled or Settled(tuple(anchors), tuple(ties), moved_ns)
    moved = tuple(each.moved_ns if each is not None else 0 for each in placed)
    return Times(start_ns, end_ns, tied, np.ones(n, np.bool_), moved, tuple(placed))


def _is_tied(index: int, clock: Clock, own: NDArray[np.bool_]) -> bool:
    return index == HOST or clock.anchor is not None or bool(own.any())


def _out_of_the_future(end_ns: NDArray[np.int64], own: NDArray[np.bool_], stream: Stream) -> int:
    """What to add to the times of a stream; a delegate's foreign ticks, which may be anything, do not decide."""
    last_ns = int(end_ns[own].max() if own.any() else end_ns.max())
    return stream.received_ns - last_ns if last_ns > stream.latest_ns else 0


def duration_ns(batch: EventBatch) -> NDArray[np.int64]:
    """True duration of each event, int64[n] nanoseconds: floor(ticks * ratio), 0 where the event ended before it started."""
    result = np.zeros(len(batch), np.int64)
    for number, rows in _rows_by_stream(batch):
        stream = batch.streams[number]
        for index, clock in enumerate(stream.clocks):
            chosen = np.flatnonzero(batch.clock[rows] == index) + rows.start
            result[chosen] = _scale(_length(batch.duration[chosen], clock), clock)
    return result


def _rows_by_stream(batch: EventBatch) -> list[tuple[int, slice]]:
    streams = np.array([block.stream for block in batch.blocks], np.int64)
    firsts = np.flatnonzero(np.diff(streams, prepend=-1))
    edges = [*batch.bounds[firsts].tolist(), len(batch)]
    return [(int(streams[first]), slice(edges[i], edges[i + 1])) for i, first in enumerate(firsts) if edges[i] < edges[i + 1]]


def place_ticks(
    start: NDArray[np.uint64], duration: NDArray[np.uint64], clock: Clock, anchor: Anchor
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Start and end, int64[n] nanoseconds since 1970, of events that a clock counted in ticks, by the anchor that is given."""
    since, length = _since(start, anchor.ticks, clock), _length(duration, clock)
    origin = min(max(anchor.unix_ns, 0), LATEST_NS)  # a sender may say anything
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
    return np.array([max(-LATEST_NS, min(LATEST_NS, value)) for value in exact], np.int64)


def _shift(since_ns: NDArray[np.int64], origin_ns: int) -> NDArray[np.int64]:
    """The sum, kept within the range of a time: clipped before adding, so that it cannot overflow."""
    placed: NDArray[np.int64] = np.clip(since_ns, -origin_ns, LATEST_NS - origin_ns) + origin_ns
    return placed
