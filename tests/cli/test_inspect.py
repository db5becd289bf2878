"""`otel-bridge inspect`: what is in an ETDump, in three forms."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.etdump_writer import DebugEvent, ProfileEvent, RunData, write_etdump

COLUMNS = [
    "subject", "instruction", "event", "count", "min_ns", "p50_ns", "p90_ns", "p99_ns", "max_ns", "mean_ns", "share",
    "status", "time_quality", "delegate", "handles", "operators", "module_path",
]  # fmt: skip
HOSTILE = ["[/red]", "[bold]x", "a\x1b[31mred\x1b[0m", "new\nline", "tab\t", "\u202eabc", "bell\x07", "=1+1", "é"]


def the_rows(cli: Callable[..., Any], *arguments: object) -> list[dict[str, Any]]:
    """The rows as JSON has them."""
    done = cli("inspect", *arguments, "--format", "json")
    assert done.code == 0
    rows: list[dict[str, Any]] = json.loads(done.out)
    return rows


def test_the_forms_agree(cli: Callable[..., Any], fixtures: Path) -> None:
    """JSON and CSV hold the same rows under the same names; the table shows each of them."""
    arguments = (fixtures / "multi_method" / "run.etdp", "--mapping", fixtures / "multi_method" / "model.etrecord")
    rows = the_rows(cli, *arguments)
    assert [list(row) for row in rows] == [COLUMNS] * len(rows)
    assert {row["subject"] for row in rows} >= {"encode", "decode"}
    read = list(csv.DictReader(io.StringIO(cli("inspect", *arguments, "--format", "csv").out)))
    assert [list(row) for row in read] == [COLUMNS] * len(rows)
    for row, cells in zip(rows, read, strict=True):
        written = {key: " ".join(map(str, value)) if isinstance(value, list) else value for key, value in row.items()}
        assert cells == {key: "" if value is None else str(value) for key, value in written.items()}
    heading, *lines = cli("inspect", *arguments).out.splitlines()
    assert heading.split()[:3] == ["method", "or", "block"]
    for row, line in zip(rows, lines, strict=True):
        assert line.startswith(row["subject"])
        assert str(row["event"]) in line
        assert f" {row['count']} " in line
        assert row["status"] is None or f" {row['status']} " in line


def test_types_are_kept(cli: Callable[..., Any], fixtures: Path) -> None:
    """Int and str identifiers stay apart in JSON, handles are numbers, and without a mapping nothing is resolved."""
    folder = fixtures / "toy_backend_int"
    rows = [row for row in the_rows(cli, folder / "run.etdp", "--mapping", folder / "model.etrecord") if row["status"]]
    assert {type(row["event"]) for row in rows} == {int}
    exact = [row for row in rows if row["status"] == "exact"]
    assert exact
    assert all(isinstance(handle, int) for row in exact for handle in row["handles"])
    assert {row["status"] for row in the_rows(cli, folder / "run.etdp") if row["status"]} == {"no_mapping"}


def test_ratios_scale_durations(cli: Callable[..., Any], fixtures: Path) -> None:
    """Durations are ticks times the ratio; shares do not change."""
    dump = fixtures / "xnnpack" / "run10.etdp"
    plain, scaled = the_rows(cli, dump), the_rows(cli, dump, "--tick-ratio", "1000/1")
    for key in ("min_ns", "p50_ns", "max_ns"):
        assert [row[key] * 1000 for row in plain] == pytest.approx([row[key] for row in scaled])
    assert [row["share"] for row in plain] == pytest.approx([row["share"] for row in scaled])


def test_foreign_names_do_no_harm(cli: Callable[..., Any], tmp_path: Path) -> None:
    """Names that hold escape sequences, line ends or markup are escaped in the table, each on its line, and kept in JSON."""
    events = [ProfileEvent(name=name, chain=-1, instruction=0, start=1, end=5) for name in HOSTILE]
    dump = tmp_path / "run.etdp"
    dump.write_bytes(write_etdump([RunData("a[/b]\x1b[0m", [*events, DebugEvent(name="d")])]))
    assert [row["event"] for row in the_rows(cli, dump)] == HOSTILE
    done = cli("inspect", dump)
    lines = done.out.splitlines()
    assert (done.code, len(lines)) == (0, 1 + len(HOSTILE))
    assert all(line.isprintable() for line in lines)
    for name, line in zip(HOSTILE, lines[1:], strict=True):
        assert line.startswith("a[/b]\\x1b[0m ")
        assert f" {name if name.isprintable() else name.encode('unicode_escape').decode()} " in line
    assert done.err == "1 events are not shown: debug_event\n"


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "no ETDump (0 bytes)"),
        (b"\x1b[31m" * 9, "no ETDump (45 bytes)"),
        (b'{"run_data": []}', "it looks like JSON"),
        (write_etdump([])[:-1], "the ETDump was cut"),
    ],
)
def test_a_bad_file(data: bytes, told: str, cli: Callable[..., Any], tmp_path: Path) -> None:
    """What is no ETDump is refused in one line."""
    dump = tmp_path / "run.etdp"
    dump.write_bytes(data)
    assert told in cli("inspect", dump).error


def test_files_that_are_not_there(cli: Callable[..., Any], fixtures: Path, tmp_path: Path) -> None:
    """A file that cannot be read is named with the reason, the dump and the mapping alike."""
    none = tmp_path / "none"
    for arguments in ((none,), (fixtures / "xnnpack" / "run.etdp", "--mapping", none)):
        assert cli("inspect", *arguments).error == f"{none}: cannot be read: No such file or directory"
    assert cli("inspect", tmp_path).error == f"{tmp_path}: cannot be read: Is a directory"


def test_an_empty_dump(cli: Callable[..., Any], tmp_path: Path) -> None:
    """A file without events has no rows, in every form."""
    dump = tmp_path / "run.etdp"
    dump.write_bytes(write_etdump([]))
    assert the_rows(cli, dump) == []
    assert cli("inspect", dump, "--format", "csv").out == ",".join(COLUMNS) + "\n"
    assert len(cli("inspect", dump).out.splitlines()) == 1
