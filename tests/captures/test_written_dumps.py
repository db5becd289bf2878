"""
What no capture holds: blocks without an event of their own that encloses them, and a delegate that no runtime exists for.

The dumps are written; the mappings are those of the fixtures.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from support.captures import mapping_of, maps_of, operators_of
from support.etdump_writer import ProfileEvent, RunData, write_etdump
from support.jaeger import StoredSpan
from support.spans import TICK_ZERO_NS, Resolved, by_id, reference_spans, resolve_dump

UNSET, ERROR = 0, 2
TOY_INT = "toy_backend_int"


def runtime(name: str, start: int, end: int) -> ProfileEvent:
    """An event outside any instruction, as ETDumpGen writes it."""
    return ProfileEvent(name=name, chain=-1, instruction=0, start=start, end=end)


def inside(name: str, start: int, end: int, *, instruction: int = 0) -> ProfileEvent:
    """A named event inside an instruction, or the instruction itself."""
    return ProfileEvent(name=name, chain=0, instruction=instruction, start=start, end=end)


def logged(identifier: int, start: int, end: int, *, chain: int = 0) -> ProfileEvent:
    """An event of a delegate at instruction 0 (chain -1: outside any instruction)."""
    return ProfileEvent(chain=chain, instruction=0, id_int=identifier, metadata=b"", start=start, end=end)


@dataclass(frozen=True)
class Case:
    """A block; the name, status, `error.type` and bounds of its root; and whether that root is of the bridge's making."""

    block: RunData
    root: str
    bounds: tuple[int, int]
    made: bool
    status: int = UNSET
    error: str | None = None


CASES = {
    "an inference that failed inside a delegate": Case(
        RunData("Execute", [logged(0, 20, 30)]), "execute toy.forward", (20, 30), made=True, status=ERROR, error="_OTHER"
    ),
    "an inference that failed between instructions": Case(
        RunData("Execute", [logged(0, 20, 30), inside("DELEGATE_CALL", 10, 40)]),
        "execute toy.forward", (10, 40), made=True, status=ERROR, error="_OTHER",
    ),
    "method-level profiling only": Case(
        RunData("Execute", [runtime("Method::execute", 10, 90)]), "execute toy.forward", (10, 90), made=False
    ),
    "a step instead of an execution": Case(
        RunData("Execute", [inside("DELEGATE_CALL", 20, 40), runtime("Method::step", 10, 50)]),
        "execute toy.forward", (10, 50), made=False,
    ),
    "a load without load_method": Case(
        RunData("Default", [runtime("Method::init", 10, 20)]), "load toy", (10, 20), made=False
    ),
    "a load of two methods": Case(
        RunData(
            "Default",
            [
                runtime("Method::init", 11, 20), runtime("Program::load_method", 10, 21),
                runtime("Method::init", 31, 40), runtime("Program::load_method", 30, 41),
            ],
        ),
        "load toy", (10, 41), made=True,
    ),
    "a delegate's initialisation": Case(
        RunData("Default", [logged(7, 12, 15, chain=-1), runtime("Method::init", 10, 20)]), "load toy", (10, 20), made=False
    ),
    "a block of another name": Case(
        RunData("warm_up", [inside("OPERATOR_CALL", 10, 20, instruction=3), inside("OPERATOR_CALL", 25, 30, instruction=4)]),
        "warm_up", (10, 30), made=True,
    ),
    "a block of another name that encloses itself": Case(
        RunData("warm_up", [runtime("copy", 12, 14), runtime("warm_up", 10, 20)]), "warm_up", (10, 20), made=False
    ),
}  # fmt: skip


def resolve(block: RunData) -> Resolved:
    return resolve_dump(write_etdump([block]), mapping_of(TOY_INT), model="toy")


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_each_block_has_one_root(case: Case) -> None:
    """A root is the block's enclosing event, else made to span its events; it is ERROR for an inference that never ended."""
    spans = resolve(case.block).spans
    (root,) = [span for span in spans if not span.parent_span_id]
    assert len(spans) == len(case.block.events or ()) + case.made
    assert (root.name, root.status, root.attributes.get("error.type")) == (case.root, case.status, case.error)
    assert (root.start_ns - TICK_ZERO_NS, root.end_ns - TICK_ZERO_NS) == case.bounds


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_span_hangs_from_the_root(case: Case) -> None:
    """All spans of a block are of one trace and lead to its root, inside their parents."""
    spans = resolve(case.block).spans
    known = {span.span_id: span for span in spans}
    assert len(known) == len(spans)
    assert len({span.trace_id for span in spans}) == 1
    for span in spans:
        if span.parent_span_id:
            parent = known[span.parent_span_id]
            assert parent.start_ns <= span.start_ns < span.end_ns <= parent.end_ns


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_both_ways_to_build_spans_agree_on_made_roots(case: Case) -> None:
    """The fast path and the reference path decode to equal spans."""
    result = resolve(case.block)
    assert by_id(result.spans) == by_id(reference_spans(result.scene))


def test_a_block_without_events_gives_no_span() -> None:
    """Nothing happened, so nothing is shown."""
    result = resolve(RunData("Execute", []))
    assert (result.spans, reference_spans(result.scene)) == ([], [])


def test_a_failed_inference_still_resolves() -> None:
    """What ran before the failure keeps its handles: a mapping of one method needs no whole inference to name it."""
    spans = resolve(CASES["an inference that failed inside a delegate"].block).spans
    (event,) = [span for span in spans if span.parent_span_id]
    entries = maps_of(TOY_INT)["delegate_map"]["forward"]["0"]["delegate_map"]
    assert event.attributes["executorch.resolution.status"] == "exact"
    assert event.attributes["executorch.debug_handles"] == tuple(entries["0"])


def test_a_delegates_initialisation_is_a_phase() -> None:
    """What a delegate logs outside any instruction is no operator."""
    spans = resolve(CASES["a delegate's initialisation"].block).spans
    assert [span.attributes.get("executorch.resolution.status") for span in spans if span.parent_span_id] == ["phase"]


def demo_dump() -> bytes:
    """One inference of the model in `toy_delegate_int`: identifiers 0 to 4, which its map has."""
    events: list[ProfileEvent] = [logged(number, 20 + 10 * number, 30 + 10 * number) for number in range(5)]
    return write_etdump([RunData("Execute", [*events, inside("DELEGATE_CALL", 10, 80), runtime("Method::execute", 0, 90)])])


def of_delegate(spans: Sequence[StoredSpan]) -> dict[str, StoredSpan]:
    return {
        str(span.attributes["executorch.delegate.debug_id"]): span
        for span in spans
        if "executorch.delegate.debug_id" in span.attributes
    }


def test_a_nested_graph_names_the_operators() -> None:
    """`toy_delegate_int` has the operators of handles 1 to 5 only in the call's own module: they are named, never the call."""
    call = maps_of("toy_delegate_int")["delegate_map"]["forward"]["0"]
    result = resolve_dump(demo_dump(), mapping_of("toy_delegate_int"))
    events = of_delegate(result.spans)
    assert events.keys() == call["delegate_map"].keys()
    assert {handle for handles in call["delegate_map"].values() for handle in handles} == {1, 2, 3, 4, 5}
    for identifier, handles in call["delegate_map"].items():
        attributes = events[identifier].attributes
        assert attributes["executorch.resolution.status"] == "exact"
        assert attributes["executorch.debug_handles"] == tuple(handles)
        names = operators_of("toy_delegate_int", "forward", handles)
        assert len(names) == len(handles)
        assert attributes["executorch.operator.names"] == names
        assert events[identifier].name == ", ".join(names)
    assert not any("executorch_call_delegate" in span.name for span in result.spans)
    assert by_id(result.spans) == by_id(reference_spans(result.scene))


def test_the_call_keeps_its_own_name() -> None:
    """The span of the delegate call is named for its backend, and has all handles of the call."""
    spans = resolve_dump(demo_dump(), mapping_of("toy_delegate_int")).spans
    (call,) = [span for span in spans if span.name.startswith("delegate ")]
    assert call.name == "delegate BackendWithDelegateMappingDemo"
    assert call.attributes["executorch.debug_handles"] == (1, 2, 3, 4, 5)
