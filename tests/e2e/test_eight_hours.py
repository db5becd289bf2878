"""What holds over eight hours of simulated time: retries, parking, retention, tokens, and the books at every minute."""

from collections.abc import Iterator
from itertools import pairwise

import pytest
from support.day import BUILDS, END_S, EVENTS, HOUR_S, MAX_AGE_S, PARKED_S, RETRY_MAX_S, Day, passed
from support.lives import trace_of

from otel_bridge.pipeline.parking import TICK_S
from otel_bridge.wire.entrance import LOOK_S

BACK_S = 4 * HOUR_S
UPLOAD_S = 5 * HOUR_S
A_MOMENT_S = 0.5

pytestmark = pytest.mark.timeout(180)  # the day is counted with the first of them


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Day]:
    """The day, after it has passed."""
    with passed(tmp_path_factory.mktemp("day")) as day:
        yield day


def taken_at(day: Day, sequence: int) -> float | None:
    """When the back end took the spans of a request; None: it never did."""
    times = {time_s for time_s, _ in day.back_end.taken.get(trace_of(sequence), [])}
    assert len(times) <= 1
    return next(iter(times), None)


def statuses(day: Day, sequence: int) -> set[str]:
    """What the delegate's event of a request says of its resolution."""
    return {status for _, status in day.back_end.taken[trace_of(sequence)] if status}


def test_the_books_balance_at_every_minute(day: Day) -> None:
    """They were looked at each minute, and in the end every event is emitted, once, or was given up."""
    assert day.minutes == END_S // 60 + 1
    counts = day.books.counts
    assert counts["accepted"] == EVENTS * len(day.sent) == counts["emitted"] + counts["dropped spool_age"]
    assert day.books.dropped_events == {"spool_age": counts["dropped spool_age"]}
    arrived = [sequence for sequence in day.sent if taken_at(day, sequence) is not None]
    assert counts["emitted"] == EVENTS * len(arrived) == sum(map(len, day.back_end.taken.values()))
    assert (day.outlet.events, day.outlet.parked_events, day.outlet.unaccounted_events) == (0, 0, 0)


def test_retries_follow_the_backoff_for_hours(day: Day) -> None:
    """One attempt at a time, after 1, 2, 4, 8, 16 seconds, and then every half minute; an end of the outage is seen as soon."""
    attempts = [time_s for time_s in day.back_end.attempts if HOUR_S <= time_s < BACK_S]
    gaps = [later - sooner for sooner, later in pairwise(attempts)]
    assert gaps == pytest.approx([min(2.0**n, RETRY_MAX_S) for n in range(len(gaps))])
    assert len(gaps) > 350
    assert min(time_s for time_s in day.back_end.attempts if time_s >= BACK_S) <= BACK_S + RETRY_MAX_S


def test_what_waits_for_its_mapping_goes_on_at_its_age(day: Day) -> None:
    """An hour after it began to wait, and a tick, also while the back end is away; nothing waits for longer."""
    times, counts = day.books.times, day.books.counts
    parked = [time_s for time_s, _ in times["parked"]]
    for gone, _ in times["unparked age"]:
        assert any(0 <= gone - since - PARKED_S <= TICK_S + A_MOMENT_S for since in parked)
    assert counts["parked"] == counts["unparked age"] + counts["unparked mapping"]
    assert any(HOUR_S < gone < BACK_S for gone, _ in times["unparked age"])


def test_a_mapping_that_comes_late_is_used(day: Day) -> None:
    """By all that waits for it at that moment, and by what comes after; what gave up before has none."""
    for sequence in day.sent:
        time_s, build = taken_at(day, sequence), BUILDS[sequence % len(BUILDS)]
        if time_s is not None:
            has_mapping = build == "known" or (build == "late" and time_s >= UPLOAD_S)
            assert statuses(day, sequence) == {"exact" if has_mapping else "no_mapping"}
    ((released_s, events),) = day.books.times["unparked mapping"]
    assert UPLOAD_S <= released_s <= UPLOAD_S + A_MOMENT_S
    waited = [
        sequence
        for sequence, sent_s in day.sent.items()
        if BUILDS[sequence % len(BUILDS)] == "late" and sent_s < UPLOAD_S <= (taken_at(day, sequence) or 0)
    ]
    assert events == EVENTS * len(waited) > 0


def test_what_is_older_than_the_spool_allows_is_given_up(day: Day) -> None:
    """To the request: of what stood in line during the outage, what joined it too long before its turn; never anything else."""
    turns = [time_s for time_s, _ in day.books.times["dropped spool_age"]]
    assert min(turns) >= BACK_S
    assert max(turns) <= BACK_S + RETRY_MAX_S + A_MOMENT_S
    on_the_way = 0
    for sequence, sent_s in day.sent.items():
        if sent_s < HOUR_S and (taken_at(day, sequence) or END_S) < HOUR_S:
            continue
        waits_first = BUILDS[sequence % len(BUILDS)] in {"late", "never"} and sent_s < HOUR_S
        joined_s = sent_s + (PARKED_S if waits_first else 0)
        if taken_at(day, sequence) is None:
            assert joined_s < max(turns) - MAX_AGE_S
        elif joined_s < min(turns) - MAX_AGE_S - TICK_S - A_MOMENT_S:
            on_the_way += 1
    assert 0 < on_the_way <= 4, "what was on its way when the back end went has had its turn"


def test_tokens_end_on_time(day: Day) -> None:
    """One that expires is refused from its second on; one that is new, or revoked, is known after the next look at the file."""
    assert day.doors["old"] == [(0.0, "in"), (3 * HOUR_S, "expired")]
    known = [(time_s, said) for time_s, said in day.doors["new"] if said != "unknown"]
    assert [said for _, said in known] == ["in", "revoked"]
    for (time_s, _), due_s in zip(known, (2.8 * HOUR_S, 6 * HOUR_S), strict=True):
        assert due_s <= time_s <= due_s + LOOK_S + A_MOMENT_S
