"""What the tests of `otel_bridge.aot` against ExecuTorch share: models that it exported, with their mappings."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.engines import SOURCES, require

Execute = Callable[..., str]


@pytest.fixture(scope="session")
def execute() -> Execute:
    """Runs a program of tests/engines/executorch with these arguments, and gives what it prints; it must succeed."""

    def run(program: str, *arguments: object) -> str:
        command = [require("executorch"), "-W", "ignore", SOURCES / "executorch" / program, *map(str, arguments)]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="session")
def exported(execute: Execute, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the models of executorch/make_mappings.py, each a folder."""
    folder = tmp_path_factory.mktemp("mappings")
    execute("make_mappings.py", folder)
    return folder
