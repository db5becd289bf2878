"""Ticks become nanoseconds exactly, and nothing else happens to them."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.scenes import NOON_NS, STREAM, E, batch_of, call, delegated, execute, runtime

from otel_bridge.clock.convert import duration_ns, settle, to_unix_ns
from otel_bridge.model.events import EventKind, divide
from otel_bridge.model.stream import LATEST_NS, Anchor, Clock

ratios = st.tuples(st.integers(1, 2**63), st.integers(1, 2**63))


def times(clock: Clock, *pairs: tuple[int, int]) -> list[tuple[int, int]]:
    """Start and end of events of one clock, in nanoseconds since 1970."""
    stream = replace(STREAM, clocks=(clock,))
    events = [runtime("Method::execute", start, end) for start, end in pairs]
    found = to_unix_ns(batch_of((execute(), events), stream=stream))
    return list(zip(found.start.tolist(), found.end.tolist(), strict=True))


@given(ratios, st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_conversion_is_the_floor_of_the_exact_product(ratio: tuple[int, int], anchor: int, ticks: int) -> None:
    """A time is the anchor's plus floor(distance * ratio), for every ratio and distance, or the nearest time that exists."""
    clock = Clock(*ratio, anchor=Anchor(anchor, NOON_NS))
    distance = (ticks - anchor + 2**63) % 2**64 - 2**63
    exact = NOON_NS + (Fraction(distance) * Fraction(*ratio)).__floor__()
    assert [(min(max(exact, 0), 2**63 - 2),) * 2] == times(clock, (ticks, ticks))


@given(ratios, st.integers(0, 2**62))
def test_ticks_come_back(ratio: tuple[int, int], distance: int) -> None:
    """Where a tick is a nanosecond or longer, ticks -> nanoseconds -> ticks is exact: the smallest that gives the time."""
    numerator, denominator = max(ratio), min(ratio)
    ((start, _),) = times(Clock(numerator, denominator, anchor=Anchor(0, NOON_NS)), (distance, distance))
    if start < LATEST_NS:
        assert distance == -(-(start - NOON_NS) * denominator // numerator)


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
    found = to_unix_ns(batch_of((execute(), events), stream=stream))
    assert (found.start[2], found.end[2]) == (NOON_NS - 50_000, NOON_NS)
    assert found.start[1] == NOON_NS - 40_000


def test_without_an_anchor_and_without_runtime_events_the_delegates_are_all_there_is() -> None:
    """A batch of delegate events alone ends when the stream says."""
    stream = replace(STREAM, clocks=(Clock(),))
    found = to_unix_ns(batch_of((execute(), [delegated(1, 0, 5, 9), delegated(2, 0, 9, 12)]), stream=stream))
    assert found.end.tolist() == [NOON_NS - 3, NOON_NS]


def test_each_clock_has_its_own_anchor_and_ratio() -> None:
    """Two clocks in one inference are converted apart."""
    clocks = (Clock(anchor=Anchor(0, NOON_NS)), Clock(1000, 1, 32, Anchor(7, NOON_NS)))
    events = [E(EventKind.DELEGATE, 1, 9, 10, 0, clock=1), call("DELEGATE_CALL", 0, 1000, 4000)]
    found = to_unix_ns(batch_of((execute(), events), stream=replace(STREAM, clocks=clocks)))
    assert found.start.tolist() == [NOON_NS + 2000, NOON_NS + 1000]
    assert found.end.tolist() == [NOON_NS + 3000, NOON_NS + 4000]
    assert found.tied.all()


def test_a_corrected_clock_moves_every_event_alike() -> None:
    """The correction of a wrong wall clock is added to the anchor: distances stay."""
    stream = replace(STREAM, correction_ns=3600 * 10**9)
    found = to_unix_ns(batch_of((execute(), [runtime("Method::execute", 5, 8)]), stream=stream))
    assert (found.start[0], found.end[0] - found.start[0]) == (NOON_NS + 3600 * 10**9 + 5, 3)


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


def test_a_clock_that_only_delegates_read_needs_an_anchor() -> None:
    """Without one it has no place on the time axis; with one, or with an event of the runtime on it, it has."""

    def tied(clock: Clock, *more: E) -> list[bool]:
        events = [E(EventKind.DELEGATE, 1, 9, 10, 0, clock=1), *more, call("DELEGATE_CALL", 0, 1000, 4000)]
        return to_unix_ns(batch_of((execute(), events), stream=replace(STREAM, clocks=(Clock(), clock)))).tied.tolist()

    assert tied(Clock()) == [False, True]
    assert tied(Clock(anchor=Anchor(7, NOON_NS))) == [True, True]
    assert tied(Clock(), E(EventKind.SCOPE, "copy", 9, 11, 0, clock=1)) == [True, True, True]


@given(st.integers(0, 10**12), st.integers(0, 10**12), st.lists(st.integers(0, 10**12), min_size=1, max_size=5))
def test_no_run_ends_in_the_future(tolerance: int, early: int, ends: list[int]) -> None:
    """A request whose last event would end too late ends at receipt: moved as a whole, so that all distances stay."""
    stream = replace(STREAM, received_ns=NOON_NS + early, latest_ns=NOON_NS + early + tolerance)
    events = [runtime("Method::execute", end, end) for end in ends] + [delegated(1, 0, 2**50, 2**51)]
    free = to_unix_ns(batch_of((execute(), events), stream=STREAM))
    found = to_unix_ns(batch_of((execute(), events), stream=stream))
    late = NOON_NS + max(ends) > stream.latest_ns
    assert set((found.end - free.end).tolist()) == set((found.start - free.start).tolist()) == {found.moved_ns[0]}
    assert found.end[:-1].max() == (stream.received_ns if late else free.end[:-1].max())


@given(st.integers(1, 5), st.booleans(), st.booleans())
def test_parts_of_a_request_lie_where_the_whole_has_them(
    size: int,
    anchored: bool,  # noqa: FBT001 - Hypothesis names its arguments
    ahead: bool,  # noqa: FBT001 - the same
) -> None:
    """A request that is resolved in several passes is placed as one: by its last event, and moved as one."""
    anchor = Anchor(0, NOON_NS) if anchored else None
    stream = replace(STREAM, clocks=(Clock(anchor=anchor), Clock()), latest_ns=NOON_NS - 3_000 if ahead else STREAM.latest_ns)
    blocks = [
        (execute(n), [delegated(1, 0, n * 900, n * 900 + 7, clock=1), runtime("Method::execute", n * 1000, n * 1000 + 500)])
        for n in range(6)
    ]
    whole = batch_of(*blocks, stream=stream)
    expected = to_unix_ns(whole)
    found = [to_unix_ns(piece) for piece in divide(settle(whole), 2 * size)]
    assert np.concatenate([times.start for times in found]).tolist() == expected.start.tolist()
    assert np.concatenate([times.end for times in found]).tolist() == expected.end.tolist()
    assert np.concatenate([times.tied for times in found]).tolist() == expected.tied.tolist()
    assert {times.moved_ns for times in found} == {expected.moved_ns}
