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

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter, itemgetter

import numpy as np
from numpy.typing import NDArray

from otel_bridge.clock.ticks import later, length, place, scale, since
from otel_bridge.model.events import EventBatch, EventKind, decoded
from otel_bridge.model.stream import LATEST_NS, Anchor, Clock, Settled, Stream

_DELEGATE = EventKind.DELEGATE.value
"""A plain int: a member of an IntEnum takes longer to reach, and to compare with."""
HOST = 0
"""Index of the host's clock in a stream."""


@dataclass(frozen=True, slots=True, eq=False)
class Times:
    """
    When each of n events of s streams happened.

    start, end   int64[n]   nanoseconds since 1970, within 0 and 2^63 - 2
    tied         bool[n]    whether the clock of the event is tied to the time axis; if not, only distances mean anything
    known        bool[n]    whether a tick is a length of time that is known; if not, only the order means anything
    moved_ns     per stream, what was added to all of its times so that they do not lie in the future; 0 or less
    """

    start: NDArray[np.int64]
    end: NDArray[np.int64]
    tied: NDArray[np.bool_]
    known: NDArray[np.bool_]
    moved_ns: tuple[int, ...]


@dataclass(slots=True)
class _Run:
    """Some rows of one stream and clock, how many they are, and what places them (see `Settled`)."""

    stream: int
    clock: int
    rows: slice | NDArray[np.int64]
    events: int
    anchor: Anchor
    tied: bool


def settle(batch: EventBatch) -> EventBatch:
    """The batch, with what places its streams written down: divided, its parts have the times that they have in the whole."""
    batch = decoded(batch)
    runs = _runs(batch)
    moved_ns = to_unix_ns(batch).moved_ns
    streams = list(batch.streams)
    for number, of_stream in groupby(runs, attrgetter("stream")):
        found = {run.clock: run for run in of_stream}
        clocks = range(len(streams[number].clocks))
        anchors = tuple(found[index].anchor if index in found else None for index in clocks)
        ties = tuple(index in found and found[index].tied for index in clocks)
        settled = streams[number].settled or Settled(anchors, ties, moved_ns[number])
        streams[number] = replace(streams[number], settled=settled)
    return replace(batch, streams=tuple(streams))


def to_unix_ns(batch: EventBatch) -> Times:
    """
    The times of a batch.

    An event that ended before it started (only a 64-bit counter can show that) has length 0 at its start.
    """
    n = len(batch)
    start_ns, end_ns = np.empty(n, np.int64), np.empty(n, np.int64)
    tied = np.ones(n, np.bool_)
    alike: dict[tuple[int, int, int], tuple[Clock, list[_Run]]] = {}
    for run in _runs(batch):
        clock = batch.streams[run.stream].clocks[run.clock]
        alike.setdefault((clock.numerator, clock.denominator, clock.counter_bits), (clock, []))[1].append(run)
        if not run.tied:
            tied[run.rows] = False
    for clock, runs in alike.values():
        rows = _rows_of(runs, n)
        placed = place(batch.start[rows], batch.duration[rows], clock, *_origins(runs))
        if isinstance(rows, slice):  # all of them
            start_ns, end_ns = placed
        else:
            start_ns[rows], end_ns[rows] = placed
    moved_ns = _out_of_the_future(batch, start_ns, end_ns)
    return Times(start_ns, end_ns, tied, np.ones(n, np.bool_), moved_ns)


def _runs(batch: EventBatch) -> list[_Run]:
    """The events of a batch by stream and clock, streams in the order of their rows."""
    several = bool(batch.clock.any())
    runs = []
    for number, rows in _rows_by_stream(batch):
        stream = batch.streams[number]
        if not several:
            runs.append(_Run(number, HOST, rows, rows.stop - rows.start, *_anchor(batch, stream, HOST, rows)))
            continue
        clocks = batch.clock[rows]
        for index in np.unique(clocks).tolist():
            chosen = (clocks == index).nonzero()[0] + rows.start
            runs.append(_Run(number, index, chosen, len(chosen), *_anchor(batch, stream, index, chosen)))
    return runs


def _anchor(batch: EventBatch, stream: Stream, index: int, rows: slice | NDArray[np.int64]) -> tuple[Anchor, bool]:
    """What places a stream's rows of one clock, and whether that ties them to the time axis."""
    clock, settled = stream.clocks[index], stream.settled
    known = settled.anchors[index] if settled is not None else None
    if settled is not None and known is not None:
        return known, settled.tied[index]
    if clock.anchor is not None:
        anchor = clock.anchor
        return replace(anchor, unix_ns=anchor.unix_ns + stream.correction_ns) if stream.correction_ns else anchor, True
    own = batch.kind[rows] != _DELEGATE
    start, duration = batch.start[rows], batch.duration[rows]
    if own.any():
        start, duration = start[own], duration[own]
    last = int(later(since(start, start[0], clock), length(duration, clock)).max())
    return Anchor(int(start[0]) + last, stream.ended_ns), index == HOST or bool(own.any())


def _rows_of(runs: list[_Run], n: int) -> slice | NDArray[np.int64]:
    """The rows of some runs, in the order of these."""
    if sum(run.events for run in runs) == n and all(isinstance(run.rows, slice) for run in runs):
        return slice(0, n)
    return np.concatenate([np.arange(n)[run.rows] for run in runs])


def _origins(runs: list[_Run]) -> tuple[NDArray[np.uint64] | np.uint64, NDArray[np.int64] | int]:
    """Where the rows of some runs are counted from: ticks, and nanoseconds since 1970 (a sender may say anything)."""
    ticks = [run.anchor.ticks % 2**64 for run in runs]
    unix_ns = [min(max(run.anchor.unix_ns, 0), LATEST_NS) for run in runs]
    if len(runs) == 1:
        return np.uint64(ticks[0]), unix_ns[0]
    counts = np.array([run.events for run in runs], np.int64)
    return np.repeat(np.array(ticks, np.uint64), counts), np.repeat(np.array(unix_ns, np.int64), counts)


def _out_of_the_future(batch: EventBatch, start_ns: NDArray[np.int64], end_ns: NDArray[np.int64]) -> tuple[int, ...]:
    """
    Move streams that would end in the future; what was added to the times of each.

    A delegate's foreign ticks, which may be anything, do not decide, where there are others.
    """
    moved = [stream.settled.moved_ns if stream.settled is not None else 0 for stream in batch.streams]
    last_ns = int(end_ns.max(initial=0))
    for number, rows in _rows_by_stream(batch) if any(moved) or _may_be_late(batch.streams, last_ns) else ():
        stream = batch.streams[number]
        if stream.settled is None:
            own = batch.kind[rows] != _DELEGATE
            last_ns = int(end_ns[rows][own].max() if own.any() else end_ns[rows].max())
            moved[number] = stream.received_ns - last_ns if last_ns > stream.latest_ns else 0
        if moved[number]:
            for column in (start_ns[rows], end_ns[rows]):
                np.maximum(column + moved[number], 0, out=column)
    return tuple(moved)


def _may_be_late(streams: Sequence[Stream], last_ns: int) -> bool:
    return any(last_ns > stream.latest_ns for stream in streams)


def duration_ns(batch: EventBatch) -> NDArray[np.int64]:
    """True duration of each event, int64[n] nanoseconds: floor(ticks * ratio), 0 where the event ended before it started."""
    result = np.zeros(len(batch), np.int64)
    for number, rows in _rows_by_stream(batch):
        stream = batch.streams[number]
        for index, clock in enumerate(stream.clocks):
            chosen = np.flatnonzero(batch.clock[rows] == index) + rows.start
            result[chosen] = scale(length(batch.duration[chosen], clock), clock)
    return result


def _rows_by_stream(batch: EventBatch) -> list[tuple[int, slice]]:
    found: list[tuple[int, slice]] = []
    begin = 0
    streams = map(attrgetter("stream"), batch.blocks)
    for stream, blocks in groupby(zip(streams, batch.bounds[1:].tolist(), strict=True), itemgetter(0)):
        *_, (_, end) = blocks
        if end > begin:
            found.append((stream, slice(begin, end)))
        begin = end
    return found
