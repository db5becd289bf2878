"""Ticks become nanoseconds exactly, and nothing else happens to them."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.scenes import NOON_NS, STREAM, E, batch_of, call, delegated, execute, runtime

from otel_bridge.clock.convert import duration_ns, to_unix_ns
from otel_bridge.model.events import EventKind
from otel_bridge.model.stream import Anchor, Clock

ratios = st.tuples(st.integers(1, 2**63), st.integers(1, 2**63))


def times(clock: Clock, *pairs: tuple[int, int]) -> list[tuple[int, int]]:
    """Start and end of events of one clock, in nanoseconds since 1970."""
    stream = replace(STREAM, clocks=(clock,))
    events = [runtime("Method::execute", start, end) for start, end in pairs]
    start, end, _ = to_unix_ns(batch_of((execute(), events), stream=stream))
    return list(zip(start.tolist(), end.tolist(), strict=True))


@given(ratios, st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_conversion_is_the_floor_of_the_exact_product(ratio: tuple[int, int], anchor: int, ticks: int) -> None:
    """A time is the anchor's plus floor(distance * ratio), for every ratio and distance, or the nearest time that exists."""
    clock = Clock(*ratio, anchor=Anchor(anchor, NOON_NS))
    distance = (ticks - anchor + 2**63) % 2**64 - 2**63
    exact = NOON_NS + (Fraction(distance) * Fraction(*ratio)).__floor__()
    assert [(min(max(exact, 0), 2**63 - 2),) * 2] == times(clock, (ticks, ticks))


@given(st.integers(1, 2**20), st.integers(1, 2**20), st.lists(st.integers(0, 2**40), min_size=2, max_size=8))
def test_conversion_keeps_order(numerator: int, denominator: int, ticks: list[int]) -> None:
    """What was not later in ticks is not later in nanoseconds: nesting survives."""
    ordered = sorted(ticks)
    converted = times(Clock(numerator, denominator, anchor=Anchor(2**39, NOON_NS)), *[(tick, tick) for tick in ordered])
    assert converted == sorted(converted)


@given(st.integers(0, 2**32 - 1), st.integers(-(2**31) + 1, 2**31 - 1))
def test_a_narrow_counter_is_unwrapped_before_it_is_converted(anchor: int, distance: int) -> None:
    """A 32-bit counter that passed its end since the anchor (or before it) is as far from it as it really was."""
    clock = Clock(41, 1, 32, Anchor(anchor, NOON_NS))
    tick = (anchor + distance) % 2**32
    assert [(NOON_NS + 41 * distance,) * 2] == times(clock, (tick, tick))


def test_a_duration_over_the_end_of_a_narrow_counter_is_exact() -> None:
    """From 10 ticks before the wrap to 5 after it are 15 ticks; ExecuTorch's Inspector counts 14."""
    clock = Clock(1, 1, 32, Anchor(0, NOON_NS))
    ((start, end),) = times(clock, (2**32 - 10, 5))
    assert (end - start, start) == (15, NOON_NS - 10)


def test_an_event_that_ends_before_it_starts_has_no_length() -> None:
    """A 64-bit counter cannot wrap, so an end before the start is a fault of the event, not of the clock."""
    assert times(Clock(anchor=Anchor(0, NOON_NS)), (40, 30)) == [(NOON_NS + 40, NOON_NS + 40)]


def test_without_an_anchor_the_last_event_of_the_runtime_ends_when_the_stream_says() -> None:
    """The runtime's own events place the batch; a delegate's event, of whatever ticks, does not."""
    stream = replace(STREAM, clocks=(Clock(1000, 1),), ended_ns=NOON_NS)
    events = [
        delegated("late", 0, 10**9, 2 * 10**9),
        call("DELEGATE_CALL", 0, 110, 140),
        runtime("Method::execute", 100, 150),
    ]
    start, end, _ = to_unix_ns(batch_of((execute(), events), stream=stream))
    assert (start[2], end[2]) == (NOON_NS - 50_000, NOON_NS)
    assert start[1] == NOON_NS - 40_000


def test_without_an_anchor_and_without_runtime_events_the_delegates_are_all_there_is() -> None:
    """A batch of delegate events alone ends when the stream says."""
    stream = replace(STREAM, clocks=(Clock(),))
    _, end, _ = to_unix_ns(batch_of((execute(), [delegated(1, 0, 5, 9), delegated(2, 0, 9, 12)]), stream=stream))
    assert end.tolist() == [NOON_NS - 3, NOON_NS]


def test_each_clock_has_its_own_anchor_and_ratio() -> None:
    """Two clocks in one inference are converted apart."""
    clocks = (Clock(anchor=Anchor(0, NOON_NS)), Clock(1000, 1, 32, Anchor(7, NOON_NS)))
    events = [E(EventKind.DELEGATE, 1, 9, 10, 0, clock=1), call("DELEGATE_CALL", 0, 1000, 4000)]
    start, end, _ = to_unix_ns(batch_of((execute(), events), stream=replace(STREAM, clocks=clocks)))
    assert start.tolist() == [NOON_NS + 2000, NOON_NS + 1000]
    assert end.tolist() == [NOON_NS + 3000, NOON_NS + 4000]


def test_a_corrected_clock_moves_every_event_alike() -> None:
    """The correction of a wrong wall clock is added to the anchor: distances stay."""
    stream = replace(STREAM, correction_ns=3600 * 10**9)
    start, end, _ = to_unix_ns(batch_of((execute(), [runtime("Method::execute", 5, 8)]), stream=stream))
    assert (start[0], end[0] - start[0]) == (NOON_NS + 3600 * 10**9 + 5, 3)


@pytest.mark.parametrize("ticks", [0, 1, 2**63, 2**64 - 1])
def test_no_time_leaves_the_range_of_a_time(ticks: int) -> None:
    """Whatever a device counts, a time is within 0 and 2^63 - 2 nanoseconds."""
    for start, end in times(Clock(2**63, 1, anchor=Anchor(2**62, 10**9)), (ticks, ticks)):
        assert 0 <= start <= end <= 2**63 - 2


def test_durations_are_exact_whatever_the_anchor() -> None:
    """A true duration is floor(ticks * ratio), not the difference of two rounded times."""
    clock = Clock(1, 3, anchor=Anchor(1, NOON_NS))
    batch = batch_of((execute(), [runtime("a", 2, 5), runtime("b", 3, 6)]), stream=replace(STREAM, clocks=(clock,)))
    assert duration_ns(batch).tolist() == [1, 1]
