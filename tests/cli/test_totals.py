"""`otel-bridge inspect --by`."""

import csv
import io
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from support.captures import CAPTURES
from support.etdump_writer import ProfileEvent, RunData, write_etdump

from otel_bridge.cli.main import otel_bridge


def inspect(name: str, *arguments: str) -> Result:
    """Run the command on a capture with its ETRecord."""
    path = CAPTURES[name].path
    done = CliRunner().invoke(
        otel_bridge,
        ["inspect", str(path), "--mapping", str(path.with_name("model.etrecord")), *arguments],
        catch_exceptions=False,
    )
    assert done.exit_code == 0
    return done


@pytest.mark.parametrize("by", ["operator", "module", "identifier", "backend"])
@pytest.mark.parametrize("name", ["mixed_ops/run10", "multi_method/run", "toy_backend_str/run10", "two_backends/run"])
def test_rows_add_up_to_the_inferences(name: str, by: str) -> None:
    """By method, to the nanosecond: `Method::execute` as ExecuTorch's deserializer gives it. Shares add up to one."""
    found = CAPTURES[name]
    wholes: dict[str, int] = {}
    for event in found.events:
        if event.name == "Method::execute":
            wholes[found.methods[event.block]] = wholes.get(found.methods[event.block], 0) + event.end - event.start
    rows = json.loads(inspect(name, "--by", by, "--format", "json").stdout)
    assert {method: sum(row["total_ns"] for row in rows if row["method"] == method) for method in wholes} == wholes
    for method in wholes:
        assert sum(row["share"] for row in rows if row["method"] == method) == pytest.approx(1)


def test_a_tick_ratio_scales_all_alike() -> None:
    """Nanoseconds, by the clock's ratio."""
    plain, doubled = (
        {
            row["key"]: row["total_ns"]
            for row in json.loads(inspect("mixed_ops/run", "--by", "backend", "--format", "json", *more).stdout)
        }
        for more in ([], ["--tick-ratio", "2"])
    )
    assert doubled == {key: 2 * time for key, time in plain.items()}


def test_csv_and_table_have_the_rows_of_json() -> None:
    """In the same order; the table in microseconds."""
    arguments = ("toy_backend_int/run10", "--by", "module")
    records = json.loads(inspect(*arguments, "--format", "json").stdout)
    read = list(csv.DictReader(io.StringIO(inspect(*arguments, "--format", "csv").stdout)))
    assert [(row["key"], int(row["total_ns"]), float(row["p99_ns"])) for row in read] == [
        (row["key"], row["total_ns"], row["p99_ns"]) for row in records
    ]
    lines = inspect(*arguments).stdout.splitlines()
    assert lines[0].split()[:4] == ["method", "module", "count", "total"]
    for line, record in zip(lines[1:], records, strict=True):
        assert record["key"] in line
        assert f" {record['total_ns'] / 1000:.1f} " in line


def test_inferences_that_did_not_end_are_told_of(tmp_path: Path) -> None:
    """On stderr."""
    path = tmp_path / "run.etdp"
    block = RunData("Execute", [ProfileEvent(name="OPERATOR_CALL", chain=0, instruction=1, start=1, end=2)])
    path.write_bytes(write_etdump([block, block]))
    done = CliRunner().invoke(otel_bridge, ["inspect", str(path), "--by", "operator"])
    assert (done.exit_code, done.stderr) == (0, "2 inferences are in no row: no event encloses them, so they did not end\n")


def test_what_it_is_asked_by_is_one_of_four() -> None:
    """Else the command is written wrongly."""
    done = CliRunner().invoke(otel_bridge, ["inspect", str(CAPTURES["xnnpack/run"].path), "--by", "layer"])
    assert done.exit_code == 2
    assert "'operator', 'module', 'identifier', 'backend'" in done.stderr
