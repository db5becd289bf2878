"""The header as devices take it: no allocation, old releases, another processor, text for a serial log."""

import base64
import re
import subprocess
import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.cpp import SOURCES, STRICT, build, executorch_flags, include_flags, run
from support.cpp_scripts import Line, received, script_of, undelimited
from support.engines import OLD_RELEASES, require

pytestmark = pytest.mark.timeout(300)  # compilers take their time on machines that have other work


def test_events_cost_no_allocation(tmp_path: Path) -> None:
    """Once the tracer and the uploader exist, nothing is allocated: not by events, blocks, contexts, requests, or text."""
    program = build(tmp_path, [SOURCES / "allocations.cpp"], flags=("-O2",))
    seen, during, sent = map(int, run(program).split())
    assert seen >= 1  # allocations are noticed
    assert (during, sent) == (0, 11_000)


@pytest.mark.parametrize("release", OLD_RELEASES)
def test_the_header_compiles_with_older_releases(release: str) -> None:
    """All that a program may use compiles against the headers of each supported release: every pure virtual is there."""
    package = require("old_headers") / release / "executorch"
    command = [require("cxx"), *STRICT, *include_flags(), *executorch_flags(package), "-fsyntax-only", SOURCES / "upload.cpp"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


def test_aarch64_writes_the_same_bytes(tmp_path: Path) -> None:
    """A program for aarch64 encodes a script, parts and all, byte by byte as this machine's does."""
    lines: list[Line] = [("M", "forward"), ("B", "Execute"), ("H", 0, 2)]
    for number in range(200):
        lines += [("S", 0, "DELEGATE_CALL", -1, 0), ("L", f"op {number % 9}", -1, 2**63, number, b"m"), ("E", 0)]
    script = script_of(lines)
    sizes = (3000, 1024, 64, 4096, 4096, 256, 64)
    here = run(build(tmp_path, [SOURCES / "play.cpp"]), *sizes, stdin=script)
    cross = build(tmp_path, [SOURCES / "play.cpp"], compiler=require("cross_cxx"), flags=("-O2",), libraries=("-static",))
    there = run(cross, *sizes, stdin=script, before=(str(require("qemu_aarch64")),))
    assert there == here
    assert len(received(undelimited(here)).rows) == 400


@pytest.fixture(scope="module")
def armour(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """tests/cpp/src/armour.cpp, under AddressSanitizer and UBSan."""
    return build(tmp_path_factory.mktemp("armour"), [SOURCES / "armour.cpp"], sanitize=("address", "undefined"))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.binary(max_size=400))
def test_text_for_a_serial_log_is_base64_with_a_checksum(armour: Path, data: bytes) -> None:
    """Any bytes come out as lines of at most 76 characters between two marks, with zlib's CRC-32 before the second."""
    log = run(armour, stdin=data).decode("ascii")
    block = re.fullmatch(
        r"I executorch: loaded\n-----BEGIN OTEL BRIDGE EVENTS-----\n((?:[A-Za-z0-9+/=]{1,76}\n)*)=([0-9a-f]{8})\n"
        r"-----END OTEL BRIDGE EVENTS-----\ndone\n",
        log,
    )
    assert block
    lines = block[1].splitlines()
    assert base64.b64decode("".join(lines), validate=True) == data
    assert all(len(line) == 76 for line in lines[:-1])
    assert int(block[2], 16) == zlib.crc32(data)
