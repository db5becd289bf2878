"""A profiled program whose runtime is a stand-in, for what a real one is not led into: it would end the process."""

from pathlib import Path
from typing import Any

import pytest
from support.etdump_writer import RunData, write_etdump
from support.faulty_bridge import FaultyBridge
from support.inferences import QUICK

from otel_bridge.client import BridgeClient, NothingToDrain, profile_program


class Runtime:
    """A program and its one method; `inside` is called in the middle of an execution, as a kernel written in Python is."""

    def __init__(self) -> None:
        self.inside: Any = int
        self.is_executing = False
        self.drains: list[bool] = []  # whether a method was being executed

    def load_method(self, _name: str) -> "Runtime":
        """It has one."""
        return self

    def execute(self, inputs: object) -> list[object]:
        """The inputs."""
        self.is_executing = True
        self.inside()
        self.is_executing = False
        return [inputs]

    def write_etdump_result_to_file(self, etdump: str, _debug_buffer: str) -> None:
        """An ETDump of one empty block."""
        self.drains.append(self.is_executing)
        Path(etdump).write_bytes(write_etdump([RunData("Execute", [])]))


def test_it_is_never_drained_during_an_execution(bridge: FaultyBridge, tmp_path: Path) -> None:
    """A kernel that drains the program that it runs in, by either way, is told no; after the execution it may."""
    runtime, file = Runtime(), tmp_path / "run.etdp"
    answers: list[object] = []
    with BridgeClient(bridge.address, settings=QUICK) as client:
        program = profile_program(runtime, client, every=2)
        method = program.load_method("forward")

        def drain() -> None:
            answers.append(program.drain())
            with pytest.raises(NothingToDrain, match="being executed"):
                program.write_etdump_result_to_file(file, file)
            runtime.inside = int
            answers.append(method.execute("inner"))
            runtime.is_executing = True

        method.execute("first")
        runtime.inside = drain
        assert method.execute("outer") == ["outer"]
        assert runtime.drains == [False]
        method.execute("last")
        program.write_etdump_result_to_file(file, file)
    assert answers == [False, ["inner"]]
    assert runtime.drains == [False, False]
