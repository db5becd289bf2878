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
import tempfile
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "tests" / "engines"
BUILT = ROOT / ".engines"

OLD_RELEASES = ("0.7.0", "1.0.0", "1.2.0", "1.4.1")
"""Releases of ExecuTorch that the C++ client supports beside the installed one."""

JAEGER_PACKAGE = "github.com/jaegertracing/jaeger/cmd/jaeger"


class EngineMissing(Exception):
    """An engine is not there; the message says what is missing and how to get it."""


@cache
def jaeger() -> Path:
    """Jaeger's program, v1.76.0 (Jaeger 2), built if it has to be: minutes, once. EngineMissing without Go."""
    return _built(JAEGER_PACKAGE, "jaeger", jaeger_program())


def jaeger_program() -> Path:
    """Where Jaeger's program lies once it is built."""
    return _place("jaeger", "go.mod", "go.sum")


@cache
def grpc_go() -> Path:
    """A server of grpc-go (tests/engines/grpc_go), built if it has to be: half a minute, once. EngineMissing without Go."""
    return _built(".", "grpc_go", _place("grpc_go", "go.mod", "go.sum", "main.go"))


def jaeger_can_be_built() -> bool:
    """Whether `jaeger` would start a build: the program is not there, and Go is."""
    return not jaeger_program().exists() and shutil.which("go") is not None


def _place(module: str, *sources: str) -> Path:
    key = hashlib.sha256(b"".join((SOURCES / module / source).read_bytes() for source in sources)).hexdigest()
    return BUILT / f"{module}-{key[:12]}"


def _built(package: str, module: str, program: Path) -> Path:
    if program.exists():
        return program
    if shutil.which("go") is None:
        raise EngineMissing(f"Go is not on PATH; install Go 1.24.6 or later to have {module} built")
    BUILT.mkdir(exist_ok=True)
    with (BUILT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            _build(package, SOURCES / module, program)
    return program


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


def atheris() -> Path:
    """The coverage-guided fuzzer of the extra `dev`. EngineMissing where it has no wheel."""
    found = importlib.util.find_spec("atheris")
    if found is None or found.origin is None:
        raise EngineMissing("atheris is not installed; pip install -e '.[dev]' (it has wheels for Linux on x86-64 alone)")
    return Path(found.origin).parent


def protoc() -> Path:
    """The environment of `make proto`. EngineMissing where it is not set up."""
    environment = ROOT / ".venv-proto"
    if not (environment / ".installed").exists():
        raise EngineMissing(".venv-proto is not set up; run `make engines` with Python 3.11 or 3.12")
    if shutil.which("make") is None:
        raise EngineMissing("make is not on PATH")
    return environment


def cxx() -> Path:
    """A C++17 compiler of this machine, with libraries of the sanitizers. EngineMissing without one."""
    return _on_path("g++", "install g++ (Debian: apt-get install g++)")


def cmake() -> Path:
    """CMake. EngineMissing without it."""
    return _on_path("cmake", "install CMake 3.19 or later (Debian: apt-get install cmake)")


def cross_cxx() -> Path:
    """A C++17 compiler for aarch64. EngineMissing without one."""
    return _on_path("aarch64-linux-gnu-g++", "install it (Debian: apt-get install g++-aarch64-linux-gnu libc6-dev-arm64-cross)")


def qemu_aarch64() -> Path:
    """An emulator that runs programs for aarch64. EngineMissing without one."""
    return _on_path("qemu-aarch64", "install it (Debian: apt-get install qemu-user)")


def curl() -> Path:
    """The command line tool curl. EngineMissing without it."""
    return _on_path("curl", "install it (Debian: apt-get install curl)")


def libcurl() -> Path:
    """The `curl-config` of libcurl's development files. EngineMissing without them."""
    return _on_path("curl-config", "install libcurl's development files (Debian: apt-get install libcurl4-openssl-dev)")


def old_headers() -> Path:
    """A folder with headers of older releases of ExecuTorch: RELEASE/executorch/include. EngineMissing without a network."""
    kept = BUILT / "executorch-headers"
    kept.mkdir(parents=True, exist_ok=True)
    with (kept / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for release in OLD_RELEASES:
            if not (kept / release).exists():
                _fetch_headers(release, kept)
    return kept


def _fetch_headers(release: str, kept: Path) -> None:
    with tempfile.TemporaryDirectory(dir=kept) as folder:
        # The headers are the same in every wheel of a release: one platform serves all machines.
        platform = ["--only-binary=:all:", "--python-version=3.11", "--platform=manylinux_2_28_x86_64"]
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", *platform]
        command += ["--dest", folder, f"executorch=={release}"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            last = (done.stderr.strip() or "no word why").splitlines()[-1]
            raise EngineMissing(f"`pip download executorch=={release}` failed: {last}; its headers are taken from its wheel")
        part = Path(folder) / "unpacked"
        with zipfile.ZipFile(next(Path(folder).glob("*.whl"))) as archive:
            archive.extractall(part, [name for name in archive.namelist() if name.startswith("executorch/include/")])
        part.replace(kept / release)


def kotlin() -> Path:
    """A folder with the jars of Kotlin's compiler and library, for `java`. EngineMissing without Java, Maven or a network."""
    for program in ("java", "mvn"):
        _on_path(program, "install Java 17 or later and Maven (Debian: apt-get install default-jdk-headless maven)")
    pom = SOURCES / "kotlin" / "pom.xml"
    jars = BUILT / f"kotlin-{hashlib.sha256(pom.read_bytes()).hexdigest()[:12]}"
    BUILT.mkdir(exist_ok=True)
    with (BUILT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not jars.exists():
            _fetch_jars(pom, jars)
    return jars


def _fetch_jars(pom: Path, jars: Path) -> None:
    part = jars.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={part}"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stdout.strip() or done.stderr.strip() or "no word why").splitlines()[0]
        raise EngineMissing(f"`mvn dependency:copy-dependencies` failed: {last}; it needs the Kotlin of {pom.name}")
    part.replace(jars)


def _on_path(program: str, way_out: str) -> Path:
    found = shutil.which(program)
    if found is None:
        raise EngineMissing(f"{program} is not on PATH; {way_out}")
    return Path(found)


ENGINES: dict[str, Callable[[], Path]] = {
    each.__name__: each
    for each in (
        jaeger,
        grpc_go,
        executorch,
        atheris,
        protoc,
        cxx,
        cmake,
        cross_cxx,
        qemu_aarch64,
        curl,
        libcurl,
        old_headers,
        kotlin,
    )
}


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
