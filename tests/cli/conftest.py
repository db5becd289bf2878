"""The command line in this process: its own `main`, with what it would write and its exit code."""

import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from blockbuster import BlockBuster

from otel_bridge.cli.main import main


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """Its one line on stderr; AssertionError where there is another number of them, or a traceback."""
        (line,) = self.err.splitlines()
        assert line.startswith("Error: ")
        assert line.isprintable()
        assert (self.code, self.out) == (1, "")
        return line.removeprefix("Error: ")


Cli = Callable[..., Done]


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], blockbuster: BlockBuster) -> Cli:
    """Runs a command to its end. Where a test is about the process itself, it starts one (support/service.py)."""
    blockbuster.deactivate()  # a command has its loop for itself: nobody waits while it reads a file

    def run(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["otel-bridge", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        written = capsys.readouterr()
        return Done(int(ended.value.code or 0), written.out, written.err)

    return run
