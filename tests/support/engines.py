"""
Engines: what some tests need beyond the package's own dependencies, and a machine may lack.

Invariants
* A test asks for its engine by `require`. What is missing is said in one line, with the way to get it, and skips the test;
  with OTEL_BRIDGE_REQUIRE_ENGINES=1, as in CI, it fails the test.
* A built engine lies in `.engines` under a name that changes with its sources, so it is built once and never stale.
  A build is atomic, and two at a time wait for each other.

Run as a program (`make engines`), this makes ready what the machine can make.
"""

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "tests" / "engines"
BUILT = ROOT / ".engines"

JAEGER_PACKAGE = "github.com/jaegertracing/jaeger/cmd/jaeger"


class EngineMissing(Exception):
    """An engine is not there; the message says what is missing and how to get it."""


@cache
def jaeger() -> Path:
    """Jaeger's program, v1.76.0 (Jaeger 2), built if it has to be: minutes, once. EngineMissing without Go."""
    program = jaeger_program()
    if program.exists():
        return program
    if shutil.which("go") is None:
        raise EngineMissing("Go is not on PATH; install Go 1.24.6 or later to have Jaeger built")
    BUILT.mkdir(exist_ok=True)
    with (BUILT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            _build(JAEGER_PACKAGE, SOURCES / "jaeger", program)
    return program


def jaeger_program() -> Path:
    """Where Jaeger's program lies once it is built."""
    sources = [SOURCES / "jaeger" / name for name in ("go.mod", "go.sum")]
    key = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
    return BUILT / f"jaeger-{key[:12]}"


def jaeger_can_be_built() -> bool:
    """Whether `jaeger` would start a build: the program is not there, and Go is."""
    return not jaeger_program().exists() and shutil.which("go") is not None


def _build(package: str, module: Path, program: Path) -> None:
    part = program.with_suffix(".part")
    command = ["go", "build", "-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", str(part), package]
    done = subprocess.run(command, cwd=module, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip() or "no word why").splitlines()[-1]
        raise EngineMissing(f"`go build {package}` failed: {last}; it needs Go 1.24.6 or later and the modules of go.sum")
    part.replace(program)


def executorch() -> Path:
    """An interpreter that has ExecuTorch and torch: this one. EngineMissing without the `aot` extra."""
    absent = [name for name in ("executorch", "torch") if importlib.util.find_spec(name) is None]
    if absent:
        raise EngineMissing(f"{' and '.join(absent)} not installed; pip install -e '.[aot]' (5 GB)")
    return Path(sys.executable)


def protoc() -> Path:
    """The environment of `make proto`. EngineMissing where it is not set up."""
    environment = ROOT / ".venv-proto"
    if not (environment / ".installed").exists():
        raise EngineMissing(".venv-proto is not set up; run `make engines` with Python 3.11 or 3.12")
    if shutil.which("make") is None:
        raise EngineMissing("make is not on PATH")
    return environment


ENGINES = {each.__name__: each for each in (jaeger, executorch, protoc)}


def require(engine: str) -> Path:
    """The engine of that name, or the end of the test: skipped, or failed where engines are required."""
    try:
        return ENGINES[engine]()
    except EngineMissing as missing:
        line = f"needs {engine}: {missing}"
        if os.environ.get("OTEL_BRIDGE_REQUIRE_ENGINES") == "1":
            pytest.fail(line, pytrace=False)
        pytest.skip(line)


def main() -> None:
    """Make ready what this machine can make, one line each."""
    say = sys.stdout.write
    for name, engine in ENGINES.items():
        if engine is jaeger and jaeger_can_be_built():
            say("engines: building Jaeger, once; this takes some minutes\n")
            sys.stdout.flush()
        try:
            say(f"engines: {name}: {os.path.relpath(engine(), ROOT)}\n")
        except EngineMissing as missing:
            say(f"engines: {name}: tests that need it are skipped: {missing}\n")


if __name__ == "__main__":
    main()
