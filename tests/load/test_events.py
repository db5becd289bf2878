"""Made-up events are what a device could have sent."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_bridge.errors import ConfigError
from otel_bridge.load.events import Call, Program, made_up, patterns, program_of
from otel_bridge.load.fleet import Fleet
from otel_bridge.mapping.source import read_source
from otel_bridge.model.events import EventKind
from otel_bridge.v1 import profiling_pb2 as pb
from otel_bridge.wire.admission import Receipt, Rules, admit_events
from otel_bridge.wire.frame import Frame

FIXTURES = Path(__file__).parents[1] / "fixtures"
NOW_NS = 1_800_000_000 * 10**9
RULES = Rules(lambda _key: True, lambda _key: True, 10**9)

identifiers = st.one_of(st.integers(0, 1000), st.text("abc", min_size=1, max_size=3))
calls = st.lists(st.one_of(st.none(), st.lists(identifiers, max_size=8)), min_size=1, max_size=5)
programs = calls.filter(any).map(lambda each: Program([Call(number, names) for number, names in enumerate(each)]))


@given(programs, st.integers(0, 200))
def test_a_pattern_has_as_many_events_as_were_asked_for(program: Program, more: int) -> None:
    """Each pattern has exactly the batch's events; together they use every identifier of every call, and nothing else."""
    events = program.least_events + more
    made = patterns(program, events)
    assert {pattern.events for pattern in made} == {events}
    logged = set()
    for pattern in made:
        rows = pattern.request.events
        assert sum(block.event_count for block in pattern.request.blocks) == events
        for row in pattern.delegate_rows:
            name = pattern.request.identifiers[rows.identifier[row]]
            logged.add((rows.instruction[row], name.text.decode() or name.number))
    assert logged == {(call.instruction, name) for call in program.calls for name in call.identifiers or ()}


@given(programs, st.integers(0, 60), st.integers(0, 16))
def test_the_bridge_takes_every_event(program: Program, more: int, metadata_bytes: int) -> None:
    """A body is admitted whole: nothing is rejected, blocks end with `Method::execute`, and the last event has just ended."""
    events = program.least_events + more
    fleet = Fleet([(program, patterns(program, events))], metadata_bytes=metadata_bytes, now_ns=lambda: NOW_NS)
    body = fleet.body().data
    admitted = admit_events(Frame.FromString(body), body, Receipt(NOW_NS), RULES, lambda *_: None)
    batch = admitted.batch
    assert (len(batch), dict(admitted.rejected)) == (events, {})
    ends = batch.bounds[1:] - 1
    assert {batch.names[batch.name[row]] for row in ends} == {"Method::execute"}
    (clock,) = batch.streams[0].clocks
    assert clock.anchor is not None
    assert (clock.anchor.ticks, clock.anchor.unix_ns) == (int((batch.start + batch.duration).max()), NOW_NS)
    with_metadata = batch.metadata[batch.kind == EventKind.DELEGATE]
    payloads = [batch.payloads[number] for number in with_metadata.tolist()]
    assert {len(payload) for payload in payloads} == {metadata_bytes}


def test_no_two_bodies_are_one_request() -> None:
    """Stream and sequence are new in every body, of one fleet and of another."""
    program = made_up(3)
    seen = set()
    for _ in range(2):
        fleet = Fleet([(program, patterns(program, 16))], devices=3)
        for _ in range(10):
            stream = pb.ExportEventsRequest.FromString(fleet.body().data).stream
            seen.add((stream.stream_id, stream.sequence))
    assert len(seen) == 20


def test_devices_take_turns_with_their_programs() -> None:
    """Device i runs program i modulo their count, and says so by its build."""
    programs = [Program((Call(0, [1]),), build=build) for build in ("a", "b")]
    fleet = Fleet([(program, patterns(program, 8)) for program in programs], devices=4)
    streams = [pb.ExportEventsRequest.FromString(fleet.body().data).stream for _ in range(8)]
    assert [stream.model.build_id for stream in streams] == [b"a", b"b"] * 4
    assert [stream.sequence for stream in streams] == [0] * 4 + [1] * 4
    assert len({stream.stream_id for stream in streams}) == 4


def test_every_pattern_of_every_program_has_its_turn() -> None:
    """However the numbers of devices, programs and patterns divide each other."""
    programs = [Program((Call(0, names),)) for names in ((1, 2), (3, 4))]
    fleet = Fleet([(program, patterns(program, 3)) for program in programs], devices=2)
    seen = {pb.ExportEventsRequest.FromString(fleet.body().data).identifiers[0].number for _ in range(4)}
    assert seen == {1, 2, 3, 4}


def test_a_batch_that_holds_no_inference_is_refused() -> None:
    """The error says how many events are needed."""
    with pytest.raises(ConfigError, match="--batch: is 2, and an inference of this program has at least 3"):
        patterns(made_up(5), 2)


def test_a_mapping_gives_its_identifiers() -> None:
    """Those of its first method with a debug handle map, as many as asked for, types kept."""
    mapping = read_source((FIXTURES / "toy_backend_str" / "model.etrecord").read_bytes()).mapping
    program = program_of(mapping, "b", None)
    names = [name for call in program.calls for name in call.identifiers or ()]
    assert (program.method, program.build) == ("forward", "b")
    assert len(names) == 4
    assert {type(name) for name in names} == {str}
    fewer = program_of(mapping, "b", 2)
    assert [name for call in fewer.calls for name in call.identifiers or ()] == names[:2]
    with pytest.raises(ConfigError, match="--identifiers: is 5, and the mapping has 4"):
        program_of(mapping, "b", 5)


def test_a_mapping_without_identifiers_is_refused() -> None:
    """XNNPACK gives no debug handle map, so nothing would be resolved exactly."""
    mapping = read_source((FIXTURES / "xnnpack" / "model.etrecord").read_bytes()).mapping
    with pytest.raises(ConfigError, match="no method of it has a delegate with identifiers"):
        program_of(mapping, "b", None)
