"""XNNPACK per operator, from the files of an export to the spans."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.captures import CAPTURES, Capture, Event, node_handles, operators_of
from support.jaeger import StoredSpan
from support.mappings import FIXTURES
from support.programs import Call, Kernel, Methods, write_program, xnnpack_payload
from support.scenes import E, batch_of, call, delegated, execute, runtime, spans_in, stages_with
from support.spans import TICK_ZERO_NS, by_id, decode, reference_spans, resolve_dump

from otel_bridge.mapping.etrecord import read_etrecord
from otel_bridge.mapping.merge import merge
from otel_bridge.mapping.pte import read_program
from otel_bridge.mapping.source import read_source
from otel_bridge.model.events import Block, EventBatch, Part, concatenate
from otel_bridge.report.table import tabulate
from otel_bridge.spans.assemble import assemble
from otel_bridge.v1 import mapping_pb2 as pb

XNNPACK = "XnnpackBackend"
RULE = "xnnpack.node_order"


def merged(model: str) -> pb.MappingFile:
    """The mapping of a fixture's ETRecord and program."""
    folder = FIXTURES / model
    program = read_program((folder / "model.pte").read_bytes())
    mapping = merge(read_etrecord((folder / "model.etrecord").read_bytes()), program)
    return pb.MappingFile(mapping=mapping, build_id=program.build_id)


def check(run: Capture, pairs: list[tuple[Event, StoredSpan]], handles: dict[int, int], *, operators: bool) -> None:
    """Each event of XNNPACK has its handle and its operators, or says that it has none; the others are as ever."""
    for event, span in pairs:
        said = {key.removeprefix("executorch."): value for key, value in span.attributes.items()}
        if event.number not in handles:
            assert said.get("resolution.status") != "derived"
            continue
        handle = handles[event.number]
        named = operators_of(run.model, run.method_of(event) or "", (handle,)) if operators and handle else ()
        assert said["resolution.status"] == ("derived" if handle else "delegate")
        assert said.get("resolution.rule") == (RULE if handle else None)
        assert said.get("debug_handles") == ((handle,) if handle else None)
        assert said.get("operator.names", ()) == named
        assert ("code.line.number" in said) == ("code.file.path" in said) == bool(named)


@pytest.mark.parametrize("name", CAPTURES)
def test_every_capture(name: str) -> None:
    """With both files of the export every event of XNNPACK is of one operator with its source line, on both span paths."""
    run = CAPTURES[name]
    file = merged(run.model)
    resolved = resolve_dump(run.dump, file)
    check(run, run.pair(resolved.spans, TICK_ZERO_NS), node_handles(run, file.mapping), operators=True)
    assert by_id(resolved.spans) == by_id(reference_spans(resolved.scene))


@pytest.mark.parametrize("name", ["xnn_mobile/run", "xnn_transformer/run", "multi_method/run", "two_backends/run"])
def test_program_alone(name: str) -> None:
    """The program alone is a mapping: it finds the method and the handles, and knows no operators."""
    run = CAPTURES[name]
    file = read_source((FIXTURES / run.model / "model.pte").read_bytes())
    resolved = resolve_dump(run.dump, file)
    check(run, run.pair(resolved.spans, TICK_ZERO_NS), node_handles(run, file.mapping), operators=False)


def test_without_nodes_nothing_is_derived() -> None:
    """A mapping of the ETRecord alone leaves XNNPACK's events to their delegate call."""
    run = CAPTURES["xnn_mobile/run"]
    statuses = {span.attributes.get("executorch.resolution.status") for span in resolve_dump(run.dump, run.mapping).spans}
    assert statuses == {None, "delegate"}


TWICE: Methods = {
    "forward": [
        Call(XNNPACK, xnnpack_payload([("Clamp", 1), ("Add", 2), ("Clamp", 3), ("Add", 4)])),
        Kernel("aten::add", "out"),
    ]
}
FILE = pb.MappingFile(mapping=read_program(write_program(TWICE)).mapping, build_id="build")
WHOLE = ["Clamp (NC) #1", "Add (ND) #1", "Clamp (NC) #2", "Add (ND) #2"]
FIRST_ONLY = ["Clamp (NC) #1", "Add (ND) #1", "Add (ND) #2"]
LAST_ONLY = ["Add (ND) #1", "Clamp (NC) #1", "Add (ND) #2"]
UNKNOWN = ["Clamp (NC) #1", "Add (ND) #1", "Mystery (NC) #1", "Add (ND) #2"]
HANDLES = {
    tuple(WHOLE): (1, 2, 3, 4),
    tuple(FIRST_ONLY): (1, 2, 4),
    tuple(LAST_ONLY): (2, 3, 4),
    tuple(UNKNOWN): (0, 0, 0, 0),
}


def inference(position: int, *calls: list[str], **more: object) -> tuple[Block, list[E]]:
    """One inference in which instruction 0 runs once for each of `calls`, and 1 at the end."""
    events = []
    tick = 10
    for identifiers in calls:
        begin = tick
        for identifier in identifiers:
            events.append(delegated(identifier, 0, tick, tick + 5))
            tick += 5
        events.append(call("DELEGATE_CALL", 0, begin, tick + 1, occurrence=0))
        tick += 2
    events += [call("OPERATOR_CALL", 1, tick, tick + 5), runtime("Method::execute", 0, tick + 6)]
    return execute(position, **more), events


def handles_in(batch: EventBatch) -> list[int]:
    """The handle of each delegate event, in row order; 0: none. The status says the same."""
    scene = stages_with(FILE).run(batch)
    found = []
    for number in scene.template.tolist():
        resolution = scene.templates[number].face.resolution
        if resolution.status is not None:
            assert resolution.status == ("derived" if resolution.handles else "delegate")
            found.append(resolution.handles[0] if resolution.handles else 0)
    return found


def test_one_identifier_of_two_nodes() -> None:
    """What an identifier stands for is decided by the call that logged it: one sequence never takes the template of another."""
    blocks = [
        inference(number, sequence) for number, sequence in enumerate([FIRST_ONLY, LAST_ONLY, FIRST_ONLY, UNKNOWN, WHOLE])
    ]
    wanted = [*HANDLES[tuple(FIRST_ONLY)], *HANDLES[tuple(LAST_ONLY)], *HANDLES[tuple(FIRST_ONLY)], 0, 0, 0, 0, 1, 2, 3, 4]
    assert handles_in(batch_of(*blocks)) == wanted
    stages = stages_with(FILE)
    apart = [span for block in blocks for span in spans_in(assemble(stages.run(batch_of(block)), 10**6))]
    together = spans_in(assemble(stages_with(FILE).run(batch_of(*blocks)), 10**6))
    assert sorted(map(str, apart)) == sorted(map(str, together))


def test_loops() -> None:
    """An instruction that runs again is aligned call by call."""
    assert handles_in(batch_of(inference(0, WHOLE, FIRST_ONLY, WHOLE))) == [1, 2, 3, 4, 1, 2, 4, 1, 2, 3, 4]


def test_ambiguous_sequences_stay_with_the_delegate() -> None:
    """Two nodes in a row that may both vanish, and one event: it is of neither, and its neighbours are of theirs."""
    steps: Methods = {"forward": [Call(XNNPACK, xnnpack_payload([("Clamp", 1), ("Clamp", 2), ("Add", 3)])), Kernel("k")]}
    file = pb.MappingFile(mapping=read_program(write_program(steps)).mapping, build_id="build")
    scene = stages_with(file).run(batch_of(inference(0, ["Clamp (NC) #1", "Add (ND) #1"])))
    faces = [scene.templates[number].face for number in scene.template.tolist()[:2]]
    assert [(face.resolution.status, face.resolution.handles) for face in faces] == [("delegate", ()), ("derived", (3,))]


def test_parts_of_a_split_inference_stay_with_the_delegate() -> None:
    """Some of a call's events may lie in another part, so nothing is derived in any."""
    part = Part(0, last=True, first_event=0)
    assert handles_in(batch_of(inference(0, WHOLE, part=part))) == [0, 0, 0, 0]


def test_events_without_their_call_stay_with_the_delegate() -> None:
    """Where the row of the call is missing, the call may have broken off, or be several."""
    block, events = inference(0, WHOLE)
    assert handles_in(batch_of((block, [event for event in events if event.name != "DELEGATE_CALL"]))) == [0, 0, 0, 0]


def test_maps_win() -> None:
    """A delegate that has a debug handle map is resolved by it alone: order is for those without one."""
    file = pb.MappingFile()
    file.CopyFrom(FILE)
    file.mapping.methods[0].instructions[0].entries.add(text="Add (ND) #1", handles=[4])
    scene = stages_with(file).run(batch_of(inference(0, WHOLE)))
    found = [scene.templates[number].face.resolution for number in scene.template.tolist()[:4]]
    assert [(each.status, each.handles) for each in found[:2]] == [("unmapped_identifier", ()), ("exact", (4,))]


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.lists(
            st.lists(st.sampled_from([*WHOLE, "Mystery (NC) #1"]), max_size=5) | st.sampled_from([WHOLE, LAST_ONLY]), max_size=3
        ),
        min_size=1,
        max_size=4,
    )
)
def test_paths_and_passes_agree(inferences: list[list[list[str]]]) -> None:
    """For any sequences both span paths are equal, and so are the spans of one pass and of many."""
    batches = [batch_of(inference(number, *calls)) for number, calls in enumerate(inferences)]
    stages = stages_with(FILE)
    scene = stages.run(concatenate(batches))
    together = [span for payload in assemble(scene, 10**6) for span in decode(payload.data)]
    apart = [span for batch in batches for payload in assemble(stages.run(batch), 10**6) for span in decode(payload.data)]
    assert by_id(together) == by_id(reference_spans(scene)) == by_id(apart)


def test_rows_are_split_by_meaning() -> None:
    """`inspect` gives an identifier that resolves in two ways two rows, and one that resolves in one way a single one."""
    scene = stages_with(FILE).run(batch_of(*[inference(n, each) for n, each in enumerate([FIRST_ONLY, LAST_ONLY, LAST_ONLY])]))
    rows = [(row.name, row.resolution.handles, row.count) for row in tabulate(scene) if row.is_delegated]
    assert rows == [
        ("Clamp (NC) #1", (1,), 1),
        ("Add (ND) #1", (2,), 3),
        ("Add (ND) #2", (4,), 3),
        ("Clamp (NC) #1", (3,), 2),
    ]
