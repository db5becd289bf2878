"""
Programs that tests start: on free ports, with a log, ended by their own process id.

Invariant: no process outlives the `with` block that started it.
"""

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

LOOPBACK = "127.0.0.1"
_NOT_GIVEN = range(20_000, 32_000)
"""Ports below those that Linux takes for connections: one that is free now is not gone when a program that starts wants it."""
_CHANCE = random.SystemRandom()


class ProcessFailed(Exception):
    """A program ended, or did not get ready, or did not stop; the message ends with its log."""


def free_ports(count: int) -> list[int]:
    """`count` distinct TCP ports that are free on loopback, and that the system does not give to others by itself."""
    with contextlib.ExitStack() as stack:
        found: list[int] = []
        while len(found) < count:
            each, port = stack.enter_context(socket.socket()), _CHANCE.choice(_NOT_GIVEN)
            with contextlib.suppress(OSError):  # somebody listens there, or we do
                each.bind((LOOPBACK, port))
                found.append(port)
        return found


def free_port() -> int:
    """A TCP port that was free on loopback a moment ago."""
    return free_ports(1)[0]


def accepts(port: int) -> bool:
    """Whether somebody listens on that loopback port."""
    with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, port), timeout=1):
        return True
    return False


class Process:
    """
    A program under test, running inside a `with` block.

    command      program and arguments
    log          file that takes its standard output and error
    environment  variables on top of the machine's, whose OTEL_* are left out
    """

    def __init__(self, command: Sequence[str | Path], *, log: Path, environment: Mapping[str, str] | None = None) -> None:
        self.command = [str(part) for part in command]
        self.log = log
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
        self.environment.update(environment or {})
        self._popen: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.returncode is None:
            self.stop()
        if error is not None:
            sys.stderr.write(f"--- end of the log of {self.command[0]}\n{self.log_tail()}\n")

    def start(self) -> None:
        """Start it; again, after it has ended, is allowed and appends to the log."""
        with self.log.open("ab") as log:
            out = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            self._popen = subprocess.Popen(self.command, env=self.environment, **out)

    @property
    def popen(self) -> "subprocess.Popen[bytes]":
        """The process; AssertionError before `start`."""
        assert self._popen is not None, "not started"
        return self._popen

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.popen.pid

    @property
    def returncode(self) -> int | None:
        """Exit code, negative for a signal; None while it runs."""
        return self.popen.poll()

    def wait_until(self, ready: Callable[[], bool], *, patience_s: float = 30.0) -> None:
        """Return once `ready()`; ProcessFailed if the program ends before, or patience does."""
        deadline = time.monotonic() + patience_s
        while not ready():
            if self.returncode is not None:
                raise ProcessFailed(f"{self.command[0]} ended with {self.returncode} before it was ready:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                raise ProcessFailed(f"{self.command[0]} was not ready after {patience_s} s:\n{self.log_tail()}")
            time.sleep(0.02)

    def wait(self, *, patience_s: float = 30.0) -> int:
        """The exit code; ProcessFailed if it still runs when patience ends."""
        try:
            return self.popen.wait(patience_s)
        except subprocess.TimeoutExpired:
            raise ProcessFailed(f"{self.command[0]} still runs after {patience_s} s:\n{self.log_tail()}") from None

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.popen.send_signal(number)

    def stop(self, *, grace_s: float = 30.0) -> int:
        """Terminate it, kill it after the grace, and return its exit code."""
        self.popen.terminate()
        try:
            return self.popen.wait(grace_s)
        except subprocess.TimeoutExpired:
            return self.kill()

    def kill(self) -> int:
        """Kill it, as a power cut would, and return its exit code."""
        self.popen.kill()
        return self.popen.wait()

    def log_tail(self, lines: int = 40) -> str:
        """The last lines of its log."""
        return "\n".join(self.log.read_text(errors="backslashreplace").splitlines()[-lines:])
