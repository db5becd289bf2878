"""
`inspect` against ExecuTorch's own Inspector, cell by cell, on the tables that the Inspector made of the captures.

A cell that differs must be explained by an entry of docs/inspector-differences.md, and by the check that belongs to it here.
"""

import ast
import csv
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from support.captures import CAPTURES, FIXTURES, Capture, Event
from support.differences import documented, explained
from support.jaeger import StoredSpan
from support.spans import TICK_ZERO_NS, resolve_dump

from otel_bridge.cli.main import otel_bridge

NS_PER_MS = 1_000_000
RECORD_OF = {"p50 (ms)": "p50_ns", "p90 (ms)": "p90_ns", "avg (ms)": "mean_ns", "min (ms)": "min_ns", "max (ms)": "max_ns"}


@dataclass(frozen=True)
class Line:
    """A line of the Inspector's table with what the bridge has for it: the record of `inspect`, and each sample's span."""

    cells: dict[str, str]
    record: dict[str, Any]
    events: list[Event]
    spans: list[StoredSpan]

    @property
    def is_delegated(self) -> bool:
        """Whether a delegate logged it."""
        return self.record["status"] is not None

    @property
    def shown_ns(self) -> list[int]:
        """How long each sample's span is."""
        return [span.end_ns - span.start_ns for span in self.spans]

    @property
    def true_ns(self) -> list[int]:
        """How long each sample's span says that the event was."""
        return [
            int(str(span.attributes.get("executorch.time.duration_ns", shown)))
            for span, shown in zip(self.spans, self.shown_ns, strict=True)
        ]

    def parsed(self, column: str) -> Any:
        """A cell as the Python value that it prints."""
        return ast.literal_eval(self.cells[column])

    def nanoseconds(self, column: str) -> Any:
        """A cell of milliseconds, or a list of them."""
        return np.multiply(self.parsed(column), NS_PER_MS)


def tables() -> list[str]:
    return sorted(str(path.relative_to(FIXTURES)).removesuffix(".inspector.csv") for path in FIXTURES.glob("*/*.inspector.csv"))


@cache
def records(capture_id: str) -> list[dict[str, Any]]:
    """What `inspect --format json` prints."""
    capture = CAPTURES[capture_id]
    mapping = FIXTURES / capture.model / "model.etrecord"
    command = ["inspect", str(capture.path), "--mapping", str(mapping), "--format", "json"]
    return list(json.loads(CliRunner().invoke(otel_bridge, command, catch_exceptions=False).stdout))


@cache
def lines(capture_id: str) -> list[Line]:
    """The Inspector's table in its order; a line's events are those of its block, name and start ticks."""
    capture = CAPTURES[capture_id]
    spans = resolve_dump(capture.dump, capture.mapping, model=capture.model).spans
    span_of = {event.number: span for event, span in capture.pair(spans, TICK_ZERO_NS)}
    found = []
    with (FIXTURES / f"{capture_id}.inspector.csv").open(newline="") as table:
        for cells in csv.DictReader(table):
            events = events_of(capture, cells)
            key = place_of(capture, events[0])
            (record,) = [each for each in records(capture_id) if place_in(each) == key]
            found.append(Line(cells, record, events, [span_of[event.number] for event in events]))
    return found


def events_of(capture: Capture, cells: dict[str, str]) -> list[Event]:
    """The events of a line, one a run: the Inspector's `start_time` holds their ticks."""
    starts = ast.literal_eval(cells["start_time"])
    wanted = (cells["event_block_name"], cells["event_name"])
    named = [event for event in capture.events if (event.block_name, str(event.identifier or event.name or 0)) == wanted]
    events = [event for event in named if event.start in starts]
    assert [event.start for event in events] == starts
    return events


def place_of(capture: Capture, event: Event) -> tuple[object, ...]:
    name = event.name if event.identifier is None else event.identifier
    return (capture.method_of(event) or event.block_name, event.instruction, name)


def place_in(record: dict[str, Any]) -> tuple[object, ...]:
    return (record["subject"], record["instruction"], record["event"])


def ours(line: Line, column: str) -> object:
    """What the bridge has for a cell, in the Inspector's form; None where `inspect` has nothing."""
    record = line.record
    cells = {
        "event_block_name": record["subject"],
        "event_name": record["event"],
        "delegate_debug_identifier": record["event"] if line.is_delegated else "",
        "is_delegated_op": str(line.is_delegated),
        "delegate_backend_name": record["delegate"] or "",
        "op_types": str(record["operators"]),
        "stack_traces": None if record["operators"] else "{}",
        "module_hierarchy": None if record["operators"] else "{}",
        "debug_data": "[]",
        "raw": str([float(length) for length in line.shown_ns]),
        "delegate_debug_metadata": None if any(event.metadata for event in line.events) else "",
    }
    return str(float(record[RECORD_OF[column]])) if column in RECORD_OF else cells.get(column)


def is_in_other_units(line: Line, column: str) -> bool:
    if column == "raw":
        return bool(np.allclose(line.nanoseconds(column), line.shown_ns, rtol=0, atol=1e-3))
    return column in RECORD_OF and bool(
        np.isclose(line.nanoseconds(column), line.record[RECORD_OF[column]], rtol=1e-9, atol=1e-3)
    )


def has_samples_in_spans(line: Line, column: str) -> bool:
    expected: Any = np.percentile(line.true_ns, 10) if column == "p10 (ms)" else line.true_ns
    return bool(np.allclose(line.nanoseconds(column), expected, rtol=0, atol=1e-3)) and line.record["count"] == len(line.spans)


def shows_zero_as_one(line: Line, _column: str) -> bool:
    lasted = np.rint(line.nanoseconds("raw")).astype(int).tolist()
    return 0 in lasted and lasted == line.true_ns and line.shown_ns == [max(length, 1) for length in lasted]


def has_no_known_length(line: Line, column: str) -> bool:
    """Whether nobody knows what the ticks of the line's events count: `inspect` says so, and the spans keep the ticks."""
    ticks = [event.end - event.start for event in line.events]
    kept = [[span.attributes.get(f"executorch.time.{end}_ticks") for end in ("start", "end")] for span in line.spans]
    expected: Any = np.percentile(ticks, 10) if column == "p10 (ms)" else ticks
    return (
        bool(np.allclose(line.nanoseconds(column), expected, rtol=0, atol=1e-3))
        and kept == [[str(event.start), str(event.end)] for event in line.events]
        and set(line.shown_ns) == {1}
        and line.record["time_quality"] == "unknown"
    )


def starts_in_unix_time(line: Line, column: str) -> bool:
    shown = zip(line.parsed(column), line.spans, strict=True)
    return all(
        span.start_ns == TICK_ZERO_NS + ticks or span.attributes.get("executorch.time.start_ticks") == str(ticks)
        for ticks, span in shown
        if "executorch.time.duration_ns" not in span.attributes  # made 1 ns long, perhaps to the left
    )


def is_named_by_method(line: Line, column: str) -> bool:
    return line.cells[column] == "Execute" and line.record["subject"] == line.spans[0].attributes.get(
        "executorch.method.name", line.record["subject"]
    )


def is_an_integer(line: Line, column: str) -> bool:
    return line.is_delegated and isinstance(line.record["event"], int) and line.cells[column] == str(line.record["event"])


def is_a_long_list(line: Line, column: str) -> bool:
    operators = line.record["operators"]
    if len(operators) < 5:
        return False
    return line.cells[column] == f"['{operators[0]}', '{operators[1]}' ... '{operators[-1]}'] ({len(operators)} total)"


def is_in_another_order(line: Line, column: str) -> bool:
    listed = ast.literal_eval(line.cells[column]) if line.cells[column].endswith("]") else []
    return bool(listed) and sorted(listed) == sorted(line.record["operators"])


def is_inside_a_kernel(line: Line, _column: str) -> bool:
    return str(line.record["event"]).startswith("native_call_") and not line.record["operators"] and not line.record["handles"]


def has_one_source_line(line: Line, column: str) -> bool:
    """Whether the first node of the Inspector's cell is where `inspect` and the span point to."""
    nodes: list[Any] = [*line.parsed(column).values()]
    if not nodes:
        return False
    if column == "module_hierarchy":
        path: str = [*nodes[0].values()][-1][0]
        return path == (line.record["module_path"] or "")
    attributes = line.spans[0].attributes
    frame = 'File "{}", line {}, in '.format(*(str(attributes.get(f"code.{key}")) for key in ("file.path", "line.number")))
    return frame in nodes[0] or ("code.file.path" not in attributes and line.record["event"] == "DELEGATE_CALL")


def is_in_the_spans(line: Line, column: str) -> bool:
    told = [{key for key in span.attributes if key.startswith("executorch.delegate.metadata")} for span in line.spans]
    return line.parsed(column) == [event.metadata for event in line.events] and all(told)


def is_no_forward(line: Line, column: str) -> bool:
    return line.record["subject"] in {"encode", "decode"} and not ast.literal_eval(line.cells[column] or "''")


EXPLANATIONS: dict[str, Callable[[Line, str], bool]] = {
    "units": is_in_other_units,
    "samples": has_samples_in_spans,
    "zero-length": shows_zero_as_one,
    "start-times": starts_in_unix_time,
    "unknown-lengths": has_no_known_length,
    "methods": is_named_by_method,
    "identifier-types": is_an_integer,
    "operator-order": is_in_another_order,
    "long-op-types": is_a_long_list,
    "native-calls": is_inside_a_kernel,
    "source-lines": has_one_source_line,
    "metadata": is_in_the_spans,
    "forward-only": is_no_forward,
}


def explanations(line: Line, column: str) -> list[str]:
    """The documented differences that explain a cell; empty where it agrees."""
    if line.cells[column] == ours(line, column):
        return []
    entries = documented()
    return [name for name, holds in EXPLANATIONS.items() if column in entries[name].columns and holds(line, column)] or ["none"]


@pytest.mark.parametrize("table", tables())
def test_rows_agree(table: str) -> None:
    """`inspect` has the Inspector's rows, all of them and in its order, with as many samples."""
    found = lines(table)
    assert [place_in(line.record) for line in found] == [place_in(record) for record in records(table)]
    assert [len(line.parsed("raw")) for line in found] == [line.record["count"] for line in found]


@pytest.mark.parametrize("table", tables())
def test_cells_agree_or_are_documented(table: str) -> None:
    """Each cell of the Inspector's table equals the bridge's, or differs in a way that docs/inspector-differences.md names."""
    unexplained = [
        (line.cells["event_name"], column, line.cells[column][:80], ours(line, column))
        for line in lines(table)
        for column in line.cells
        if column and "none" in explanations(line, column)
    ]
    assert unexplained == []


def test_each_documented_difference_is_there() -> None:
    """An entry of the page that explains no cell of any table is stale."""
    used = {
        name
        for table in tables()
        for line in lines(table)
        for column in line.cells
        if column
        for name in explanations(line, column)
    }
    assert used == {name for name, entry in documented().items() if entry.shown_by == "csv"} == set(EXPLANATIONS)


def test_the_page_is_whole() -> None:
    """Each entry of the page's table has a text, and each text stands in the table."""
    assert sorted(explained()) == sorted(documented())
