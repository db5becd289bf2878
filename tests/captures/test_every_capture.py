"""
Every capture of real ExecuTorch runs comes out whole and right.

What is expected is worked out from ExecuTorch's own reading of each dump and from its maps (support/captures.py).
"""

import json
from functools import cache

import pytest
from support.captures import CAPTURES, FIXTURES, Capture, Event
from support.jaeger import StoredSpan
from support.spans import TICK_ZERO_NS, Resolved, by_id, reference_spans, resolve_dump

from otel_bridge import __version__

SAMPLED_RANDOM_NOT_REMOTE = 0x103
INTERNAL = 1
METADATA = "executorch.delegate.metadata"

Pairs = list[tuple[Event, StoredSpan]]


@cache
def resolved(capture_id: str) -> Resolved:
    capture = CAPTURES[capture_id]
    return resolve_dump(capture.dump, capture.mapping, model=capture.model)


@pytest.fixture(params=CAPTURES)
def capture(request: pytest.FixtureRequest) -> Capture:
    return CAPTURES[request.param]


@pytest.fixture
def spans(capture: Capture) -> list[StoredSpan]:
    return resolved(capture.id).spans


@pytest.fixture
def pairs(capture: Capture, spans: list[StoredSpan]) -> Pairs:
    return capture.pair(spans, TICK_ZERO_NS)


def delegate_events(pairs: Pairs) -> Pairs:
    return [(event, span) for event, span in pairs if event.identifier is not None]


def said(span: StoredSpan, name: str) -> object:
    return span.attributes.get(f"executorch.{name}")


def test_no_dump_is_left_out() -> None:
    """Every dump of the fixtures is a capture, and each model but the one that nothing runs has one."""
    models = {path.parent.name for path in FIXTURES.glob("*/model.pte")}
    assert set(FIXTURES.rglob("*.etdp")) == {capture.path for capture in CAPTURES.values()}
    assert models - {capture.model for capture in CAPTURES.values()} == {"toy_delegate_int"}


def test_each_event_has_one_span(capture: Capture, pairs: Pairs) -> None:
    """There are as many spans as profiling events, and each event has its own; all other events are counted."""
    result = resolved(capture.id)
    assert len(result.spans) == len(capture.events) == len({span.span_id for _, span in pairs})
    assert sum(result.rejected.values()) == capture.other_events


def test_both_ways_to_build_spans_agree(capture: Capture, spans: list[StoredSpan]) -> None:
    """The fast path and the reference path decode to equal spans."""
    assert by_id(spans) == by_id(reference_spans(resolved(capture.id).scene))


def test_parents_follow_instructions(capture: Capture, pairs: Pairs) -> None:
    """A delegate event lies under its DELEGATE_CALL, `native_call_*` under its OPERATOR_CALL, all else under the root."""
    ids = {event.number: span.span_id for event, span in pairs}
    for event, span in pairs:
        parent = capture.parent_of(event)
        assert span.parent_span_id == (ids[parent.number] if parent else "")


def test_each_block_is_a_trace(capture: Capture, pairs: Pairs) -> None:
    """All spans of a block share a trace that no other block has; ids are never zero."""
    traces = {event.block: span.trace_id for event, span in pairs}
    assert len(set(traces.values())) == len(capture.blocks)
    assert all(traces[event.block] == span.trace_id for event, span in pairs)
    assert all(int(span.trace_id, 16) and int(span.span_id, 16) for _, span in pairs)


def test_spans_lie_in_their_parents(spans: list[StoredSpan]) -> None:
    """Every span ends after it starts, and none sticks out of its parent."""
    known = {span.span_id: span for span in spans}
    for span in spans:
        assert span.start_ns < span.end_ns
        if span.parent_span_id:
            parent = known[span.parent_span_id]
            assert parent.start_ns <= span.start_ns < span.end_ns <= parent.end_ns


def test_spans_lie_where_the_ticks_say(capture: Capture, pairs: Pairs) -> None:
    """
    An event inside its parent keeps its time; one that is not is moved there and tells its ticks. Zero shows as 1 ns, and so
    does a length in ticks of nobody knows what: in the captures only unknown backends have events outside their call.
    """
    for event, span in pairs:
        parent = capture.parent_of(event) or event
        inside = parent.start <= event.start <= event.end <= parent.end
        ticks = (said(span, "time.start_ticks"), said(span, "time.end_ticks"))
        assert ticks == ((None, None) if inside else (str(event.start), str(event.end)))
        assert span.end_ns - span.start_ns == (max(event.end - event.start, 1) if inside else 1)
        assert said(span, "time.duration_ns") == (None if event.end > event.start or not inside else 0)
        if inside and event.end > event.start:
            assert span.start_ns == TICK_ZERO_NS + event.start


def test_every_span_is_marked_alike(spans: list[StoredSpan]) -> None:
    """Kind INTERNAL, sampled, random, no remote parent, no fault, no link, and the bridge's own scope."""
    for span in spans:
        assert (span.kind, span.flags, span.status, span.links) == (INTERNAL, SAMPLED_RANDOM_NOT_REMOTE, 0, ())
        assert span.scope == ("otel_bridge", __version__)


def test_the_resource_names_model_and_mapping(capture: Capture, spans: list[StoredSpan]) -> None:
    """The resource says which model ran, and which mapping resolved it."""
    (mapping_id,) = {str(span.resource["executorch.mapping.id"]) for span in spans}
    assert len(bytes.fromhex(mapping_id)) == 8
    for span in spans:
        assert span.resource == {
            "service.name": capture.model,
            "executorch.model.name": capture.model,
            "executorch.model.version": "1",
            "executorch.model.build_id": f"sha256:{mapping_id}",
            "executorch.mapping.id": mapping_id,
            "executorch.runtime.version": "1.5.1",
        }


def test_roots_name_model_and_method(capture: Capture, pairs: Pairs) -> None:
    """A root is named for what ran: `execute <model>.<method>`, or `load <model>`."""
    for event, span in pairs:
        if event.is_root:
            method = capture.method_of(event)
            assert span.name == (f"execute {capture.model}.{method}" if method else f"load {capture.model}")
            assert said(span, "method.name") == method


def test_instructions_carry_their_handles(capture: Capture, pairs: Pairs) -> None:
    """An instruction's span has its id, method and all its handles; a delegate call its backend, a kernel its operators."""
    for event, span in pairs:
        if not event.is_call:
            continue
        handles = capture.handles_of_call(event)
        delegate = capture.delegate_of(event)
        assert said(span, "instruction.id") == event.instruction
        assert said(span, "method.name") == capture.method_of(event)
        assert said(span, "debug_handles") == handles
        assert said(span, "delegate.name") == delegate
        assert said(span, "resolution.status") is None
        if delegate:
            assert (span.name, said(span, "operator.names")) == (f"delegate {delegate}", None)
        else:
            assert said(span, "operator.names") == capture.operators_of(event, handles)


def test_a_kernel_is_named_for_its_native_call(capture: Capture, pairs: Pairs) -> None:
    """An OPERATOR_CALL is called what the kernel inside it is called."""
    kernels = {capture.parent_of(event): event.name for event, _ in pairs if (event.name or "").startswith("native_call_")}
    named = {event: span.name for event, span in pairs if event.name == "OPERATOR_CALL"}
    assert named == {call: (name or "").removeprefix("native_call_") for call, name in kernels.items()}


def test_delegate_events_resolve_as_the_maps_say(capture: Capture, pairs: Pairs) -> None:
    """A mapped identifier is `exact` with its own handles; one that is not mapped, or has no map, gets no handles."""
    for event, span in delegate_events(pairs):
        expected = capture.resolution_of(event)
        assert said(span, "resolution.status") == expected.status
        assert said(span, "debug_handles") == (expected.handles or None)
        assert said(span, "operator.names") == (capture.operators_of(event, expected.handles) or None)
        assert said(span, "delegate.name") == capture.delegate_of(event)


def test_only_delegate_events_have_a_status(pairs: Pairs) -> None:
    """Status, identifier and time quality stand on delegate events and nowhere else."""
    for event, span in pairs:
        for name in ("resolution.status", "delegate.debug_id", "time.quality"):
            assert (said(span, name) is not None) == (event.identifier is not None)


def test_names_have_low_cardinality(capture: Capture, pairs: Pairs) -> None:
    """A delegate event is named for its operators, else for its identifier without the ordinal."""
    for event, span in delegate_events(pairs):
        operators = capture.operators_of(event, capture.resolution_of(event).handles)
        if operators:
            assert span.name == ", ".join(operators)
        else:
            identifier = str(event.identifier)
            assert span.name == (
                f"id {identifier}" if isinstance(event.identifier, int) else identifier.partition("#")[0].rstrip()
            )


def test_metadata_is_kept(pairs: Pairs) -> None:
    """Metadata is decoded where it is JSON, kept as hex where it is not, and absent where there was none."""
    for event, span in pairs:
        kept = {key: value for key, value in span.attributes.items() if key.startswith(METADATA)}
        if event.metadata.startswith(b"{"):
            content = json.loads(event.metadata)
            assert kept == {f"{METADATA}.{key}": value for key, value in content.items()}
            assert [type(value) for value in kept.values()] == [float if isinstance(v, int) else str for v in content.values()]
        else:
            assert kept == ({f"{METADATA}_raw": event.metadata.hex()} if event.metadata else {})


@pytest.mark.parametrize(
    ("model", "status"),
    [("xnnpack", {"delegate"}), ("multi_method", {"delegate"}), ("toy_backend_int", {"exact", "unmapped_identifier"})],
)
def test_the_captures_hold_what_they_are_for(model: str, status: set[str]) -> None:
    """The tests above see each status: a law that no capture could break proves nothing."""
    of_model = [capture for capture in CAPTURES.values() if capture.model == model]
    seen = {
        capture.resolution_of(event).status
        for capture in of_model
        for event in capture.events
        if event.identifier is not None
    }  # fmt: skip
    assert seen == status


def test_both_methods_are_told_apart() -> None:
    """`multi_method` ran both its methods, twice each, and each inference is named for its own."""
    roots = [span for span in resolved("multi_method/run").spans if span.name.startswith("execute ")]
    assert sorted(str(said(span, "method.name")) for span in roots) == ["decode", "decode", "encode", "encode"]


@pytest.mark.parametrize("model", ["toy_backend_int", "toy_backend_str"])
def test_an_identifier_outside_the_map_keeps_its_metadata(model: str) -> None:
    """The toy delegates log one event under an identifier that their map lacks: it says so, and loses nothing."""
    capture = CAPTURES[f"{model}/run"]
    (unmapped,) = [
        (event, span)
        for event, span in capture.pair(resolved(capture.id).spans, TICK_ZERO_NS)
        if said(span, "resolution.status") == "unmapped_identifier"
    ]
    event, span = unmapped
    assert event.identifier in {999, "toy::unmapped#1"}
    assert said(span, "delegate.metadata_raw") == event.metadata.hex() != ""
