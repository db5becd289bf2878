"""The program behind `make bench-client`."""

import json
from pathlib import Path

import pytest
from support.cpp import build, run
from support.engines import ROOT

pytestmark = pytest.mark.timeout(300)  # compilers take their time on machines that have other work


def test_the_program_measures_each_subject(fixtures: Path, tmp_path: Path) -> None:
    """It gives a positive value a round for each thing that is timed: ours and ETDumpGen's, the same things for both."""
    program = build(tmp_path, [ROOT / "tests" / "bench" / "bench_client.cpp"], wheel=True)
    rows = json.loads(run(program, fixtures / "xnnpack" / "model.pte", 2, 3).splitlines()[-1])
    assert all(value > 0 for _, _, _, *values in rows for value in values)
    timed: dict[str, set[str]] = {}
    for what, unit, subject, *values in rows:
        if unit != "B an event":
            assert len(values) == 2, (what, subject)
            timed.setdefault(subject, set()).add(what)
    assert len(timed["RingTracer"]) > 1
    assert timed["RingTracer"] == timed["ETDumpGen"]
    assert {(what, subject) for what, unit, subject, *_ in rows if unit == "B an event"} == {
        ("its events", "ETDump"),
        ("its events", "requests"),
    }
