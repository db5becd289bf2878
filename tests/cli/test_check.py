"""`otel-bridge mapping check`."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from support.captures import CAPTURES
from support.etdump_writer import ProfileEvent, RunData, write_etdump
from support.mappings import mapping_of

from otel_bridge.cli.main import otel_bridge
from otel_bridge.mapping.source import write_file
from otel_bridge.v1 import mapping_pb2 as pb


def check(*arguments: object) -> Result:
    """Run the command."""
    return CliRunner().invoke(otel_bridge, ["mapping", "check", *map(str, arguments)])


def write_run(path: Path, *identifiers: int | str) -> Path:
    """An inference whose one delegate call logs these identifiers, 10 ns each."""
    events = [
        ProfileEvent(
            chain=0,
            instruction=0,
            id_int=each if isinstance(each, int) else None,
            id_str=each if isinstance(each, str) else None,
            start=100 + 10 * number,
            end=110 + 10 * number,
        )
        for number, each in enumerate(identifiers)
    ]
    events.append(ProfileEvent(name="DELEGATE_CALL", chain=0, instruction=0, start=100, end=1000))
    events.append(ProfileEvent(name="Method::execute", chain=-1, instruction=0, start=0, end=2000))
    path.write_bytes(write_etdump([RunData("Execute", events)]))
    return path


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A built mapping of build `release-7` with the identifiers 1 and "a"."""
    path = tmp_path / "model.otelmap"
    path.write_bytes(write_file(pb.MappingFile(mapping=mapping_of({1: [1], "a": [2]}), build_id="release-7"), path.name))
    return path


def test_a_covered_run_passes(tmp_path: Path, source: Path) -> None:
    """Exit code 0, a line a status, a verdict."""
    done = check(write_run(tmp_path / "run.etdp", 1, "a", 1), "--mapping", source)
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        "status=exact events=3 share=1.0000 time_ns=30 time_share=1.0000",
        "passed coverage_events=1.0000 coverage_time=1.0000 min_coverage=0.9500",
    ]


def test_a_run_below_the_bound_fails_and_names_what_misses(tmp_path: Path, source: Path) -> None:
    """By build, instruction, backend and identifier, whose type shows: the mapping has 1 and no "1"."""
    run = write_run(tmp_path / "run.etdp", 1, "1", "1", "x y")
    done = check(run, "--mapping", source)
    place = "build=release-7 method=forward instruction=0 backend=Toy"
    assert done.exit_code == 1
    assert done.stdout.splitlines()[-3:] == [
        f'missing {place} identifier="1" status=unmapped_identifier events=2 time_ns=20',
        f'missing {place} identifier="x y" status=unmapped_identifier events=1 time_ns=10',
        "failed coverage_events=0.2500 coverage_time=0.2500 min_coverage=0.9500",
    ]
    assert check(run, "--mapping", source, "--min-coverage", "0.25").exit_code == 0
    assert check(run, "--mapping", source, "--min-coverage", "0.2501").exit_code == 1


def test_all_files_count_together(tmp_path: Path, source: Path) -> None:
    """19 of 20 events over two files reach 0.95."""
    runs = [write_run(tmp_path / "a.etdp", *[1] * 10), write_run(tmp_path / "b.etdp", *[1] * 9, 2)]
    assert check(*runs, "--mapping", source).exit_code == 0
    assert check(runs[1], "--mapping", source).exit_code == 1


def test_json_says_the_same(tmp_path: Path, source: Path) -> None:
    """For those who read it by program; identifiers keep their type."""
    done = check(write_run(tmp_path / "run.etdp", 1, 2, 2, 2), "--mapping", source, "--json")
    report = json.loads(done.stdout)
    assert done.exit_code == 1
    assert (report["build"], report["passed"], report["min_coverage"]) == ("release-7", False, 0.95)
    assert (report["coverage_events"], report["coverage_time"]) == (0.25, 0.25)
    assert [(each["status"], each["events"]) for each in report["statuses"]] == [("exact", 1), ("unmapped_identifier", 3)]
    assert [(each["identifier"], each["events"], each["time_ns"]) for each in report["missing"]] == [(2, 3, 30)]


def test_exactness_can_be_asked_for() -> None:
    """XNNPACK's map is empty: its events are covered by their call, and by nothing of their own."""
    found = CAPTURES["xnnpack/run"]
    arguments = (found.path, "--mapping", found.path.with_name("model.etrecord"))
    assert check(*arguments).exit_code == 0
    done = check(*arguments, "--require-exact")
    events = sum(event.identifier is not None for event in found.events)
    assert done.exit_code == 1
    assert sum("status=delegate" in line and line.startswith("missing") for line in done.stdout.splitlines()) == events


def test_a_file_without_delegate_events_fails(tmp_path: Path, source: Path) -> None:
    """Alone or beside a good one: such a run proves nothing, and nobody should take it for a pass."""
    good, empty = write_run(tmp_path / "good.etdp", 1), write_run(tmp_path / "empty.etdp")
    for runs in ([empty], [good, empty]):
        done = check(*runs, "--mapping", source)
        assert done.exit_code == 1
        assert f"{empty}: no delegate events" in done.stderr
        assert done.stdout.splitlines()[-1].startswith("failed ")


def test_a_file_that_is_no_dump_fails_and_costs_itself(tmp_path: Path, source: Path) -> None:
    """The others are measured."""
    bad = tmp_path / "bad.etdp"
    bad.write_bytes(b"no dump")
    done = check(bad, write_run(tmp_path / "good.etdp", 1), "--mapping", source)
    assert done.exit_code == 1
    assert f"Error: {bad}:" in done.stderr
    assert "status=exact events=1" in done.stdout


def test_many_missing_identifiers_are_counted_not_printed(tmp_path: Path, source: Path) -> None:
    """The log of a CI job stays short; JSON has all."""
    run = write_run(tmp_path / "run.etdp", *range(10, 75))
    lines = [line for line in check(run, "--mapping", source).stdout.splitlines() if line.startswith("missing")]
    assert len(lines) == 51
    assert lines[-1] == "missing 15 more identifiers: --json lists them all"
    assert len(json.loads(check(run, "--mapping", source, "--json").stdout)["missing"]) == 65


@pytest.mark.parametrize("bound", ["1.5", "-1", "most", "nan", "-nan", "inf"])
def test_a_bound_is_a_share(tmp_path: Path, source: Path, bound: str) -> None:
    """Else the command is written wrongly: exit code 2. Not a number is no share either, and every run would pass it."""
    assert check(write_run(tmp_path / "run.etdp", 1), "--mapping", source, "--min-coverage", bound).exit_code == 2


def test_a_program_is_a_source() -> None:
    """It is taken like the others, and the help of both commands that compare says so."""
    found = CAPTURES["xnnpack/run"]
    assert check(found.path, "--mapping", found.path.with_name("model.pte")).exit_code == 0
    for command in ("check", "diff"):
        assert ".pte" in CliRunner().invoke(otel_bridge, ["mapping", command, "--help"]).stdout


def test_text_of_a_device_stays_on_its_line(tmp_path: Path, source: Path) -> None:
    """An identifier may hold anything: a line break does not forge a verdict."""
    done = check(write_run(tmp_path / "run.etdp", "a\npassed coverage_events=1\x1b[2J\x7f"), "--mapping", source)
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["status=unmapped_identifier", "missing", "failed"]
    assert done.stdout.replace("\n", "").isprintable()
