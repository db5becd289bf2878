"""
Times of delegates that do not count what the host counts, although ETDump gives them no clock of their own.

Invariants
* Only delegate events on the host's clock are read so: of any other clock the sender has said what a tick is.
* What a backend counts in nanoseconds or microseconds is as long as it says, whatever the host's ratio. Where the host counts
  nanoseconds too, both may count from one moment, and the event stays tied to the axis; else it is not.
* Ticks of a clock that nobody described have an order, and no length.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from otel_bridge.backends.backend import TimeQuality, Timing, Unit
from otel_bridge.clock.convert import HOST, Times
from otel_bridge.clock.ticks import place_ticks
from otel_bridge.model.events import EventBatch, EventKind
from otel_bridge.model.stream import Anchor, Clock

_ORIGIN_NS = 2**62
"""Where a clock of which only distances mean anything begins: the middle of the range."""


def apply_timings(
    batch: EventBatch, times: Times, timings: Sequence[Timing], timing: NDArray[np.int64], done: NDArray[np.bool_]
) -> Times:
    """
    The times of a batch as the backends mean them; `timing` is int64[n], the index into `timings` of each event's, and `done`
    bool[n], which times are right already (clock/converters.py).

    Distances are between events of one stream, so events of two calls are as far from each other as they were.
    """
    distinct = list(dict.fromkeys({id(each): each for each in timings}.values()))  # few objects, each hashed once
    foreign = [each.unit is not Unit.TICKS or each.quality is TimeQuality.FOREIGN_CLOCK for each in distinct]
    if not any(foreign):
        return times
    number = np.array([distinct.index(each) for each in timings], np.int64)[timing]
    eligible = (batch.kind == EventKind.DELEGATE) & (batch.clock == HOST) & ~done
    stream = np.array([block.stream for block in batch.blocks], np.int64)[batch.block_of]
    start, end, tied, known = times.start.copy(), times.end.copy(), times.tied.copy(), times.known.copy()
    for index in np.flatnonzero(foreign).tolist():
        rows = np.flatnonzero(eligible & (number == index))
        unit_ns, bits = distinct[index].unit.ns, distinct[index].counter_bits
        known[rows] = unit_ns is not None
        for of_stream in np.unique(stream[rows]).tolist():
            chosen = rows[stream[rows] == of_stream]
            host = batch.streams[of_stream].clocks[HOST]
            if unit_ns == 1 and (host.numerator, host.denominator, host.counter_bits) == (1, 1, bits):
                continue
            clock = Clock(unit_ns or 1, 1, bits)
            anchor = Anchor(int(batch.start[chosen[0]]), _ORIGIN_NS)
            start[chosen], end[chosen] = place_ticks(batch.start[chosen], batch.duration[chosen], clock, anchor)
            tied[chosen] = False
    return replace(times, start=start, end=end, tied=tied, known=known)
