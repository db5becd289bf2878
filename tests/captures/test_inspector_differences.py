"""
What docs/inspector-differences.md says of the bridge where no capture shows the difference: on written ETDumps.

Invariant: the test of an entry is named for it, so that neither can be without the other.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from support.captures import CAPTURES, FIXTURES
from support.differences import documented
from support.etdump_writer import AllocationEvent, Event, ProfileEvent, RunData, write_etdump
from support.spans import resolve_dump

from otel_bridge.cli.main import otel_bridge

MAPS = {
    "debug_handle_map": {"forward": {"0": [1, 2, 3], "1": 4}},
    "delegate_map": {"forward": {"0": {"name": "Toy", "delegate_map": {"1": [1], "2": [2], "conv": [3], "conv #1": [1]}}}},
}


@pytest.fixture
def maps(tmp_path: Path) -> Path:
    path = tmp_path / "maps.json"
    path.write_text(json.dumps(MAPS))
    return path


@pytest.fixture
def rows(tmp_path: Path, maps: Path) -> "Rows":
    return Rows(tmp_path / "run.etdp", maps)


class Rows:
    """Runs `inspect` on a dump of blocks, each of which is one inference."""

    def __init__(self, dump: Path, maps: Path) -> None:
        self._dump = dump
        self._maps = maps
        self.stderr = ""

    def __call__(self, *blocks: Sequence[Event], options: Sequence[str] = ()) -> dict[tuple[Any, Any], dict[str, Any]]:
        """The records by (instruction, event)."""
        self._dump.write_bytes(write_etdump([RunData("Execute", events) for events in blocks]))
        command = ["inspect", str(self._dump), "--mapping", str(self._maps), "--format", "json", *options]
        done = CliRunner().invoke(otel_bridge, command, catch_exceptions=False)
        self.stderr = done.stderr
        records = json.loads(done.stdout)
        found = {(record["instruction"], record["event"]): record for record in records}
        assert len(found) == len(records)
        return found


def at(instruction: int, name: str, start: int = 10, end: int = 90, *, chain: int = 0) -> ProfileEvent:
    return ProfileEvent(name=name, chain=chain, instruction=instruction, start=start, end=end)


def by(identifier: int | str, instruction: int = 0, start: int = 20, end: int = 30) -> ProfileEvent:
    """A delegate's event."""
    number = identifier if isinstance(identifier, int) else None
    text = identifier if isinstance(identifier, str) else None
    return ProfileEvent(
        chain=0, instruction=instruction, id_int=number, id_str=text, metadata=b"", start=start, end=end
    )  # fmt: skip


EXECUTE = ProfileEvent(name="Method::execute", chain=-1, instruction=0, start=0, end=100)
KERNEL = at(1, "OPERATOR_CALL", 91, 95)


def test_substrings(rows: Rows) -> None:
    """An identifier that contains a key of the map is not that key; one that is a key is, as an integer too."""
    found = rows([by(12), by(2), by("conv #12"), by("conv #1"), at(0, "DELEGATE_CALL"), KERNEL, EXECUTE])
    resolved = {event: (record["status"], record["handles"]) for (_, event), record in found.items() if record["status"]}
    missed = ("unmapped_identifier", list[int]())
    assert resolved == {12: missed, 2: ("exact", [2]), "conv #12": missed, "conv #1": ("exact", [1])}


def test_unknown_calls(rows: Rows) -> None:
    """A delegate's event at an instruction that the mapping knows no delegate for gets none of its handles."""
    found = rows([by(1, instruction=1), at(1, "DELEGATE_CALL"), EXECUTE])
    assert (found[1, 1]["status"], found[1, 1]["handles"]) == ("unmapped_instruction", [])


def test_framework_events(rows: Rows) -> None:
    """Events outside any instruction, whose instruction id is written as 0, do not get the handles of instruction 0."""
    outside = [ProfileEvent(name=name, chain=-1, instruction=0, start=1, end=2) for name in ("copy_inputs", "Method::init")]
    found = rows([*outside, at(0, "DELEGATE_CALL"), KERNEL, EXECUTE])
    assert found[0, "DELEGATE_CALL"]["handles"] == [1, 2, 3]
    for name in ("copy_inputs", "Method::init", "Method::execute"):
        assert (found[None, name]["handles"], found[None, name]["operators"]) == ([], [])


def test_repeats(rows: Rows) -> None:
    """Every run of an instruction counts: those of a loop, and those of another chain."""
    loop: list[Event] = [at(1, "OPERATOR_CALL", start, start + 5) for start in (10, 20, 30)]
    other_chain = at(1, "OPERATOR_CALL", 40, 45, chain=1)
    found = rows([*loop, EXECUTE], [*loop, EXECUTE])
    assert found[1, "OPERATOR_CALL"]["count"] == 6
    assert rows([*loop, other_chain, EXECUTE])[1, "OPERATOR_CALL"]["count"] == 4


def test_runs(rows: Rows) -> None:
    """Inferences of one method share their rows although they did not run the same instructions."""
    found = rows([at(0, "DELEGATE_CALL"), KERNEL, EXECUTE], [at(0, "DELEGATE_CALL"), EXECUTE])
    assert {record["subject"] for record in found.values()} == {"forward"}
    counts = {event: record["count"] for (_, event), record in found.items()}
    assert counts == {"DELEGATE_CALL": 2, "OPERATOR_CALL": 1, "Method::execute": 2}


def test_reversed_times(rows: Rows) -> None:
    """A counter wraps where its width says so, to the tick; else an event that ends before it starts lasts 0."""
    wrapped = [at(1, "OPERATOR_CALL", 2**32 - 6, 5)]
    assert rows(wrapped, options=["--counter-bits", "32"])[1, "OPERATOR_CALL"]["max_ns"] == 11
    assert rows(wrapped)[1, "OPERATOR_CALL"]["max_ns"] == 0
    beyond = [at(1, "OPERATOR_CALL", 2**33, 5)]
    assert rows(beyond)[1, "OPERATOR_CALL"]["max_ns"] == 0


def test_allocation_events(rows: Rows) -> None:
    """An allocation event is counted, and costs the others nothing."""
    found = rows([AllocationEvent(allocator=1, size=64), KERNEL, EXECUTE])
    assert found.keys() == {(1, "OPERATOR_CALL"), (None, "Method::execute")}
    assert "allocation_event" in rows.stderr


def test_debug_data() -> None:
    """Intermediate values of a real capture are counted and give no span."""
    capture = CAPTURES["xnnpack/run1_debug"]
    assert FIXTURES.joinpath("xnnpack/run1_debug.dbg.bin").exists()
    result = resolve_dump(capture.dump, capture.mapping)
    assert capture.other_events > 0
    assert (len(result.spans), result.rejected) == (len(capture.events), {"debug_event": capture.other_events})


def test_each_entry_has_its_test() -> None:
    """Each entry of the page that is shown by a dump has a test of its name here, and each test has an entry."""
    tests = {name.removeprefix("test_").replace("_", "-") for name in globals() if name.startswith("test_")}
    entries = {name for name, entry in documented().items() if entry.shown_by == "dump"}
    assert tests - {"each-entry-has-its-test"} == entries
