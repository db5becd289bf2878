"""How much of what delegates logged a mapping covers."""

from collections import Counter

import pytest
from hypothesis import given
from support.captures import CAPTURES
from support.mappings import mapping_of
from support.scenes import batch_of, batches, call, delegated, execute, runtime, stages_with
from support.spans import resolve_dump

from otel_bridge.model.events import EventBatch, EventKind
from otel_bridge.model.resolution import Status
from otel_bridge.report.coverage import COVERED, EXACT, Amount, Coverage, measure, together
from otel_bridge.v1 import mapping_pb2 as pb


def file_of(backend: str = "Toy", *identifiers: int | str) -> pb.MappingFile:
    """A delegate call at instruction 0 whose map has these identifiers."""
    return pb.MappingFile(mapping=mapping_of({each: [1] for each in identifiers}, backend=backend), build_id="build")


def measured(file: pb.MappingFile, *events: tuple[int | str, int]) -> Coverage:
    """The coverage of one inference with delegate events of these lengths, end to end."""
    start, inside = 0, []
    for identifier, length in events:
        inside.append(delegated(identifier, 0, start, start + length))
        start += length
    run = [*inside, call("DELEGATE_CALL", 0, 0, start), runtime("Method::execute", 0, start)]
    return measure(stages_with(file).run(batch_of((execute(), run))))


@pytest.mark.parametrize("name", sorted(CAPTURES))
def test_captures_are_covered_as_their_maps_say(name: str) -> None:
    """Events by status are those that `maps.json` gives, and with the identifiers that miss they are all."""
    found = CAPTURES[name]
    delegated_events = [event for event in found.events if event.identifier is not None]
    expected = Counter(found.resolution_of(event).status for event in delegated_events)
    coverage = measure(resolve_dump(found.dump, found.mapping).scene)
    assert {status.value: coverage.of({status}).events for status in Status if coverage.of({status}).events} == expected
    missing = {(p.method, p.instruction, p.identifier): amount.events for p, amount in coverage.missing(EXACT)}
    assert missing == Counter(
        (found.method_of(event), event.instruction, event.identifier)
        for event in delegated_events
        if found.resolution_of(event).status != "exact"
    )


def test_shares_are_of_events_and_of_their_time() -> None:
    """Three events in a map of one: a third of the events, a tenth of the time."""
    coverage = measured(file_of("Toy", "a"), ("a", 10), ("b", 40), ("b", 50))
    assert coverage.shares(COVERED) == (1 / 3, 1 / 10)
    assert [(place.identifier, amount) for place, amount in coverage.missing(COVERED)] == [("b", Amount(2, 90))]


def test_what_only_its_call_stands_for_is_covered_but_not_exact() -> None:
    """XNNPACK without its program: `delegate`."""
    coverage = measured(file_of("XnnpackBackend"), ("Add (ND) #1", 10))
    assert coverage.shares(COVERED) == (1.0, 1.0)
    assert coverage.shares(EXACT) == (0.0, 0.0)
    assert coverage.missing(COVERED) == []
    assert [place.status for place, _ in coverage.missing(EXACT)] == [Status.DELEGATE]


def test_phases_stand_outside() -> None:
    """Neither covered nor missing, whatever they took; with nothing else there is no share."""
    file = file_of("VgfBackend")
    coverage = measured(file, ("VGF_EXECUTE", 1000), ("op", 10))
    assert coverage.counted == Amount(1, 10)
    assert coverage.shares(COVERED) == (1.0, 1.0)
    alone = measured(file, ("VGF_EXECUTE", 1000))
    assert alone.missing(EXACT) == []
    with pytest.raises(ValueError, match="no delegate events"):
        alone.shares(COVERED)


def test_events_without_time_have_no_share_of_time() -> None:
    """XNNPACK's times are whole microseconds: many are 0."""
    assert measured(file_of("Toy", "a"), ("a", 0), ("b", 0)).shares(COVERED) == (0.5, None)


@given(batches())
def test_every_delegate_event_is_in_one_place(batch: EventBatch) -> None:
    """The places of a scene hold its delegate events, each once; two files together hold those of both."""
    coverage = measure(stages_with(file_of("Toy", "conv #1", 1)).run(batch))
    events = sum(amount.events for amount in coverage.places.values())
    assert events == int((batch.kind == EventKind.DELEGATE).sum())
    twice = together([coverage, coverage])
    assert {place: amount.events for place, amount in twice.places.items()} == {
        place: 2 * amount.events for place, amount in coverage.places.items()
    }
    missing = sum(amount.events for _, amount in coverage.missing(COVERED))
    assert missing + coverage.of(COVERED).events == coverage.counted.events
