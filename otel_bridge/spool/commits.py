"""
The thread that a spool's file belongs to: many writes, one transaction.

Invariants
* Work is done in the order in which it was given, by one thread, and what is awaited is answered after the commit.
* A group is what has gathered while the one before was committed. Where that was of several, it waits until as many have come
  again, for `COMPANY_S` at most: a lone request is not held up, and many share a commit.
* What nobody awaits is owed: it joins the next group, or makes one after `OWED_S`.
* The thread is woken once for all that an iteration of the loop gives it, and not at all for what is owed: it takes the
  interpreter's lock from the loop.
"""

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from otel_bridge.errors import Draining, Unavailable
from otel_bridge.spool.arrivals import Arrival
from otel_bridge.spool.file import SpoolFile
from otel_bridge.spool.writer import Act, Answers, Told, Work, Writer

OWED_S = 0.1
"""How long work that nobody awaits may wait for company."""

COMPANY_S = 0.004
"""
Longest that the next group gathers where the last one had company. A sync costs 0.2 to 0.3 ms of processor time whatever it is
for, and where the disk is fast, most groups would else be of one request: the others come while it is on its way.
"""

GROUP_BYTES = 8 << 20
"""A transaction has about this at most: its pages go into the write-ahead log, which is as large as the largest of them."""

T = TypeVar("T")


class Commits:
    """
    The thread, and its queue.

    open_file   opens the file, in the thread
    directory   whose disk must have room
    broken      told, on the loop, that the file is damaged

    Raises what `open_file` raises.
    """

    def __init__(self, open_file: Callable[[], SpoolFile], directory: Path, broken: Callable[[Unavailable], None]) -> None:
        self._directory = directory
        self._broken = broken
        self._queue: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._gathered: list[Work] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._soon: asyncio.Handle | None = None
        self._later: asyncio.TimerHandle | None = None
        self._ended = False
        self._wanted = 0
        self._is_company = threading.Event()
        opened: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, args=(open_file, opened), name="spool", daemon=True)
        self._thread.start()
        opened.result()

    def submit(
        self, act: Callable[[SpoolFile], T] | Arrival, size: int = 0, *, reads: bool = False, told: Told | None = None
    ) -> "asyncio.Future[T]":
        """
        Do something soon; the result, once it is committed. Of an `Arrival`: its number.

        told   see `Work.told`

        Raises `SpoolFull`; `Unavailable` where the file is damaged.
        """
        if self._ended:
            raise Draining("the bridge has stopped; send to another instance, or try again when it is back")
        loop = self._enter()
        answer: asyncio.Future[T] = loop.create_future()
        self._gathered.append(Work(act, answer, size, reads, told))
        if self._soon is None:
            self._soon = loop.call_soon(self._hand_over)
        return answer

    def owe(self, act: Act) -> None:
        """Do something some time; before any loop runs, with what comes then."""
        self._gathered.append(Work(act))
        with contextlib.suppress(RuntimeError):
            loop = self._enter()
            if self._later is None:
                self._later = loop.call_later(OWED_S, self._hand_over)

    def end(self) -> None:
        """Take no more work."""
        self._ended = True
        self._hand_over()
        self._queue.put(None)
        self._is_company.set()

    def join(self) -> None:
        """Wait until what there was is done, and the file closed."""
        self._thread.join()

    def _enter(self) -> asyncio.AbstractEventLoop:
        """The loop that runs; what was to be handed over on another one is not any more. Raises `RuntimeError`: none runs."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._soon, self._later = loop, None, None
        return loop

    def _hand_over(self) -> None:
        if self._later is not None:
            self._later.cancel()
        self._soon = self._later = None
        for work in self._gathered:
            self._queue.put(work)
        self._gathered.clear()
        if self._wanted and self._queue.qsize() >= self._wanted:
            self._is_company.set()

    def _run(self, open_file: Callable[[], SpoolFile], opened: "Future[None]") -> None:
        try:
            file = open_file()
        except BaseException as error:  # noqa: BLE001 - it is raised where somebody waits for it
            opened.set_exception(error)
            return
        opened.set_result(None)
        with file:
            self._work(Writer(file, self._directory))

    def _work(self, writer: Writer) -> None:
        going = True
        while going:
            group, going = self._gather(writer.retry_at_s)
            answers = writer.commit(group)
            company = len(answers) + self._queue.qsize() if len(answers) > 1 else 0
            self._answer(answers)
            if going:
                self._await_company(company)
            if writer.fault is not None:
                self._call(self._broken, writer.fault)
        writer.finish()

    def _await_company(self, company: int) -> None:
        """Give so many time to come: who had their answers together send the next ones, and others wait for them already."""
        self._is_company.clear()
        self._wanted = company
        if self._queue.qsize() < company and not self._ended:
            self._is_company.wait(COMPANY_S)
        self._wanted = 0

    def _gather(self, due_s: float | None) -> tuple[list[Work], bool]:
        """
        What there is once there is anything, or something is due; False at the end.

        due_s   when work is done again that could not be done before; None: there is none
        """
        group: list[Work] = []
        size = 0
        while size < GROUP_BYTES:
            try:
                if group:
                    work = self._queue.get_nowait()
                else:
                    work = self._queue.get(timeout=None if due_s is None else max(due_s - time.monotonic(), 0))
            except queue.Empty:
                break
            if work is None:
                return group, False
            group.append(work)
            size += work.size
        return group, True

    def _answer(self, answers: Answers) -> None:
        if answers:
            self._call(_settle, answers)

    def _call(self, told: Callable[[Any], None], what: object) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(told, what)


def _settle(answers: Answers) -> None:
    """In the order of the work: who waits is woken in that order."""
    for work, result, error in answers:
        if work.told is not None:
            work.told(result, error)
        if work.answer is None or work.answer.done():
            continue
        if error is not None:
            work.answer.set_exception(error)
        else:
            work.answer.set_result(result)
