"""Delegate events inside each other: by containment, and only where times may be compared."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.etdump_writer import ProfileEvent, RunData, write_etdump
from support.mappings import mapping_of
from support.scenes import E, batch_of, batches, call, delegated, execute, runtime
from support.spans import Resolved, by_id, reference_spans, resolve_dump

from otel_bridge.backends.backend import TimeQuality
from otel_bridge.clock.convert import to_unix_ns
from otel_bridge.model.events import Block, EventBatch, EventKind, Part
from otel_bridge.spans.place import CODES, axis_of
from otel_bridge.spans.tree import NOWHERE, Tree, grow, nest
from otel_bridge.v1 import mapping_pb2


def nested(batch: EventBatch, *quality: TimeQuality) -> Tree:
    """The tree of a batch, nested; `quality` of each row, or of all."""
    times, tree = to_unix_ns(batch), grow(batch)
    codes = np.resize([CODES[each] for each in quality or [TimeQuality.MEASURED]], len(batch))
    return nest(batch, tree, times.start, times.end, axis_of(batch, codes))


def in_call(*events: E, block: Block | None = None) -> EventBatch:
    return batch_of((block or execute(), [*events, call("DELEGATE_CALL", 0, 0, 100), runtime("Method::execute", 0, 120)]))


def test_phases_lie_in_the_phase_that_contains_them() -> None:
    """As VGF and Vulkan log them, inner ones first: the shortest that contains an event is its parent, by its id."""
    events = [
        delegated("copy", 0, 10, 20),
        delegated("fence", 0, 30, 60),
        delegated("dispatch", 0, 25, 70),
        delegated("all", 0, 5, 90),
    ]
    tree = nested(in_call(*events))
    assert tree.parent.tolist() == [3, 2, 3, 4, NOWHERE, NOWHERE]
    assert tree.parent_place[:4].tolist() == [tree.place[row] for row in (3, 2, 3, 4)]


def test_of_two_equal_events_the_later_is_outside() -> None:
    """ExecuTorch writes an event when it ends; a coarse clock may give both the same ticks."""
    assert nested(in_call(delegated("in", 0, 5, 9), delegated("out", 0, 5, 9))).parent[:2].tolist() == [1, 2]


def test_overlap_is_no_containment_and_an_instant_is_in_nothing() -> None:
    """Events that overlap are siblings; one without length lies between its neighbours, not in the one that it touches."""
    events = [delegated("a", 0, 5, 20), delegated("b", 0, 15, 30), delegated("now", 0, 20, 20), delegated("in both", 0, 16, 18)]
    assert nested(in_call(*events)).parent[:4].tolist() == [4, 4, 4, 1]


@pytest.mark.parametrize(
    "quality", [TimeQuality.LAID_OUT, TimeQuality.ESTIMATED, TimeQuality.DURATION_ONLY, TimeQuality.UNKNOWN]
)
def test_starts_that_are_not_real_prove_nothing(quality: TimeQuality) -> None:
    """What a backend laid out, estimated or left out is not taken for a call within a call."""
    assert nested(in_call(delegated("in", 0, 5, 9), delegated("out", 0, 0, 50)), quality).parent[:2].tolist() == [2, 2]


def test_clocks_are_not_compared() -> None:
    """A shader in GPU ticks is in no phase of the host, whatever the numbers say; nor are two calls or two inferences."""
    host, gpu = TimeQuality.MEASURED, TimeQuality.FOREIGN_CLOCK
    events = in_call(delegated("shader", 0, 6, 8), delegated("ETVK_EXECUTE", 0, 5, 9))
    assert nested(events, gpu, host, host, host).parent[:2].tolist() == [2, 2]
    other = in_call(delegated("shader", 0, 6, 8, clock=1), delegated("ETVK_EXECUTE", 0, 5, 9))
    two_clocks = replace(other, streams=(replace(other.streams[0], clocks=other.streams[0].clocks * 2),))
    assert nested(two_clocks).parent[:2].tolist() == [2, 2]
    calls = [
        delegated("in", 0, 6, 8),
        call("DELEGATE_CALL", 0, 5, 9),
        delegated("out", 1, 0, 50),
        call("DELEGATE_CALL", 1, 0, 60),
    ]
    assert nested(batch_of((execute(), calls))).parent.tolist() == [1, NOWHERE, 3, NOWHERE]
    loop = [delegated("x", 0, 6, 8), call("DELEGATE_CALL", 0, 5, 9), delegated("x", 0, 4, 50), call("DELEGATE_CALL", 0, 4, 60)]
    assert nested(batch_of((execute(), loop))).parent.tolist() == [1, NOWHERE, 3, NOWHERE]


def test_parts_of_an_inference_are_not_nested() -> None:
    """The event that contains another may be in another part: the parent must not depend on where the parts are cut."""
    events = [delegated("in", 0, 5, 9), delegated("out", 0, 0, 50)]
    assert nested(in_call(*events, block=execute(part=Part(0, last=False, first_event=0)))).parent[:2].tolist() == [2, 2]


@given(batches(), st.sampled_from(TimeQuality))
def test_the_parent_is_the_shortest_event_that_contains(batch: EventBatch, quality: TimeQuality) -> None:
    """For any events: what a nested event hangs from contains it, is of its call and clock, and nothing in between does."""
    times, before, after = to_unix_ns(batch), grow(batch), nested(batch, quality)
    for row in np.flatnonzero(after.parent != before.parent):
        parent = after.parent[row]
        assert batch.kind[parent] == batch.kind[row] == EventKind.DELEGATE
        assert after.parent_place[row] == after.place[parent]
        for column in (before.block, before.parent, batch.instruction, batch.chain, batch.clock):
            assert column[row] == column[parent]
        assert times.start[parent] <= times.start[row] < times.end[row] <= times.end[parent]
    alike = (before.block, before.parent, batch.instruction, batch.chain, batch.clock, batch.kind)
    parts = [block.part is not None for block in batch.blocks]
    for row in np.flatnonzero(batch.kind == EventKind.DELEGATE):
        if quality not in (TimeQuality.MEASURED, TimeQuality.FOREIGN_CLOCK) or times.start[row] == times.end[row]:
            continue
        containing = [
            other
            for other in range(len(batch))
            if other != row
            and not parts[before.block[row]]
            and all(column[other] == column[row] for column in alike)
            and (times.start[other], -times.end[other], -other) <= (times.start[row], -times.end[row], -row)
            and times.end[row] <= times.end[other]
        ]
        nearest = max(containing, key=lambda each: (times.start[each], -times.end[each], -each), default=before.parent[row])
        assert after.parent[row] == nearest


def vgf_run(*, loads: bool = False) -> tuple[bytes, mapping_pb2.MappingFile]:
    """An ETDump as the VGF backend writes it (backends/arm/runtime/VGFBackend.cpp), with its mapping, which has no entries."""

    def phase(name: str, start: int, end: int, chain: int) -> ProfileEvent:
        return ProfileEvent(chain=chain, instruction=0, id_str=name, start=start, end=end)

    def inside(name: str, start: int, end: int, chain: int = -1) -> ProfileEvent:
        return ProfileEvent(name=name, chain=chain, instruction=0, start=start, end=end)

    init = [phase("VGF_INIT_LOAD", 110, 120, -1), phase("VGF_INIT_TOTAL", 105, 140, -1), inside("Method::init", 100, 150)]
    run = [
        phase("VGF_COPY_INPUTS", 210, 215, 0),
        phase("VGF_QUEUE_SUBMIT_AND_WAIT_FENCE", 230, 250, 0),
        phase("VGF_DISPATCH_AND_WAIT", 220, 260, 0),
        phase("VGF_EXECUTE", 205, 280, 0),
        inside("DELEGATE_CALL", 200, 290, 0),
        inside("Method::execute", 195, 300),
    ]
    blocks = ([RunData("Default", init)] if loads else []) + [RunData("Execute", run)]
    mapping = mapping_of({}, backend="VgfBackend")
    return write_etdump(blocks), mapping_pb2.MappingFile(mapping=mapping, build_id="vgf")


def parent_names(resolved: Resolved) -> dict[str, str]:
    """Name of each span -> name of its parent."""
    names = {span.span_id: span.name for span in resolved.spans}
    return {span.name: names.get(span.parent_span_id, "") for span in resolved.spans}


def test_a_run_of_vgf_is_a_tree_of_phases() -> None:
    """Both ways to build spans agree, and every child lies inside its parent."""
    resolved = resolve_dump(*vgf_run())
    found = parent_names(resolved)
    assert found["VGF_QUEUE_SUBMIT_AND_WAIT_FENCE"] == "VGF_DISPATCH_AND_WAIT"
    assert found["VGF_DISPATCH_AND_WAIT"] == found["VGF_COPY_INPUTS"] == "VGF_EXECUTE"
    assert found["VGF_EXECUTE"] == "delegate VgfBackend"
    assert by_id(resolved.spans) == by_id(reference_spans(resolved.scene))
    spans = {span.span_id: span for span in resolved.spans}
    for span in resolved.spans:
        if span.parent_span_id:
            parent = spans[span.parent_span_id]
            assert parent.start_ns <= span.start_ns < span.end_ns <= parent.end_ns


def test_initialisation_is_of_the_only_backend_that_the_model_has() -> None:
    """It has no instruction, so only a model with one backend says whose it is; a handle it never gets."""
    dump, file = vgf_run(loads=True)
    for second, known in (("VgfBackend", True), ("XnnpackBackend", False)):
        two = mapping_pb2.MappingFile()
        two.CopyFrom(file)
        two.mapping.methods[0].instructions.add(id=1, delegate=second, handles=[7])
        resolved = resolve_dump(dump, two)
        init = [span for span in resolved.spans if span.name.startswith("VGF_INIT")]
        assert [span.attributes.get("executorch.delegate.name") for span in init] == ["VgfBackend" if known else None] * 2
        assert {span.attributes["executorch.resolution.status"] for span in init} == {"phase"}
        assert not any("executorch.debug_handles" in span.attributes for span in init)
        assert parent_names(resolved)["VGF_INIT_LOAD"] == ("VGF_INIT_TOTAL" if known else "load model")


def test_each_turn_of_a_loop_keeps_its_own_events() -> None:
    """As a `map` of three turns writes it: the same instruction again and again, each with its own phases and its own span."""
    events = []
    for turn in range(3):
        start = 100 * turn
        for name, begin, end in (("inner", 20, 30), ("outer", 10, 40)):
            identifier = f"VGF_{name}"
            events.append(ProfileEvent(chain=0, instruction=0, id_str=identifier, start=start + begin, end=start + end))
        events.append(ProfileEvent(name="DELEGATE_CALL", chain=0, instruction=0, start=start + 5, end=start + 50))
        events.append(ProfileEvent(name="JF_CALL", chain=0, instruction=1, start=start + 60, end=start + 61))
    events.append(ProfileEvent(name="Method::execute", chain=-1, instruction=0, start=0, end=400))
    mapping = mapping_pb2.MappingFile(mapping=mapping_of({}, backend="VgfBackend"), build_id="vgf")
    resolved = resolve_dump(write_etdump([RunData("Execute", events)]), mapping)
    spans = {span.span_id: span for span in resolved.spans}
    assert len(spans) == len(events)
    for turn in range(3):
        low, high = (min(spans.values(), key=lambda s: s.start_ns).start_ns + 100 * turn + each for each in (0, 55))
        (inner,) = [span for span in spans.values() if span.name == "VGF_inner" and low <= span.start_ns <= high]
        outer = spans[inner.parent_span_id]
        turn_of = spans[outer.parent_span_id]
        assert (outer.name, turn_of.name) == ("VGF_outer", "delegate VgfBackend")
        assert low <= turn_of.start_ns < turn_of.end_ns <= high
