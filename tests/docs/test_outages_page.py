"""docs/outages.md says what the tests show: its rows are the cases of tests, one to one."""

import ast

import pytest
from support.damages import CASES, REFUSED
from support.engines import ROOT
from support.outcomes import OUTCOMES, Outcome
from support.pages import table

PAGE = "docs/outages.md"

LONGER = {
    "the back end closes its connections": "e2e/test_long_outages.py test_connections_end_in_good_order",
    "it is up and down again": "e2e/test_long_outages.py test_up_and_down_again",
    "it is away for longer than": "e2e/test_long_outages.py test_away_for_longer_than_memory_lasts",
    "it is away until the spool is full": "e2e/test_long_outages.py test_away_until_the_spool_is_full",
    "it never takes one request": "e2e/test_long_outages.py test_one_request_fails_while_others_pass",
    "it is away when the bridge stops": "e2e/test_durable.py test_a_stop_keeps_what_does_not_leave",
    "the bridge is killed": "e2e/test_kills.py test_kills_at_any_moment",
    "the disk is full": "e2e/test_durable.py test_a_full_disk_is_told_and_waited_out",
    "a bit of the spool's file fell over": "e2e/test_durable.py test_a_damaged_record_is_counted",
}
"""How a row begins -> the test that shows it."""


def rows() -> list[dict[str, str]]:
    columns = ("back end", "over gRPC", "over HTTP", "requests", "emitted", "dropped", "dead letters", "copies")
    return table(PAGE, *columns)


def test_each_row_is_a_case() -> None:
    """In the order of the cases, and none is left out on either side."""
    assert [row["back end"] for row in rows()] == [outcome.back_end for outcome in OUTCOMES]


@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda outcome: outcome.back_end)
def test_a_row_says_what_the_case_asserts(outcome: Outcome) -> None:
    """To the number."""
    assert next(row for row in rows() if row["back end"] == outcome.back_end) == outcome.row()


@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda outcome: outcome.back_end)
def test_every_event_ends_once(outcome: Outcome) -> None:
    """The six events of a row are emitted or dropped, and none of them both."""
    assert outcome.emitted + sum(outcome.dropped.values()) == 6


def test_each_longer_outage_is_proved() -> None:
    """By a test that exists."""
    found = [row["what happens"] for row in table(PAGE, "what happens", "the bridge", "the sender is told", "lost", "copies")]
    assert len(found) == len(LONGER)
    for row, (start, place) in zip(found, LONGER.items(), strict=True):
        assert row.startswith(start)
        file, name = place.split()
        defined = {node.name for node in ast.walk(ast.parse((ROOT / "tests" / file).read_text())) if hasattr(node, "name")}
        assert name in defined, place


def test_each_damage_is_a_case() -> None:
    """What is refused says so, and what is not goes on."""
    found = {row["the disk"]: row["the next start"] for row in table(PAGE, "the disk", "the next start", "events")}
    assert list(found) == [name.strip("`") for name in (*CASES, *REFUSED)]
    assert {name for name, told in found.items() if told == "is refused"} == {name.strip("`") for name in REFUSED}
    assert all(told.startswith("goes on") for told in found.values() if told != "is refused")
