"""
Programs under test: started together, fed in turns, each with the processor time that it alone has taken.

Invariant: processor time is that of the program and of the processes that it started, by the kernel's own clock of a process
(clock_getcpuclockid(3)), in nanoseconds; /proc/PID/stat counts in hundredths of a second.
"""

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from support.processes import accepts

_PATIENCE_S = 60.0
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_SCHED = 2  # CPUCLOCK_SCHED of the kernel


def stop(process: "subprocess.Popen[bytes]") -> None:
    """End a process, and wait until it has."""
    process.terminate()
    try:
        process.communicate(timeout=_PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


class Program:
    """A program that listens on a port, as long as the `with` block lasts."""

    def __init__(
        self, name: str, command: Sequence[object], port: int, log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.title = f"{name} ({log.parent.name})"
        self.port = port
        kept = {key: value for key, value in os.environ.items() if not key.startswith("OTEL_")}
        with log.open("wb") as stream:
            self.process = subprocess.Popen(
                [*map(str, command)], stdin=subprocess.PIPE, stdout=stream, stderr=stream, env={**kept, **(environment or {})}
            )
        self._log = log

    def __enter__(self) -> Self:
        deadline = time.monotonic() + _PATIENCE_S
        while not accepts(self.port):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.__exit__()
                raise SystemExit(f"{self.name} does not listen:\n{self._log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.05)
        return self

    def __exit__(self, *_: object) -> None:
        stop(self.process)

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self.port}"

    def cpu_ns(self) -> int:
        """User and system time so far, nanoseconds."""
        return sum(time.clock_gettime_ns(~pid << 3 | _SCHED) for pid in _family(self.process.pid))

    def rss_mib(self) -> float:
        """Resident memory, MiB."""
        pages = (int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in _family(self.process.pid))
        return sum(pages) * _PAGE_BYTES / (1 << 20)


def _family(pid: int) -> list[int]:
    """A process and all that descend from it."""
    children = [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()]
    return [pid, *(each for child in children for each in _family(child))]


def bridge(folder: Path, sink: str, ports: tuple[int, int], **settings: str) -> Program:
    """`otel-bridge serve` on ports for gRPC and HTTP; `settings` are variables without their prefix."""
    command = [
        sys.executable, "-m", "otel_bridge.cli.main", "serve", "--grpc", f"127.0.0.1:{ports[0]}",
        "--http", f"127.0.0.1:{ports[1]}", "--otlp-endpoint", f"http://{sink}", "--data-dir", folder / "data",
    ]  # fmt: skip
    folder.mkdir()
    environment = {f"OTEL_BRIDGE_{name}": value for name, value in settings.items()}
    return Program("otel-bridge", command, ports[0], folder / "log", environment)
