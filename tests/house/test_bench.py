"""`make bench` is run by people, so nothing else would notice that a benchmark no longer runs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.engines import ROOT

BENCH = ROOT / "tests" / "bench"
NAMES = sorted(path.stem.removeprefix("bench_") for path in BENCH.glob("bench_*.py"))
MAY_SKIP = {"inspector"}
"""Those that need an engine for all they measure."""


@pytest.mark.timeout(180)  # a dozen programs are started, on machines that may have other work
@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_runs(name: str, tmp_path: Path) -> None:
    """A tiny pass of each line comes to its end, with a figure for each, and what arrived was what had been sent."""
    figures = tmp_path / "figures.json"
    done = subprocess.run(
        [sys.executable, BENCH / "run.py", "--tiny", "--only", name, "--json", figures],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    found = json.loads(figures.read_text())["figures"]
    assert found or name in MAY_SKIP
    assert all(len(each["values"]) >= 1 and min(each["values"]) >= 0 for each in found.values())
