"""
Draining the ETDump of ExecuTorch's Python runtime.

Invariants
* The runtime reads freed memory when it is drained twice with no execution between (`ETDumpGen::get_etdump_data`,
  devtools/etdump/etdump_flatcc.cpp): it crashes, or writes what is no ETDump, and cannot be asked. So it is drained only after
  an execution that succeeded since the drain before: one that failed may have left nothing.
* Draining bounds the memory of the runtime's tracer, so it goes on when nobody takes the events.
* The thread that drains copies bytes, and counts events; they are read in the client's.
"""

import logging
import os
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from otel_bridge.client.client import BridgeClient
from otel_bridge.client.drained import DrainedDump, Execution
from otel_bridge.client.stream import EventStream
from otel_bridge.errors import MalformedETDump
from otel_bridge.etdump.count import count_events

_log = logging.getLogger(__name__)

_MAX_NOTED = 4_096


class NothingToDrain(ValueError):
    """No method was executed since the ETDump was drained last, or one is being executed: the runtime would crash."""


class Drains:
    """The drains of one program; its caller sees to it that one thread at a time is here."""

    def __init__(self, program: Any, client: BridgeClient, stream: EventStream, *, every: int, every_s: float) -> None:
        self._program = program
        self._client = client
        self._stream = stream
        self._every, self._every_s = every, every_s
        self._executions: list[Execution] = []
        self._successes = 0
        self._drained_at = time.monotonic()

    def note(self, execution: Execution) -> None:
        """An execution is over."""
        self._executions.append(execution)
        self._successes += not execution.is_failed
        if len(self._executions) > max(_MAX_NOTED, 2 * self._every):  # failures only: nothing else waits for so long
            del self._executions[0]

    def drain_if_due(self) -> None:
        """Hand over what the runtime has, if there is enough of it, or if it is old."""
        is_old = time.monotonic() - self._drained_at >= self._every_s
        if self._successes >= self._every or (is_old and self._successes):
            self.drain()

    def drain(self) -> bool:
        """Hand over what the runtime has."""
        if not self._successes:
            return False
        try:
            with DumpFile() as file:
                self._write(file.path, os.devnull)
                self._hand_over(file.read())
        except Exception as error:  # noqa: BLE001 - whatever the runtime raises: the app's inference is not to fail by it
            _log.warning("the runtime did not give out its ETDump: %s", error)
            if not self._successes:  # else it was not even asked, and has it still
                self._lose()
            return False
        return True

    def write(self, etdump_path: str | Path, debug_buffer_path: str | Path) -> None:
        """The same for a file of the app's."""
        if not self._successes:
            raise NothingToDrain("no method was executed since the last drain: execute one, or drain less often")
        self._write(str(etdump_path), str(debug_buffer_path))
        try:
            self._hand_over(Path(etdump_path).read_bytes())
        except OSError as error:
            _log.warning("the ETDump that the app had written cannot be read: %s", error)
            self._lose()

    def _write(self, etdump_path: str, debug_buffer_path: str) -> None:
        self._successes = 0  # before the call: a second one must not follow whatever becomes of this one
        self._drained_at = time.monotonic()
        self._program.write_etdump_result_to_file(etdump_path, debug_buffer_path)

    def _lose(self) -> None:
        self._executions.clear()
        self._client.lose_dump()

    def _hand_over(self, etdump: bytes) -> None:
        executions, self._executions = self._executions, []
        now_ns = (time.monotonic_ns(), time.time_ns())
        try:
            events = count_events(etdump)
        except MalformedETDump as error:
            _log.warning("an ETDump that the runtime wrote cannot be read: %s", error)
            self._lose()
            return
        self._client.record(DrainedDump(self._stream, etdump, events, executions, now_ns))


class DumpFile:
    """A file that the runtime can write by its path; in memory where the system has such files."""

    def __enter__(self) -> Self:
        if hasattr(os, "memfd_create"):
            self._descriptor = os.memfd_create("etdump")
            self.path = f"/proc/self/fd/{self._descriptor}"
        else:
            self._descriptor, self.path = tempfile.mkstemp(suffix=".etdp")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        os.close(self._descriptor)
        if not hasattr(os, "memfd_create"):
            Path(self.path).unlink(missing_ok=True)

    def read(self) -> bytes:
        """What was written."""
        return Path(self.path).read_bytes()
