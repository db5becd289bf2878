"""Where spans lie on the time axis."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from support.scenes import NOON_NS, STREAM, batch_of, batches, call, delegated, execute, runtime, scope

from otel_bridge.clock.convert import to_unix_ns
from otel_bridge.model.events import EventBatch, EventKind
from otel_bridge.model.stream import Clock
from otel_bridge.spans.place import Timeline, place
from otel_bridge.spans.tree import NOWHERE, grow


def placed(batch: EventBatch) -> Timeline:
    """The timeline of a batch."""
    return place(batch, grow(batch), *to_unix_ns(batch))


def test_an_event_inside_its_call_stays_where_its_ticks_say() -> None:
    """Nothing is moved without need."""
    batch = batch_of(
        (execute(), [delegated(0, 0, 12, 15), call("DELEGATE_CALL", 0, 10, 20), runtime("Method::execute", 5, 30)])
    )
    timeline = placed(batch)
    assert timeline.start.tolist() == [NOON_NS + 12, NOON_NS + 10, NOON_NS + 5]
    assert timeline.end.tolist() == [NOON_NS + 15, NOON_NS + 20, NOON_NS + 30]
    assert not timeline.moved.any()


def test_an_event_of_foreign_ticks_is_moved_into_its_call_and_marked() -> None:
    """It starts with its call and is no longer than it; what it really took is kept."""
    events = [delegated(0, 0, 10**6, 10**6 + 4), delegated(1, 0, 10**6, 10**6 + 400), call("DELEGATE_CALL", 0, 10, 20)]
    timeline = placed(batch_of((execute(), [*events, runtime("Method::execute", 5, 30)])))
    assert list(zip(timeline.start[:2].tolist(), timeline.end[:2].tolist(), strict=True)) == [
        (NOON_NS + 10, NOON_NS + 14),
        (NOON_NS + 10, NOON_NS + 20),
    ]
    assert timeline.moved.tolist() == [True, True, False, False]
    assert timeline.length[:2].tolist() == [4, 400]


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


@given(batches())
def test_no_span_is_empty_and_no_delegate_event_sticks_out(batch: EventBatch) -> None:
    """For any events: end after start, a delegate event within its parent, and unmoved events where the clock says."""
    tree = grow(batch)
    start, end, known = to_unix_ns(batch)
    timeline = place(batch, tree, start, end, known)
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
    assert (timeline.start[still] == start[still]).all()
    assert (timeline.end[still] == end[still]).all()
