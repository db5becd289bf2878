"""The build id of a program, where it cannot be written into it. That it can is shown in tests/engines/aot."""

import hashlib
import logging
from typing import Any, BinaryIO

import pytest

from otel_bridge.aot import embed_build_id
from otel_bridge.errors import MalformedMapping


class ForeignProgram:
    """A program manager of an ExecuTorch that keeps none of what is needed to serialise it anew."""

    buffer = b"program"

    def write_to_file(self, file: BinaryIO) -> None:
        """As the real one does, in pieces."""
        file.write(self.buffer[:3])
        file.write(self.buffer[3:])


def test_another_executorch(caplog: pytest.LogCaptureFixture) -> None:
    """The program is left alone, its hash is the build id, and a warning says so, with what a device has to do."""
    program = ForeignProgram()
    sha256 = hashlib.sha256(b"program").hexdigest()
    with caplog.at_level(logging.WARNING, "otel_bridge.aot"):
        assert embed_build_id(program) == sha256
    assert vars(program) == {}
    (said,) = caplog.messages
    assert said == (
        f"the build id {sha256} is not in the program: this ExecuTorch keeps no _emitter_output. "
        "A device finds it by hashing the whole .pte"
    )


def test_a_build_id_of_ones_own_stays(caplog: pytest.LogCaptureFixture) -> None:
    """It is the build id all the same, and the warning says how the device gets it."""
    assert embed_build_id(ForeignProgram(), "v7") == "v7"
    assert caplog.messages == [
        "the build id v7 is not in the program: this ExecuTorch keeps no _emitter_output. The device must be told of it"
    ]


@pytest.mark.parametrize("build_id", ["", "x" * 129, "tab\t", "gerät"])
def test_what_is_no_build_id_is_refused(build_id: Any) -> None:
    """It is printable ASCII of 1 to 128 bytes; nothing is written before that is known."""
    with pytest.raises(MalformedMapping, match="build_id"):
        embed_build_id(None, build_id)
