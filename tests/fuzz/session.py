"""
Fuzz targets, each in a process of its own, two at a time: in tests a short while, by hand as long as you like (`make fuzz`).

    python -m fuzz.session [--time SECONDS] [--keep] [TARGET ...]

Invariant: an input is bounded in time, memory and length, and so is a run; what hangs is ended and is a finding.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fuzz.seeds import SEEDS

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
FOUND = HERE.parents[1] / ".fuzz"
"""What runs by hand leave: inputs that reached something new, and findings."""

AT_ONCE = 2
INPUT_S = 10
"""An input of a few kilobytes that takes longer is a finding: without a fuzzer's instruments it would take a second."""
RSS_MIB = 1024
MAX_INPUT_BYTES = 4096
_START_S = 60
_LIMITS = (f"-timeout={INPUT_S}", f"-rss_limit_mb={RSS_MIB}", f"-max_len={MAX_INPUT_BYTES}")


def fuzz(name: str, seconds: int, folder: Path, *flags: str) -> str:
    """
    Run a target for so long, from its seeds and its corpus; what is new goes into `folder`. "": nothing was found.

    Else what libFuzzer said last; the input lies in `folder`.
    """
    inputs = folder / name
    inputs.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(SEEDS[name]):
        (inputs / f"seed-{number}").write_bytes(seed)
    bounds = (f"-max_total_time={seconds}", f"-artifact_prefix={folder}/{name}-")
    return _run(name, inputs, CORPUS / name, *bounds, *flags, patience_s=seconds)


def keep(name: str, folder: Path) -> str:
    """Add to the corpus what reaches something that the corpus does not. "": it is done."""
    return _run(name, CORPUS / name, folder / name, "-merge=1", patience_s=600)


def _run(name: str, *arguments: Path | str, patience_s: int) -> str:
    command = [sys.executable, "-m", "fuzz.run", name, *arguments, *_LIMITS]
    path = os.pathsep.join([str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    with tempfile.TemporaryFile() as log:
        try:
            code = subprocess.run(
                list(map(str, command)),
                env={**os.environ, "PYTHONPATH": path},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                timeout=patience_s + _START_S,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            code = -1
        log.seek(0)
        said = log.read().decode("utf-8", "backslashreplace")
    return "" if code == 0 else f"{name} ended with {code}:\n{said[-3000:]}"


def main() -> None:
    """Run what the arguments name, and say what was found."""
    parser = argparse.ArgumentParser(description="Fuzz the parsers of foreign bytes.")
    parser.add_argument("--time", type=int, default=60, metavar="SECONDS", help="for each target (default 60)")
    parser.add_argument("--keep", action="store_true", help="add to the corpus what reaches something new")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="only these")
    asked = parser.parse_args()
    names = asked.targets or list(SEEDS)

    def session(name: str) -> str:
        return fuzz(name, asked.time, FOUND) or (keep(name, FOUND) if asked.keep else "")

    with ThreadPoolExecutor(AT_ONCE) as pool:
        outcomes = dict(zip(names, pool.map(session, names), strict=True))
    for name, found in outcomes.items():
        sys.stdout.write(f"fuzz: {name}: {found or 'nothing found'}\n")
    sys.exit(any(outcomes.values()))


if __name__ == "__main__":
    main()
