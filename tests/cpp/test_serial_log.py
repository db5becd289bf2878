"""What the C++ client prints on a serial line, `otel-bridge send --uart` reads."""

import io
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.cpp import SOURCES, build, run

from otel_bridge.cli.serial_log import EVENTS, SerialBlock, read_serial_log


@pytest.fixture(scope="module")
def armour(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that prints its input as one block among other lines."""
    return build(tmp_path_factory.mktemp("armour"), [SOURCES / "armour.cpp"])


@settings(
    max_examples=30,  # a process each
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.binary(min_size=1, max_size=400), st.sampled_from([b"\n", b"\r\n"]), st.sampled_from([b"", b"[00:01.5] "]))
def test_every_byte_comes_over(armour: Path, data: bytes, end: bytes, prefix: bytes) -> None:
    """The bytes of a request come out of the log as they went in, whatever a terminal program makes of its lines."""
    lines = run(armour, stdin=data).splitlines()
    (block,) = read_serial_log(io.BytesIO(b"".join(prefix + line + end for line in lines)))
    assert isinstance(block, SerialBlock)
    assert (block.kind, block.data, block.first_line, block.last_line) == (EVENTS, data, 2, len(lines) - 1)
