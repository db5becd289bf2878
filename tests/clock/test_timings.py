"""What backends say of their ticks decides how long their events are."""

from dataclasses import replace

import numpy as np
from support.scenes import NOON_NS, STREAM, batch_of, call, delegated, execute

from otel_bridge.backends.backend import TimeQuality, Timing, Unit
from otel_bridge.clock.convert import Times, to_unix_ns
from otel_bridge.clock.timings import apply_timings
from otel_bridge.model.stream import Anchor, Clock

HOST_24_MHZ = Clock(125, 3, anchor=Anchor(0, NOON_NS))


def timed(timing: Timing, *pairs: tuple[int, int], clock: Clock = HOST_24_MHZ, index: int = 0) -> Times:
    """Times of events of one backend on the host's clock, or on the clock of this index."""
    events = [delegated(number, 0, start, end, clock=index) for number, (start, end) in enumerate(pairs)]
    stream = replace(STREAM, clocks=(clock, Clock(1000, 1, anchor=Anchor(0, NOON_NS))))
    batch = batch_of((execute(), [*events, call("DELEGATE_CALL", 0, 0, 10)]), stream=stream)
    numbers = np.array([0] * len(pairs) + [1])
    return apply_timings(batch, to_unix_ns(batch), [timing, Timing()], numbers, np.zeros(len(batch), np.bool_))


def test_ticks_of_the_host_are_the_hosts() -> None:
    """Three ticks of a 24 MHz counter are 125 ns, and they lie where the anchor says."""
    times = timed(Timing(TimeQuality.MEASURED), (3, 6))
    assert (times.start[0], times.end[0]) == (NOON_NS + 125, NOON_NS + 250)
    assert times.known.all()
    assert times.tied.all()


def test_microseconds_are_microseconds_whatever_the_host_counts() -> None:
    """A value in microseconds is a thousand nanoseconds, not a thousandth of a tick; where it began is not known."""
    times = timed(Timing(TimeQuality.DURATION_ONLY, Unit.MICROSECONDS), (0, 250), (0, 7))
    assert (times.end - times.start).tolist()[:2] == [250_000, 7_000]
    assert (times.known.tolist(), times.tied.tolist()) == ([True] * 3, [False, False, True])


def test_nanoseconds_on_a_host_of_nanoseconds_may_be_the_hosts_own() -> None:
    """Both may count from one moment: whether they do shows in the call."""
    times = timed(Timing(TimeQuality.ESTIMATED, Unit.NANOSECONDS), (3, 6), clock=Clock(anchor=Anchor(0, NOON_NS)))
    assert (times.start[0], times.tied[0]) == (NOON_NS + 3, True)


def test_ticks_of_a_clock_that_nobody_described_have_no_length() -> None:
    """They keep their order, also over a wrap of the counter that the backend has."""
    times = timed(Timing(TimeQuality.FOREIGN_CLOCK, counter_bits=32), (2**32 - 5, 2), (2, 9))
    assert times.known.tolist() == [False, False, True]
    assert times.start[0] < times.end[0] == times.start[1] < times.end[1]


def test_on_a_clock_of_its_own_the_sender_says_what_a_tick_is() -> None:
    """The stream's ratio holds, whatever the backend's usual unit."""
    times = timed(Timing(TimeQuality.FOREIGN_CLOCK, Unit.NANOSECONDS), (3, 5), index=1)
    assert (times.start[0], times.end[0]) == (NOON_NS + 3000, NOON_NS + 5000)
    assert (times.known[0], times.tied[0]) == (True, True)
