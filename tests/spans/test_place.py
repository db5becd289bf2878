"""Where spans lie on the time axis."""

from dataclasses import replace
from itertools import pairwise, permutations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from support.scenes import NOON_NS, STREAM, E, batch_of, batches, call, delegated, execute, runtime, scope

from otel_bridge.backends.backend import TimeQuality
from otel_bridge.clock.convert import to_unix_ns
from otel_bridge.model.events import EventBatch, EventKind
from otel_bridge.model.stream import Anchor, Clock, Stream
from otel_bridge.spans.place import CODES, UNKNOWN_NS, Timeline, place
from otel_bridge.spans.tree import NOWHERE, grow


def placed(batch: EventBatch, quality: TimeQuality = TimeQuality.MEASURED, *, known: bool = True) -> Timeline:
    """The timeline of a batch whose delegate events are worth this; `known`: whether their ticks have a known length."""
    times = to_unix_ns(batch)
    if not known:
        times = replace(times, known=batch.kind != EventKind.DELEGATE)
    return place(batch, grow(batch), times, np.full(len(batch), CODES[quality]))


def shown(timeline: Timeline, rows: int) -> list[tuple[int, int]]:
    """Start and end of the first rows, in nanoseconds from noon."""
    starts, ends = (timeline.start[:rows] - NOON_NS).tolist(), (timeline.end[:rows] - NOON_NS).tolist()
    return list(zip(starts, ends, strict=True))


def in_call(*events: E, low: int = 10, high: int = 20, stream: Stream = STREAM) -> EventBatch:
    """One inference with one delegate call from `low` to `high`."""
    around = [call("DELEGATE_CALL", 0, low, high), runtime("Method::execute", low - 5, high + 10)]
    return batch_of((execute(), [*events, *around]), stream=stream)


def test_an_event_inside_its_call_stays_where_its_ticks_say() -> None:
    """Nothing is moved without need."""
    batch = batch_of(
        (execute(), [delegated(0, 0, 12, 15), call("DELEGATE_CALL", 0, 10, 20), runtime("Method::execute", 5, 30)])
    )
    timeline = placed(batch)
    assert timeline.start.tolist() == [NOON_NS + 12, NOON_NS + 10, NOON_NS + 5]
    assert timeline.end.tolist() == [NOON_NS + 15, NOON_NS + 20, NOON_NS + 30]
    assert not timeline.moved.any()


def test_what_sticks_out_of_its_call_is_cut_there() -> None:
    """An event that begins inside its call was timed by the call's clock: the others stay, and its true length is kept."""
    timeline = placed(in_call(delegated(0, 0, 12, 15), delegated(1, 0, 18, 25), delegated(2, 0, 7, 11)))
    assert shown(timeline, 3) == [(12, 15), (18, 20), (10, 11)]
    assert timeline.moved.tolist() == [False, True, True, False, False]
    assert timeline.length[:3].tolist() == [3, 7, 4]


def test_events_of_another_axis_are_moved_together() -> None:
    """Where none begins inside the call, the first is shown at its start; distances and lengths stay."""
    timeline = placed(in_call(delegated(0, 0, 1006, 1007), delegated(1, 0, 1000, 1004)), TimeQuality.ESTIMATED)
    assert shown(timeline, 2) == [(16, 17), (10, 14)]
    assert timeline.moved[:2].all()


def test_a_clock_with_an_anchor_is_moved_no_further_than_needed() -> None:
    """It is wrong by little: its events keep to the side of the call on which they are."""
    clocks = (Clock(anchor=Anchor(0, NOON_NS)), Clock(anchor=Anchor(0, NOON_NS)), Clock())
    stream = replace(STREAM, clocks=clocks)
    late = in_call(delegated(0, 0, 15, 18, clock=1), delegated(1, 0, 18, 22, clock=1), stream=stream)
    assert shown(placed(late, TimeQuality.FOREIGN_CLOCK), 2) == [(13, 16), (16, 20)]
    early = in_call(delegated(0, 0, 8, 11, clock=1), delegated(1, 0, 12, 13, clock=1), stream=stream)
    assert shown(placed(early, TimeQuality.FOREIGN_CLOCK), 2) == [(10, 13), (14, 15)]
    untied = in_call(delegated(0, 0, 13, 15, clock=2), delegated(1, 0, 17, 18, clock=2), stream=stream)
    assert shown(placed(untied, TimeQuality.FOREIGN_CLOCK), 2) == [(10, 12), (14, 15)]


def test_durations_without_starts_lie_end_to_end_in_the_order_of_the_log() -> None:
    """QNN logs 0 to the value. What does not fit is cut at the end of the call, and keeps its true length."""
    timeline = placed(in_call(delegated(0, 0, 0, 4), delegated(1, 0, 0, 3), delegated(2, 0, 0, 9)), TimeQuality.DURATION_ONLY)
    assert shown(timeline, 3) == [(10, 14), (14, 17), (17, 20)]
    assert (timeline.length[:3].tolist(), timeline.moved[:3].tolist()) == ([4, 3, 9], [True] * 3)


def test_a_value_that_is_no_time_takes_no_room() -> None:
    """Between durations lies what has neither start nor a known length: a nanosecond long, and nothing gives way to it."""
    batch = in_call(delegated(0, 0, 0, 4), delegated(1, 0, 0, 300), delegated(2, 0, 0, 3))
    times = to_unix_ns(batch)
    times.known[1] = False
    timeline = place(batch, grow(batch), times, np.full(len(batch), CODES[TimeQuality.DURATION_ONLY]))
    assert shown(timeline, 3) == [(10, 14), (14, 15), (14, 17)]
    assert timeline.length[:3].tolist() == [4, UNKNOWN_NS, 3]


def test_ticks_that_nobody_described_show_their_order_and_no_length() -> None:
    """A nanosecond a step, from the start of the call: a picture of 1000 ns would say that ticks are nanoseconds."""
    events = [
        delegated(0, 0, 10**6, 10**6 + 900),
        delegated(1, 0, 10**6 + 950, 10**6 + 999),
        delegated(2, 0, 10**6, 10**6 + 999),
    ]
    timeline = placed(in_call(*events), TimeQuality.FOREIGN_CLOCK, known=False)
    assert shown(timeline, 3) == [(10, 11), (12, 13), (10, 13)]
    assert (timeline.length[:3].tolist(), timeline.moved[:3].tolist()) == ([UNKNOWN_NS] * 3, [True] * 3)


def test_a_backend_that_is_not_known_is_believed_inside_its_call_alone() -> None:
    """Each event for itself; one that is outside, or longer than the call, has no length that is known."""
    timeline = placed(in_call(delegated(0, 0, 12, 15), delegated(1, 0, 500, 600), delegated(2, 0, 11, 40)), TimeQuality.UNKNOWN)
    assert shown(timeline, 1) == [(12, 15)]
    assert timeline.length[:3].tolist() == [3, UNKNOWN_NS, UNKNOWN_NS]
    assert timeline.moved[:3].tolist() == [False, True, True]


def test_an_event_of_a_clock_that_nobody_describes_is_moved() -> None:
    """Without an anchor and an event of the runtime its times are right only among themselves."""
    stream = replace(STREAM, clocks=(STREAM.clocks[0], Clock()))
    events = [delegated(0, 0, 500, 510, clock=1), call("DELEGATE_CALL", 0, 10, 50), runtime("Method::execute", 5, 60)]
    timeline = placed(batch_of((execute(), events), stream=replace(stream, ended_ns=NOON_NS + 50)))
    assert timeline.moved.tolist() == [True, False, False]
    assert (timeline.start[0], timeline.end[0]) == (NOON_NS + 10, NOON_NS + 20)


def test_an_event_of_length_zero_is_shown_as_a_nanosecond_inside_its_call() -> None:
    """At the end of the call the nanosecond lies to the left."""
    events = [delegated(0, 0, 12, 12), delegated(1, 0, 20, 20), call("DELEGATE_CALL", 0, 10, 20)]
    timeline = placed(batch_of((execute(), [*events, runtime("Method::execute", 5, 30)])))
    assert timeline.start[:2].tolist() == [NOON_NS + 12, NOON_NS + 19]
    assert timeline.end[:2].tolist() == [NOON_NS + 13, NOON_NS + 20]
    assert timeline.length.tolist() == [0, 0, 10, 25]


def test_a_clock_that_stands_still_still_gives_spans() -> None:
    """A minimal PAL returns one constant: every span is a nanosecond, at one place."""
    events = [
        delegated(0, 0, 7, 7),
        call("DELEGATE_CALL", 0, 7, 7),
        scope("native_call_a", 1, 7, 7),
        call("OPERATOR_CALL", 1, 7, 7),
        runtime("Method::execute", 7, 7),
    ]
    timeline = placed(batch_of((execute(), events)))
    assert {NOON_NS + 7} == set(timeline.start.tolist())
    assert {NOON_NS + 8} == set(timeline.end.tolist())


def test_a_root_of_the_bridges_making_spans_what_the_runtime_logged() -> None:
    """A failed inference has no enclosing event; its delegates' foreign ticks do not stretch it."""
    events = [delegated(0, 0, 10**9, 10**9 + 1), call("DELEGATE_CALL", 0, 10, 20), call("OPERATOR_CALL", 1, 21, 40)]
    timeline = placed(batch_of((execute(), events)))
    assert list(zip(timeline.root_start.tolist(), timeline.root_end.tolist(), strict=True)) == [(NOON_NS + 10, NOON_NS + 40)]


@given(batches(), st.sampled_from(TimeQuality), st.booleans())
def test_no_span_is_empty_and_no_delegate_event_sticks_out(
    batch: EventBatch,
    quality: TimeQuality,
    known: bool,  # noqa: FBT001 - Hypothesis names its arguments
) -> None:
    """For any events: end after start, a delegate event within its parent, and unmoved events where the clock says."""
    tree, times = grow(batch), to_unix_ns(batch)
    timeline = placed(batch, quality, known=known)
    assert (timeline.end > timeline.start).all()
    for row in np.flatnonzero(batch.kind == EventKind.DELEGATE):
        parent, block = tree.parent[row], tree.block[row]
        low, high = (
            (timeline.root_start[block], timeline.root_end[block])
            if parent == NOWHERE
            else (timeline.start[parent], timeline.end[parent])
        )
        assert low <= timeline.start[row] < timeline.end[row] <= high
    still = ~timeline.moved & (timeline.length > 0)
    assert (timeline.start[still] == times.start[still]).all()
    assert (timeline.end[still] == times.end[still]).all()


_spans = st.tuples(st.integers(0, 300), st.integers(0, 80)) | st.tuples(st.integers(0, 10**12), st.integers(0, 10**12))
_clocks = st.sampled_from([Clock(anchor=Anchor(0, NOON_NS)), Clock(), Clock(3, 2, anchor=Anchor(0, NOON_NS))])


@given(st.lists(_spans, min_size=1, max_size=8), _clocks, st.integers(0, 1), st.sampled_from(TimeQuality), st.booleans())
def test_placing_keeps_order_lengths_and_what_contained_what(
    spans: list[tuple[int, int]],
    other: Clock,
    clock: int,
    quality: TimeQuality,
    known: bool,  # noqa: FBT001 - Hypothesis names its arguments
) -> None:
    """
    For any ticks: starts and ends keep their order, and so does what contained what, where starts are real; durations alone
    keep the order of the log and do not overlap before the end of the call; a length is true unless it was cut or is not known.
    """
    stream = replace(STREAM, clocks=(Clock(anchor=Anchor(0, NOON_NS)), other))
    events = [delegated(number, 0, start, start + length, clock=clock) for number, (start, length) in enumerate(spans)]
    batch = in_call(*events, low=100, high=200, stream=stream)
    times, timeline = to_unix_ns(batch), placed(batch, quality, known=known)
    real, seen = (list(zip(t.start.tolist(), t.end.tolist(), strict=True))[: len(spans)] for t in (times, timeline))
    length = timeline.length[: len(spans)].tolist()
    low, high = NOON_NS + 100, NOON_NS + 200
    for (start, end), true, before in zip(seen, length, real, strict=True):
        assert true in (before[1] - before[0], UNKNOWN_NS)
        assert true == UNKNOWN_NS or end - start == max(true, 1) or end == high or start == low
    if quality is TimeQuality.DURATION_ONLY:
        for first, second in pairwise(seen) if known else ():
            assert first[1] <= second[0] or second[1] == high
        return
    for a, b in permutations(range(len(spans)), 2):
        if (length[a] == UNKNOWN_NS) != (length[b] == UNKNOWN_NS):
            continue  # of a backend that is not known one event was believed, and one was not
        if real[a][0] <= real[b][0]:
            assert seen[a][0] <= seen[b][0] or seen[a][0] == high - 1 or real[a][0] == real[a][1]
        if real[a][0] <= real[b][0] < real[b][1] <= real[a][1]:
            assert seen[a][0] <= seen[b][0] < seen[b][1] <= seen[a][1]
