"""Where the time of inferences went."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.mappings import mapping_of
from support.scenes import E, batch_of, batches, call, delegated, execute, runtime, scope, stages_with

from otel_bridge.mapping.source import read_source, write_file
from otel_bridge.model.events import BlockKind, EventKind
from otel_bridge.report.keys import By
from otel_bridge.report.totals import Total, Totals, add_up_by
from otel_bridge.spans.scene import Scene
from otel_bridge.v1 import mapping_pb2 as pb


def file_of(
    entries: dict[int | str, list[int]],
    *,
    backend: str = "Toy",
    operators: dict[int, Sequence[tuple[str, str]]] | None = None,
    weights: dict[int | str, list[int]] | None = None,
    kernels: dict[int, int] | None = None,
) -> pb.MappingFile:
    """A delegate call at instruction 0, with (module path, name) of its handles' operators; kernels by instruction."""
    mapping = mapping_of(entries, backend=backend)
    first = mapping.methods[0].instructions[0]
    for handle, known in (operators or {}).items():
        instruction = next((number for number, own in (kernels or {}).items() if own == handle), None)
        target = first if instruction is None else mapping.methods[0].instructions.add(id=instruction, handles=[handle])
        target.operators.add(handle=handle, operators=[pb.Operator(name=name, module_path=path) for path, name in known])
    for entry in first.entries:
        entry.weights.extend((weights or {}).get(getattr(entry, entry.WhichOneof("identifier") or ""), []))
    return pb.MappingFile(mapping=mapping, build_id="build")


def totals_of(by: By, file: pb.MappingFile, *runs: Sequence[E]) -> Totals:
    """Totals of inferences, one each."""
    return add_up_by(stages_with(file).run(batch_of(*((execute(n), run) for n, run in enumerate(runs)))), by)


def times(totals: Totals) -> dict[str, int]:
    """Nanoseconds by key, of one method."""
    assert len({row.method for row in totals.rows}) == 1
    return {row.key: row.total_ns for row in totals.rows}


TOY = file_of({"a": [1], "b": [1, 2]}, operators={1: [("m", "aten.a")], 2: [("n", "aten.b"), ("n", "aten.c")]})


def run_of(*events: E, call_ns: int = 100, whole_ns: int = 150) -> list[E]:
    """An inference with one delegate call."""
    return [*events, call("DELEGATE_CALL", 0, 10, 10 + call_ns), runtime("Method::execute", 0, whole_ns)]


def test_each_nanosecond_has_one_row() -> None:
    """Events have their own, the backend what its call has beyond them, the framework the rest; split operators by handles."""
    run = run_of(delegated("a", 0, 20, 40), delegated("b", 0, 40, 80))
    assert times(totals_of(By.IDENTIFIER, TOY, run)) == {"0: a": 20, "0: b": 40, "(Toy)": 40, "(framework)": 50}
    assert times(totals_of(By.OPERATOR, TOY, run)) == {
        "aten.a": 20 + 20, "aten.b": 10, "aten.c": 10, "(Toy)": 40, "(framework)": 50,
    }  # fmt: skip
    assert times(totals_of(By.MODULE, TOY, run)) == {"m": 40, "n": 20, "(Toy)": 40, "(framework)": 50}
    assert times(totals_of(By.BACKEND, TOY, run)) == {"Toy": 100, "(framework)": 50}


def test_weights_of_the_mapping_decide() -> None:
    """By handle; a handle with several nodes splits its part equally. They survive the file that the mapping is kept in."""
    weighted = file_of(
        {"b": [1, 2]}, operators={1: [("", "aten.a")], 2: [("", "aten.b"), ("", "aten.c")]}, weights={"b": [1, 3]}
    )
    run = run_of(delegated("b", 0, 20, 60))
    for file in (weighted, read_source(write_file(weighted, "x")), read_source(write_file(weighted, "x.json"))):
        assert times(totals_of(By.OPERATOR, file, run)) == {
            "aten.a": 10, "aten.b": 15, "aten.c": 15, "(Toy)": 60, "(framework)": 50,
        }  # fmt: skip


def test_of_nodes_that_several_identifiers_run_only_what_they_share_is_said() -> None:
    """A decomposed operator leaves its nodes under one handle: which of them `a` ran is not known, and no part is made up."""
    run = run_of(delegated("a #1", 0, 20, 40), delegated("b #1", 0, 40, 80))
    for path, module in (("m", {"m": 60, "(Toy)": 40}), ("n", {"(Toy)": 100})):
        file = file_of({"a #1": [1], "b #1": [1]}, operators={1: [("m", "aten.a"), (path, "aten.b")]})
        assert times(totals_of(By.OPERATOR, file, run)) == {"a": 20, "b": 40, "(Toy)": 40, "(framework)": 50}
        assert times(totals_of(By.MODULE, file, run)) == module | {"(framework)": 50}
    file = file_of({"a #1": [1], "b #1": [1]}, operators={1: [("m", "aten.a"), ("n", "aten.a")]})
    assert times(totals_of(By.OPERATOR, file, run)) == {"aten.a": 60, "(Toy)": 40, "(framework)": 50}


def test_what_no_operator_is_known_for_keeps_its_name() -> None:
    """By operator the shortened identifier, by module the backend; a handle without operators likewise, for its part."""
    file = file_of({"a #1": [1], "b #1": [1, 9]}, operators={1: [("m", "aten.a")]})
    run = run_of(delegated("b #1", 0, 20, 40), delegated("c #7", 0, 40, 50))
    assert times(totals_of(By.OPERATOR, file, run)) == {"aten.a": 10, "b": 10, "c": 10, "(Toy)": 70, "(framework)": 50}
    assert times(totals_of(By.MODULE, file, run)) == {"m": 10, "(Toy)": 10 + 10 + 70, "(framework)": 50}


def test_a_kernel_call_counts_once_and_belongs_to_what_its_kernel_names() -> None:
    """`native_call_<op>` lies in OPERATOR_CALL. A handle of several nodes: those of the kernel's name."""
    file = file_of(
        {"a": [1]},
        operators={1: [("", "aten.a")], 5: [("m", "aten.mul.Scalar"), ("n", "aten.bmm.default"), ("o", "aten.bmm.default")]},
        kernels={3: 5},
    )
    run = [
        call("DELEGATE_CALL", 0, 0, 10), scope("native_call_bmm.out", 3, 12, 42), call("OPERATOR_CALL", 3, 10, 50),
        call("MOVE_CALL", 4, 50, 53), runtime("Method::execute", 0, 60),
    ]  # fmt: skip
    rest = {"(Toy)": 10, "(framework)": 7}
    assert times(totals_of(By.OPERATOR, file, run)) == rest | {"aten.bmm.default": 40, "MOVE_CALL": 3}
    assert times(totals_of(By.MODULE, file, run)) == rest | {"n": 20, "o": 20, "(no module)": 3}
    assert times(totals_of(By.IDENTIFIER, file, run)) == rest | {"3: bmm.out": 40, "4: MOVE_CALL": 3}
    assert times(totals_of(By.BACKEND, file, run)) == {"Toy": 10, "(not delegated)": 43, "(framework)": 7}


def test_events_that_are_longer_than_their_call_are_scaled_to_it_and_marked() -> None:
    """Overlapping or in a foreign unit: 90 and 60 in a call of 100 become 60 and 40. Others are left alone."""
    file = file_of({"a": [1], "b": [2]})
    totals = totals_of(By.IDENTIFIER, file, run_of(delegated("a", 0, 10, 100), delegated("b", 0, 50, 110)))
    assert times(totals) == {"0: a": 60, "0: b": 40, "(Toy)": 0, "(framework)": 50}
    assert {row.key for row in totals.rows if row.is_scaled} == {"0: a", "0: b"}


def test_calls_that_are_longer_than_their_inference_take_their_events_with_them() -> None:
    """The scaling of a call reaches its events: all add up to the inference."""
    totals = totals_of(By.IDENTIFIER, TOY, run_of(delegated("a", 0, 20, 70), whole_ns=20))
    assert times(totals) == {"0: a": 20, "(Toy)": 0, "(framework)": 0}
    totals = totals_of(By.IDENTIFIER, TOY, run_of(delegated("a", 0, 20, 25), whole_ns=20))
    assert times(totals) == {"0: a": 5, "(Toy)": 15, "(framework)": 0}


def test_a_phase_has_what_its_inner_phases_leave() -> None:
    """VGF's phases nest by one clock."""
    file = file_of({}, backend="VgfBackend")
    run = run_of(delegated("VGF_COPY_INPUTS", 0, 20, 30), delegated("VGF_EXECUTE", 0, 15, 90))
    assert times(totals_of(By.IDENTIFIER, file, run)) == {
        "0: VGF_EXECUTE": 65, "0: VGF_COPY_INPUTS": 10, "(VgfBackend)": 25, "(framework)": 50,
    }  # fmt: skip


def test_what_is_no_time_has_no_row() -> None:
    """QNN's bytes and cycles are counters; its microseconds are time, on a host clock of nanoseconds."""
    file = file_of({}, backend="QnnBackend")
    events = (delegated("heap (bytes)", 0, 0, 4096), delegated("conv (cycles)", 0, 0, 50), delegated("total (us)", 0, 0, 7))
    found = times(totals_of(By.IDENTIFIER, file, run_of(*events, call_ns=10_000, whole_ns=20_000)))
    assert found == {"0: total (us)": 7000, "(QnnBackend)": 3000, "(framework)": 10_000}


def test_statistics_are_over_inferences() -> None:
    """One value an inference, 0 where the row has no time in it; every repeat counts."""
    loop = [
        delegated("a", 0, 10, 30),
        call("DELEGATE_CALL", 0, 10, 40),
        delegated("a", 0, 50, 60),
        call("DELEGATE_CALL", 0, 50, 60),
    ]
    runs = [[*loop, runtime("Method::execute", 0, 100)], run_of(delegated("a", 0, 20, 40)), run_of()]
    totals = totals_of(By.IDENTIFIER, TOY, *runs)
    row = next(row for row in totals.rows if row.key == "0: a")
    assert totals.inferences == {"forward": 3}
    assert (row.count, row.total_ns, row.share, row.mean_ns) == (3, 50, 50 / 400, 50 / 3)
    assert (row.p50_ns, row.p90_ns, row.p99_ns) == tuple(np.percentile([30, 20, 0], [50, 90, 99]))
    counts = {row.key: row.count for row in totals.rows}
    assert counts == {"0: a": 3, "(Toy)": 4, "(framework)": 3}


def test_an_inference_that_did_not_end_is_left_out_and_counted() -> None:
    """How long it took is not known, so its rows would not add up to anything."""
    totals = totals_of(By.BACKEND, TOY, run_of()[:-1], run_of())
    assert (totals.left_out, times(totals)) == (1, {"Toy": 100, "(framework)": 50})


def test_identifiers_of_two_types_are_two_rows() -> None:
    """1 is not "1"."""
    run = run_of(delegated(1, 0, 10, 20), delegated("1", 0, 20, 40))
    assert times(totals_of(By.IDENTIFIER, TOY, run)) == {"0: 1": 10, '0: "1"': 20, "(Toy)": 70, "(framework)": 50}


keys = st.dictionaries(
    st.sampled_from(["conv #1", "conv #2", "1", 0, 1, 2]),
    st.lists(st.integers(1, 4), min_size=1, max_size=3, unique=True),
    max_size=4,
)


@st.composite
def files(draw: st.DrawFn) -> pb.MappingFile:
    """A mapping for arbitrary batches: some handles without operators, some with several, some entries with weights."""
    entries = draw(keys)
    handles = sorted({handle for listed in entries.values() for handle in listed})
    names = st.lists(st.tuples(st.sampled_from(["", "m", "n"]), st.sampled_from(["aten.a", "aten.b"])), min_size=1, max_size=3)
    known = {handle: draw(names) for handle in handles if draw(st.booleans())}
    weights = {
        key: draw(st.lists(st.integers(0, 2**32 - 1), min_size=len(listed), max_size=len(listed)).filter(any))
        for key, listed in entries.items()
        if draw(st.booleans())
    }
    backend = draw(st.sampled_from(["Toy", "XnnpackBackend", "QnnBackend", "VgfBackend"]))
    return file_of(entries, backend=backend, operators=known, weights=weights)


@given(batches(), files())
@settings(max_examples=150)
def test_totals_conserve_time_and_counts(batch: object, file: pb.MappingFile) -> None:
    """The rows of a method are the time of its inferences, by whatever; each event is in one row, or split among several."""
    scene = stages_with(file).run(batch)  # type: ignore[arg-type]  # an EventBatch
    wholes = inferences_of(scene)
    for by in By:
        totals = add_up_by(scene, by)
        assert {method: sum(row.total_ns for row in rows_of(totals, method)) for method in totals.inferences} == wholes
        assert all(row.total_ns >= 0 for row in totals.rows)
        assert len({(row.method, row.key) for row in totals.rows}) == len(totals.rows)
        expected = sum(totals.inferences.values()) + timed_events(scene)
        counted = sum(row.count for row in totals.rows)
        assert counted == expected if by in {By.IDENTIFIER, By.BACKEND} else counted >= expected
        assert all(a.total_ns >= b.total_ns for method in totals.inferences for a, b in pairwise(rows_of(totals, method)))


def rows_of(totals: Totals, method: str) -> list[Total]:
    """The rows of one method."""
    return [row for row in totals.rows if row.method == method]


def inferences_of(scene: Scene) -> dict[str, int]:
    """Time of the inferences with an enclosing event, by method."""
    wholes: Counter[str] = Counter()
    for number, block in enumerate(scene.batch.blocks):
        if block.kind is BlockKind.EXECUTE and scene.tree.root[number] >= 0:
            wholes[scene.inference_at(number).method or block.name] += int(scene.timeline.length[scene.tree.root[number]])
    return dict(wholes)


def timed_events(scene: Scene) -> int:
    """Instructions and delegate events of those inferences, but for counters."""
    return sum(
        scene.batch.blocks[block].kind is BlockKind.EXECUTE
        and scene.tree.root[block] >= 0
        and kind in {EventKind.CALL, EventKind.DELEGATE}
        and not scene.templates[template].face.counter
        for block, kind, template in zip(scene.tree.block, scene.batch.kind, scene.template, strict=True)
    )
