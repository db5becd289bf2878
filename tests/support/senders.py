"""
C++ transports as programs of their own, and what they say of each request.

    with sender(program("send_grpc", folder), target, "timeout_ms=2000") as send:
        assert send(request).status == "OK"

Invariants
* A program that ends with anything but 0, or that a sanitizer had to speak about, fails the test.
* It is ended by the end of its input, or by its own process id.
"""

import json
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

PATIENCE_S = 30


@dataclass(frozen=True)
class Outcome:
    """What `send` returned, and what the transport says after it. `accepted` and `rejected` are totals."""

    sent: bool
    again: bool
    wait_ms: int
    accepted: int
    rejected: int
    status: str
    message: str


class Sender:
    """A running program of tests/cpp/src/send_requests.h, inside a `with` block."""

    def __init__(self, program: Path, *arguments: object, before: Sequence[str] = ()) -> None:
        self._command = [*before, str(program), *map(str, arguments)]

    def __enter__(self) -> Self:
        self._errors = tempfile.TemporaryFile()
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self._errors}
        self._popen = subprocess.Popen(self._command, **pipes)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        try:
            self._popen.stdin.close()
            code = self._popen.wait(PATIENCE_S)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self._popen.kill()
            code = self._popen.wait()
        self._popen.stdout.close()
        self._errors.seek(0)
        said = self._errors.read().decode(errors="backslashreplace")
        self._errors.close()
        assert code == 0, f"{self._command[0]} ended with {code}:\n{said[-6000:]}"
        assert said == ""

    def begin(self, request: bytes) -> None:
        """Hand it a request; `outcome` waits for what comes of it."""
        assert self._popen.stdin is not None
        self._popen.stdin.write(b"%d\n" % len(request) + request)
        self._popen.stdin.flush()

    def outcome(self) -> Outcome:
        """What came of the oldest request that was begun."""
        assert self._popen.stdout is not None
        line = self._popen.stdout.readline()
        assert line, f"{self._command[0]} has ended"
        return Outcome(**json.loads(line))

    def __call__(self, request: bytes) -> Outcome:
        """Send a request and wait for what comes of it."""
        self.begin(request)
        return self.outcome()
