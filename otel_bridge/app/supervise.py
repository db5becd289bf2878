"""
The supervisor of a bridge of several workers: it starts them, holds what they share, and carries what they ask each other.

Invariants
* It takes no requests and opens no file but the lock of the data directory; workers inherit that, so the directory is theirs
  until the last of them has ended, however the supervisor ends.
* No door opens before every worker has read what its spool remembers: else what is sent again might reach one that does not
  know of it yet.
* A worker that cannot start at first keeps the bridge from starting, in its words. One that ends later is started again, on its
  spool, after a pause that grows with each time.
* Workers end when the line to the supervisor does (line.py). So none is left behind.

Processes are spawned, never forked: gRPC, SQLite and threads do not survive a fork.
"""

import asyncio
import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from otel_bridge.app.crew import Seat
from otel_bridge.app.data_dir import Claim
from otel_bridge.app.faults import Faults
from otel_bridge.app.line import Line
from otel_bridge.config.bridge import BridgeConfig
from otel_bridge.errors import BridgeError, ConfigError
from otel_bridge.wire.elsewhere import table_bytes
from otel_bridge.wire.port import bound, with_port

_log = logging.getLogger(__name__)

FIRST_PAUSE_S = 0.1
MOST_PAUSE_S = 30.0
"""Between the end of a worker and its next start: doubled each time, from the first again once one has lived so long."""

_STOP_S = 10.0
"""What a stop may take beyond the times that the settings give it."""


class WorkerEnded(BridgeError):
    """A worker did not end well."""

    reason = "worker_ended"


class Supervisor:
    """
    One bridge of `server.workers` processes.

    command   starts a worker; the number of a descriptor, its end of the line, is added to it

    Raises `ConfigError` where the settings cannot be obeyed.
    """

    def __init__(self, config: BridgeConfig, command: Sequence[str]) -> None:
        if sys.platform != "linux":
            raise ConfigError(
                f"server.workers is {config.server.workers}: only Linux shares the connections of a port out among processes; "
                "use 1 here"
            )
        faults = Faults()
        self._command = command
        self._claim: Claim | None = None
        with faults.part():
            self._claim = Claim(config.server.data_dir) if config.server.data_dir is not None else None
        with faults.part():
            self._http = _Port("server.http_address", config.server.http_address)
        with faults.part():
            self._grpc = _Port("server.grpc_address", config.server.grpc_address)
        faults.tell()
        self._count = config.server.workers
        server = config.server.model_copy(update={"grpc_address": self._grpc.address, "http_address": self._http.address})
        self._config = config.model_copy(update={"server": server})
        self._table = _open_table(config)
        self._workers: dict[int, _Worker] = {}
        self._go = asyncio.Event()
        self._stopping = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        """
        Work until `stop`.

        Raises `ConfigError` where a worker cannot start, `WorkerEnded` where one did not end well when it was stopped.
        """
        keeping: list[asyncio.Task[None]] = []
        try:
            await self._start(stop)
            if not stop.is_set():
                _log.info("otel-bridge listens for gRPC on %s and for HTTP on %s", self._grpc.address, self._http.address)
            keeping += [asyncio.create_task(self._keep(number)) for number in range(self._count)]
            await stop.wait()
            _log.info("stopping")
        finally:
            self._stopping.set()
            codes = await self._stop()
            await asyncio.gather(*keeping)
            for port in (self._grpc, self._http):
                port.close()
            if self._claim is not None:
                self._claim.release()
        if any(codes):
            raise WorkerEnded(f"workers have ended with {codes}, see the log; what was not sent is in their spools")

    async def _start(self, stop: asyncio.Event) -> None:
        """All workers, until their doors are open. The first goes ahead: it makes what is not there yet."""
        for number in range(self._count):
            self._workers[number] = await self._spawn(number)
        first, *others = self._workers.values()
        self._begin(first)
        await self._wait(lambda: first.is_ready, stop)
        for worker in others:
            self._begin(worker)
        await self._wait(lambda: all(each.is_ready for each in self._workers.values()), stop)
        self._go.set()
        await self._wait(lambda: all(each.is_open for each in self._workers.values()), stop)

    async def _wait(self, condition: Callable[[], bool], stop: asyncio.Event) -> None:
        while not condition() and not stop.is_set():
            for worker in self._workers.values():
                if worker.process.returncode is not None:
                    await worker.talking  # what it said last may not have been read yet
                    raise ConfigError(
                        worker.fault
                        or f"worker {worker.number} has ended with {worker.process.returncode} as it started; "
                        "see what it has logged"
                    )
            await asyncio.sleep(0.01)

    async def _spawn(self, number: int) -> "_Worker":
        ours, theirs = socket.socketpair()
        shared = [self._claim.fileno() if self._claim is not None else None, self._table]
        inherited = [theirs.fileno(), *(each for each in shared if each is not None)]
        try:
            with theirs:
                process = await asyncio.create_subprocess_exec(
                    *self._command, str(theirs.fileno()), stdin=asyncio.subprocess.DEVNULL, pass_fds=inherited
                )
        except BaseException:
            ours.close()
            raise
        worker = _Worker(number, process)
        worker.line = await Line.over(ours, lambda question, argument: self._answer(worker, question, argument))
        worker.talking = asyncio.create_task(worker.line.run())
        return worker

    def _begin(self, worker: "_Worker") -> None:
        worker.line.tell("begin", Seat(worker.number, self._config, self._table))

    async def _keep(self, number: int) -> None:
        """Start a worker again whenever it has ended, until the bridge stops."""
        pause_s = FIRST_PAUSE_S
        worker: _Worker | None = self._workers[number]
        while True:
            if worker is not None:
                code = await worker.process.wait()
                await worker.talking
                if self._stopping.is_set():
                    return
                if worker.age_s >= MOST_PAUSE_S:
                    pause_s = FIRST_PAUSE_S
                _log.error(
                    "worker %d (process %d) has ended with %d%s; it is started again in %g s",
                    number,
                    worker.process.pid,
                    code,
                    f": {worker.fault}" if worker.fault else "",
                    pause_s,
                )
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause_s)
                return
            pause_s = min(2 * pause_s, MOST_PAUSE_S)
            worker = await self._start_again(number, pause_s)

    async def _start_again(self, number: int, pause_s: float) -> "_Worker | None":
        """A worker anew; None: it cannot be started now, and is tried again after the pause."""
        try:
            worker = self._workers[number] = await self._spawn(number)
        except OSError as error:
            _log.error("worker %d cannot be started: %s; it is tried again in %g s", number, error.strerror, pause_s)
            return None
        if self._stopping.is_set():  # meanwhile: nobody has told this one
            worker.line.tell("stop", None)
        else:
            self._begin(worker)
        return worker

    async def _stop(self) -> list[int]:
        """Let all workers end, each as a bridge does that is alone; how they ended."""
        server = self._config.server
        patience_s = server.turn_away_s + 2 * server.drain_s + _STOP_S
        running = [each for each in self._workers.values() if each.process.returncode is None]
        for worker in running:
            if not worker.line.is_gone:
                worker.line.tell("stop", None)
        ends = [asyncio.create_task(each.process.wait()) for each in running]
        if ends:
            _, late = await asyncio.wait(ends, timeout=patience_s)
            for worker, end in zip(running, ends, strict=True):
                if end in late:
                    _log.error("worker %d has not ended after %g s, and is killed", worker.number, patience_s)
                    worker.process.kill()
        for worker in self._workers.values():
            await worker.talking
        return [await end for end in ends]

    async def _answer(self, worker: "_Worker", question: str, argument: Any) -> Any:
        """What a worker asks."""
        if question == "others":
            return await self._ask_others(worker, *argument)
        if question == "one":
            number, *asked = argument
            return await self._workers[number].line.ask(*asked)
        if question == "go":
            worker.is_ready = True
            await self._go.wait()
        elif question == "open":
            worker.is_open = True
        elif question == "fault":
            worker.fault = argument
        return None

    async def _ask_others(self, worker: "_Worker", question: str, argument: Any) -> list[Any]:
        # An upload is told before doors open: what has been read of the registry by then may be without it.
        others = [
            each
            for each in self._workers.values()
            if each is not worker and not each.line.is_gone and (each.is_open or (each.is_ready and question == "uploaded"))
        ]
        answers = await asyncio.gather(*(each.line.ask(question, argument) for each in others), return_exceptions=True)
        found = []
        for other, answer in zip(others, answers, strict=True):
            if not isinstance(answer, BaseException):
                found.append(answer)
            elif not other.line.is_gone:
                raise ConnectionError(f"worker {other.number} does not answer: {answer or type(answer).__name__}")
        return found


class _Worker:
    """
    One process.

    is_ready   it has read what its spool holds
    is_open    its doors are open
    fault      why it could not start
    """

    line: Line
    talking: "asyncio.Task[None]"

    def __init__(self, number: int, process: asyncio.subprocess.Process) -> None:
        self.number = number
        self.process = process
        self.is_ready = self.is_open = False
        self.fault = ""
        self._since_s = time.monotonic()

    @property
    def age_s(self) -> float:
        """Since it was started."""
        return time.monotonic() - self._since_s


class _Port:
    """A port, given to nobody who asks for any, also while no worker has it. Raises `ConfigError` where another has it."""

    def __init__(self, setting: str, address: str) -> None:
        with bound(setting, address) as alone:  # without sharing: another bridge on the port is a mistake
            self.address = with_port(address, alone.getsockname()[1])
        self._socket = bound(setting, self.address, shares=True)

    def close(self) -> None:
        """Let others have it."""
        self._socket.close()


def _open_table(config: BridgeConfig) -> int | None:
    """Memory that workers inherit, which goes with the last of them."""
    requests = config.ingress.duplicate_entries * config.server.workers
    if not requests or not config.ingress.duplicate_s:
        return None
    table = os.memfd_create("otel-bridge-requests")
    os.ftruncate(table, table_bytes(requests))
    return table
