"""
Each entry of docs/inspector-differences.md, as ExecuTorch's Inspector answers it live and as the bridge does.

Invariant: the test of an entry is named for it, so that neither can be without the other. Dumps are captures, or written where
only a written one can show the difference.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.captures import CAPTURES, FIXTURES
from support.differences import documented
from support.etdump_writer import AllocationEvent, Event, ProfileEvent, RunData, write_etdump
from support.inspections import Answer, Both, Job, mapping_from
from support.spans import TICK_ZERO_NS, resolve_dump

from otel_bridge.report.table import Row, tabulate

pytestmark = pytest.mark.timeout(300)  # exporting models and importing torch take many seconds on a cold disk

Ask = Callable[[Sequence[Job]], list[Answer]]


def at(instruction: int, name: str, start: int = 10, end: int = 90, *, chain: int = 0) -> ProfileEvent:
    return ProfileEvent(name=name, chain=chain, instruction=instruction, start=start, end=end)


def by(identifier: int | str, instruction: int = 0) -> ProfileEvent:
    number, text = (identifier, None) if isinstance(identifier, int) else (None, identifier)
    return ProfileEvent(None, 0, instruction, number, text, b"", 20, 30)


EXECUTE = at(0, "Method::execute", 0, 100, chain=-1)
KERNEL, DELEGATE = at(1, "OPERATOR_CALL", 91, 95), at(0, "DELEGATE_CALL")
LOOP = [at(1, "OPERATOR_CALL", start, start + 5) for start in (10, 20, 30)]

WRITTEN: dict[str, Sequence[Sequence[Event]]] = {
    "identifiers": [[by(12), by(112), by(1), by(712), by(7), DELEGATE, KERNEL, EXECUTE]],
    "unknown call": [[by(1, instruction=1), KERNEL, EXECUTE]],
    "framework": [[at(0, "copy_inputs", 1, 2, chain=-1), at(0, "Method::init", 1, 2, chain=-1), DELEGATE, EXECUTE]],
    "loop": [[*LOOP, EXECUTE], [*LOOP, EXECUTE]],
    "branch": [[DELEGATE, KERNEL, EXECUTE], [DELEGATE, EXECUTE]],
    "wrapped": [[at(1, "OPERATOR_CALL", 2**32 - 6, 5), EXECUTE]],
    "reversed": [[at(1, "OPERATOR_CALL", 2**33, 5), EXECUTE]],
    "counter": [[ProfileEvent(None, 0, 0, None, "heap (bytes)", b"", 0, 4096), DELEGATE, EXECUTE]],
    "allocation": [[AllocationEvent(allocator=1, size=64), KERNEL, EXECUTE]],
}
"""Dumps of the model `numbers`: a delegate at 0 with identifiers 112, 12, 1 for handles 1, 2, 3; a kernel at 1 for handle 4."""


@pytest.fixture(scope="module")
def both(models: Path, ask: Ask, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Both]:
    """Both answers to a written dump or a capture, by name; "ms MODEL/RUN": the Inspector's in its own unit."""
    folder = tmp_path_factory.mktemp("written")
    jobs = {key: Job(capture.path, capture.path.parent / "model.etrecord") for key, capture in CAPTURES.items()}
    jobs["ms mixed_ops/run10"] = Job(FIXTURES / "mixed_ops/run10.etdp", FIXTURES / "mixed_ops/model.etrecord", "ms")
    jobs["multi_method/run alone"] = Job(FIXTURES / "multi_method/run.etdp")
    for name, blocks in WRITTEN.items():
        path = folder / f"{name}.etdp"
        path.write_bytes(write_etdump([RunData("Execute", events) for events in blocks]))
        jobs[name] = Job(path, models / "numbers" / "model.etrecord")
    answers = dict(zip(jobs, ask(list(jobs.values())), strict=True))

    def asked(name: str, *, with_program: bool = False, backend: str | None = None) -> Both:
        job = jobs[name]
        model = job.record.parent if job.record else job.dump.parent
        mapping = mapping_from(model, with_program=with_program)
        if backend is not None:
            mapping.mapping.methods[0].instructions[0].delegate = backend
        return Both(answers[name], resolve_dump(job.dump.read_bytes(), mapping))

    return asked


def test_units(both: Callable[[str], Both]) -> None:
    """Milliseconds as floats there, the same whole nanoseconds here."""
    asked = both("ms mixed_ops/run10")
    event = asked.theirs.events()[0, "DELEGATE_CALL"]
    row = asked.rows[0, "DELEGATE_CALL"]
    assert event["p50"] * 10**6 == pytest.approx(row.p50_ns, rel=1e-9)
    assert event["p50"] < 1 < row.min_ns == int(row.min_ns)


def test_samples(both: Callable[[str], Both]) -> None:
    """A list of samples there; here their number, percentiles, and a span each."""
    asked = both("mixed_ops/run10")
    raw = asked.theirs.events()[0, "DELEGATE_CALL"]["raw"]
    row = asked.rows[0, "DELEGATE_CALL"]
    assert (len(raw), min(raw), max(raw)) == (row.count, row.min_ns, row.max_ns) == (10, row.min_ns, row.max_ns)
    lasted = [span.end_ns - span.start_ns for span in asked.ours.spans if span.attributes.get("executorch.instruction.id") == 0]
    assert set(raw) <= set(lasted)


def test_zero_length(both: Callable[[str], Both]) -> None:
    """An event of no length is 0 there; its row here is 0 as well, and its span a nanosecond that says so."""
    asked = both("mixed_ops/run")
    assert asked.theirs.events()[0, "Add (ND) #1"]["raw"] == [0]
    assert asked.rows[0, "Add (ND) #1"].max_ns == 0
    (span,) = [each for each in asked.ours.spans if each.attributes.get("executorch.delegate.debug_id") == "Add (ND) #1"]
    assert (span.end_ns - span.start_ns, span.attributes["executorch.time.duration_ns"]) == (1, 0)


def foreign(asked: Both) -> Any:
    (span,) = [each for each in asked.ours.spans if each.attributes.get("executorch.delegate.debug_id") == "toy::unmapped#1"]
    return span


def test_start_times(both: Callable[[str], Both]) -> None:
    """Raw ticks there; Unix time here, and inside the call where the ticks are of another clock."""
    asked = both("toy_backend_str/run")
    call = asked.theirs.events()[0, "DELEGATE_CALL"]["start_time"][0]
    assert asked.theirs.events()[0, "toy::unmapped#1"]["start_time"] == [1000]
    span = foreign(asked)
    assert span.start_ns == TICK_ZERO_NS + call
    assert span.attributes["executorch.time.start_ticks"] == "1000"


def test_unknown_lengths(both: Callable[..., Both]) -> None:
    """Ticks that nobody described are a thousand nanoseconds there; here the row says `unknown`, the span shows no length."""
    asked = both("toy_backend_str/run")
    assert asked.theirs.events()[0, "toy::unmapped#1"]["raw"] == [1000]
    row, span = asked.rows[0, "toy::unmapped#1"], foreign(asked)
    assert (row.max_ns, row.time_quality) == (1000, "unknown")
    assert (span.end_ns - span.start_ns, span.attributes["executorch.time.end_ticks"]) == (1, "2000")
    assert "executorch.time.duration_ns" not in span.attributes
    asked = both("counter", backend="QnnBackend")
    assert asked.theirs.events()[0, "heap (bytes)"]["raw"] == [4096]
    assert asked.rows[0, "heap (bytes)"].max_ns == 0


def test_reversed_times(both: Callable[[str], Both]) -> None:
    """A wrap of 32 bits is taken for granted and is a tick short there, and beyond 32 bits ends it; here it lasts 0."""
    asked = both("wrapped")
    assert asked.theirs.events()[1, "OPERATOR_CALL"]["raw"] == [10]
    assert asked.rows[1, "OPERATOR_CALL"].max_ns == 0
    assert both("reversed").theirs.error.startswith("ValueError: Expected start_time (8589934592)")
    assert both("reversed").rows[1, "OPERATOR_CALL"].max_ns == 0


def test_methods(both: Callable[[str], Both]) -> None:
    """`Execute` is all that is known there; here rows have the method's name."""
    asked = both("multi_method/run alone")
    assert {block["name"] for block in asked.theirs.blocks} == {"Default", "Execute"}
    assert {row.subject for row in asked.table} == {"encode", "decode"}


def test_identifier_types(both: Callable[[str], Both]) -> None:
    """An integer identifier is a text in the name there, and an integer here."""
    asked = both("toy_backend_int/run")
    assert asked.theirs.events()[0, "0"]["name"] == "0"
    assert (0, 0) in asked.rows
    assert (0, "0") not in asked.rows


def test_repeats(both: Callable[[str], Both]) -> None:
    """Of three in each of two inferences, two samples there; six here."""
    asked = both("loop")
    event = asked.theirs.events()[1, "OPERATOR_CALL"]
    assert (len(event["raw"]), event["start_time"]) == (2, [30, 30])
    assert asked.rows[1, "OPERATOR_CALL"].count == 6


def test_runs(both: Callable[[str], Both]) -> None:
    """Two inferences that did not run the same are two blocks there, and one set of rows here."""
    asked = both("branch")
    assert [len(block["events"]) for block in asked.theirs.blocks] == [3, 2]
    assert {row.name: row.count for row in asked.rows.values()} == {
        "DELEGATE_CALL": 2,
        "OPERATOR_CALL": 1,
        "Method::execute": 2,
    }


def test_debug_data(both: Callable[[str], Both]) -> None:
    """Intermediate values stand with their events there; here they are counted and give no row."""
    asked = both("xnnpack/run1_debug")
    assert sum(len(block["events"]) for block in asked.theirs.blocks) == len(tabulate(asked.ours.scene))
    assert asked.ours.rejected == {"debug_event": CAPTURES["xnnpack/run1_debug"].other_events}


def test_allocation_events(both: Callable[[str], Both]) -> None:
    """An allocation event ends it there; here it is counted, and the others are shown."""
    asked = both("allocation")
    assert "Unable to find populated event" in asked.theirs.error
    assert asked.ours.rejected == {"allocation_event": 1}
    assert asked.rows.keys() == {(1, "OPERATOR_CALL"), (None, "Method::execute")}


def names_of(row: Row) -> list[str]:
    return [operator.name for operator in row.resolution.operators]


def test_operator_order(both: Callable[[str], Both]) -> None:
    """In the order of the delegate's list there; by handle here."""
    asked = both("mixed_ops/run")
    event, row = asked.theirs.events()[0, "DELEGATE_CALL"], asked.rows[0, "DELEGATE_CALL"]
    assert (event["handles"], row.resolution.handles) == ([1, 4, 2], (1, 2, 4))
    assert event["operators"] == ["aten.linear.default", "aten.add.Tensor", "aten.relu.default"]
    assert names_of(row) == ["aten.linear.default", "aten.relu.default", "aten.add.Tensor"]


def test_repeated_handles(both: Callable[[str], Both]) -> None:
    """A batch norm, which shares its handle with the `getitem` of its result, is there twice; here it is there once."""
    asked = both("xnn_mobile/run")
    event, row = asked.theirs.events()[0, "DELEGATE_CALL"], asked.rows[0, "DELEGATE_CALL"]
    norm = "aten._native_batch_norm_legit_no_training.default"
    assert event["operators"].count(norm) == 2 * names_of(row).count(norm) == 20
    assert sorted(set(event["handles"])) == list(row.resolution.handles)
    assert len(event["handles"]) == len(row.resolution.handles) + 10


def test_long_op_types(both: Callable[[str], Both]) -> None:
    """A shortened text there from five on; the whole list here."""
    asked = both("xnnpack/run10")
    operators = names_of(asked.rows[0, "DELEGATE_CALL"])
    (shown,) = asked.theirs.events()[0, "DELEGATE_CALL"]["shown_operators"]
    assert len(operators) >= 5
    assert shown == f"['{operators[0]}', '{operators[1]}' ... '{operators[-1]}'] ({len(operators)} total)"


def test_native_calls(both: Callable[[str], Both]) -> None:
    """The kernel has its instruction's operators there; here only the instruction has."""
    asked = both("mixed_ops/run")
    assert asked.theirs.events()[1, "native_call_cumsum.out"]["operators"] == ["aten.cumsum.default"]
    assert names_of(asked.rows[1, "native_call_cumsum.out"]) == []
    assert names_of(asked.rows[1, "OPERATOR_CALL"]) == ["aten.cumsum.default"]


def test_source_lines(both: Callable[[str], Both]) -> None:
    """The whole stack trace there; here the file and the line of its frame outside torch."""
    asked = both("mixed_ops/run")
    traces = asked.theirs.events()[0, "DELEGATE_CALL"]["traces"]
    first = asked.rows[0, "DELEGATE_CALL"].resolution.operators[0]
    assert traces["aten_linear_default_"].count("File ") > 1
    assert f'File "{first.file}", line {first.line}, in forward' in traces["aten_linear_default_"]


def test_metadata(both: Callable[[str], Both]) -> None:
    """Bytes there; attributes of the span here."""
    asked = both("toy_backend_str/run")
    assert bytes.fromhex(asked.theirs.events()[0, "toy::unmapped#1"]["metadata"][0]) != b""
    assert any(key.startswith("executorch.delegate.metadata") for key in foreign(asked).attributes)


def test_forward_only(both: Callable[[str], Both]) -> None:
    """A record without `forward` ends it there; here each method is resolved."""
    asked = both("multi_method/run")
    assert asked.theirs.error == "KeyError: 'forward'"
    assert {row.subject for row in asked.table if row.resolution.operators} == {"encode", "decode"}


def test_xnnpack_operators(both: Callable[..., Both]) -> None:
    """XNNPACK's events stand for nothing there; here for operators, once the program is part of the mapping."""
    asked = both("mixed_ops/run", with_program=True)
    event = asked.theirs.events()[0, "Fully Connected (NC, F32) GEMM #1"]
    row = asked.rows[0, "Fully Connected (NC, F32) GEMM #1"]
    assert (event["handles"], event["operators"]) == (None, [])
    assert (row.resolution.status, row.resolution.handles, names_of(row)) == ("derived", (1,), ["aten.linear.default"])


def test_substrings(both: Callable[[str], Both]) -> None:
    """Of the keys 112, 12, 1 the last that lies in an identifier is taken there, over the key that it is; here none is."""
    asked = both("identifiers")
    events = asked.theirs.events()
    assert {name: events[0, name]["handles"] for name in ("112", "12", "1", "712", "7")} == {
        "112": [3], "12": [3], "1": [3], "712": [3], "7": None,
    }  # fmt: skip
    ours = {name: asked.rows[0, name].resolution for name in (112, 12, 1, 712, 7)}
    assert {name: each.handles for name, each in ours.items()} == {112: (1,), 12: (2,), 1: (3,), 712: (), 7: ()}
    assert {ours[712].status, ours[7].status} == {"unmapped_identifier"}


def test_unknown_calls(both: Callable[[str], Both]) -> None:
    """A delegate's event at an instruction without a delegate has all its handles there; none here, and it says so."""
    asked = both("unknown call")
    assert asked.theirs.events()[1, "1"]["handles"] == 4
    assert (asked.rows[1, 1].resolution.handles, asked.rows[1, 1].resolution.status) == ((), "unmapped_instruction")


def test_framework_events(both: Callable[[str], Both]) -> None:
    """What is outside any instruction has the handles of instruction 0 there, and but for three names its operators too."""
    asked = both("framework")
    theirs = asked.theirs.events()
    for name, operators in (("copy_inputs", 3), ("Method::init", 0), ("Method::execute", 0)):
        assert (theirs[0, name]["handles"], len(theirs[0, name]["operators"])) == ([1, 2, 3], operators)
        assert (asked.rows[None, name].resolution.handles, names_of(asked.rows[None, name])) == ((), [])


def test_each_entry_is_shown() -> None:
    """Each entry of the page has a test of its name here, and each test has an entry."""
    tests = {name.removeprefix("test_").replace("_", "-") for name in globals() if name.startswith("test_")}
    assert tests - {"each-entry-is-shown"} == documented().keys()
