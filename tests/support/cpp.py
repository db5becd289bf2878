"""
How the tests build C++: against the headers of the package and of ExecuTorch's wheel, and its libraries where they run models.

    program = build(folder, [SOURCES / "play.cpp"], sanitize=("address", "undefined"))
    play = build(folder, [SOURCES / "compare.cpp"], wheel=True)

Invariants
* What is under test is compiled with every warning as an error, without exceptions and without RTTI. ExecuTorch's headers are
  system headers: their warnings are its own.
* Without `wheel` a program links nothing of ExecuTorch: what it needs of the platform layer it defines itself (src/pal.h).
"""

import subprocess
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from support.engines import ROOT, require

SOURCES = ROOT / "tests" / "cpp" / "src"
HEADERS = ROOT / "otel_bridge" / "clients" / "cpp"

_WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Wnon-virtual-dtor", "-Werror")
STRICT = ("-std=c++17", *_WARNINGS, "-fno-exceptions", "-fno-rtti")
_MACROS = ("-DET_EVENT_TRACER_ENABLED", "-DC10_USING_CUSTOM_GENERATED_MACROS", "-DET_USE_THREADPOOL")
_LIBRARIES = (
    "executorch",
    "executorch_threadpool",
    "executorch_etdump",
    "executorch_kernels_optimized",
    "executorch_backend_xnnpack",
)


@cache
def wheel() -> Path:
    """The folder of the installed `executorch`, or the end of the test."""
    require("executorch")
    return Path(sysconfig.get_path("purelib")) / "executorch"


def executorch_flags(package: Path | None = None) -> list[str]:
    """Flags that let a compiler find ExecuTorch's headers, in the installed wheel or in another that was unpacked."""
    include = (package or wheel()) / "include"
    c10 = include / "executorch" / "runtime" / "core" / "portable_type" / "c10"
    return [*_MACROS, "-isystem", str(include), "-isystem", str(c10)]


def include_flags(headers: Path = HEADERS) -> list[str]:
    """Flags that let a compiler find the headers under test, and those of the tests."""
    return [f"-I{headers}", f"-I{SOURCES}"]


def link_flags() -> list[str]:
    """Flags that link the wheel's libraries; their backends and kernels register themselves, so none may be left out."""
    folder = wheel() / "lib"
    named = [f"-l{name}" for name in _LIBRARIES]
    return [f"-L{folder}", f"-Wl,-rpath,{folder}", "-Wl,--no-as-needed", *named, "-Wl,--as-needed"]


def build(
    folder: Path,
    sources: Sequence[Path],
    *,
    headers: Path = HEADERS,
    wheel: bool = False,
    sanitize: Iterable[str] = (),
    compiler: Path | None = None,
    flags: Sequence[str] = ("-O0", "-g1"),
    libraries: Sequence[str] = (),
) -> Path:
    """
    The program of `sources`, built in `folder`; AssertionError with the compiler's words if it does not build.

    headers    the folder of the headers under test
    wheel      link ExecuTorch's libraries
    sanitize   names for -fsanitize
    compiler   another than the host's, e.g. a cross compiler
    flags      of optimisation and debugging; by default those that compile fastest
    libraries  further flags at the end of the line
    """
    chosen = ",".join(sanitize)
    program = folder / "-".join(
        [sources[0].stem, *(chosen.split(",") if chosen else []), compiler.name if compiler else "host"]
    )
    command = [
        str(compiler or require("cxx")),
        *STRICT,
        *flags,
        *([f"-fsanitize={chosen}", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"] if chosen else []),
        *include_flags(headers),
        *executorch_flags(),
        *map(str, sources),
        "-o",
        str(program),
        "-pthread",
        *(link_flags() if wheel else []),
        *libraries,
    ]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-6000:]
    return program


def build_backend(source: Path, folder: Path) -> Path:
    """A shared library that registers a backend with the runtime of whichever program loads it."""
    library = folder / f"lib{source.stem}.so"
    command = [
        require("cxx"),
        "-std=c++17",
        "-O2",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-shared",
        "-fPIC",
        *executorch_flags(),
        source,
    ]
    command += ["-o", library, f"-L{wheel() / 'lib'}", f"-Wl,-rpath,{wheel() / 'lib'}", "-lexecutorch"]
    done = subprocess.run([*map(str, command)], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-6000:]
    return library


def build_example(folder: Path) -> Path:
    """The example program, built in `folder` by the CMake file beside it, with warnings as errors."""
    warnings = "-Wall -Wextra -Wpedantic -Wconversion -Werror"
    settings = [f"-DCMAKE_PREFIX_PATH={wheel()}", f"-DCMAKE_CXX_FLAGS={warnings}", f"-DCMAKE_CXX_COMPILER={require('cxx')}"]
    for command in (["-S", HEADERS, "-B", folder, *settings], ["--build", folder]):
        line = [str(require("cmake")), *map(str, command)]
        done = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return folder / "otel-bridge-run"


def run(
    program: Path,
    *arguments: object,
    stdin: bytes = b"",
    before: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> bytes:
    """What a program prints; AssertionError with its last words if it fails. `before`: an emulator and its flags."""
    command = [*before, str(program), *map(str, arguments)]
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=50, check=False, env=environment)
    assert done.returncode == 0, done.stderr.decode(errors="backslashreplace")[-4000:]
    return done.stdout
