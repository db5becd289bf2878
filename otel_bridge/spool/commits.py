"""
The thread that a spool's file belongs to: many writes, one transaction.

Invariants
* Work is done in the order in which it was given, by one thread, and what is awaited is answered after the commit.
* A group is what has gathered while the one before was committed: a lone request is not held up, and many share a commit.
* What nobody awaits is owed: it joins the next group, or makes one after `OWED_S`.
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
from otel_bridge.spool.file import SpoolFile
from otel_bridge.spool.writer import Act, Answers, Work, Writer

OWED_S = 0.1
"""How long work that nobody awaits may wait for company."""

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
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = False
        opened: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, args=(open_file, opened), name="spool", daemon=True)
        self._thread.start()
        opened.result()

    def submit(self, act: Callable[[SpoolFile], T], size: int = 0, *, reads: bool = False) -> "asyncio.Future[T]":
        """Do something soon; the result, once it is committed. Raises `SpoolFull`; `Unavailable` where the file is damaged."""
        if self._ended:
            raise Draining("the bridge has stopped; send to another instance, or try again when it is back")
        self._loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = self._loop.create_future()
        self._queue.put(Work(act, answer, size, reads))
        return answer

    def owe(self, act: Act) -> None:
        """Do something some time."""
        self._queue.put(Work(act))

    def end(self) -> None:
        """Take no more work."""
        self._ended = True
        self._queue.put(None)

    def join(self) -> None:
        """Wait until what there was is done, and the file closed."""
        self._thread.join()

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
            self._answer(writer.commit(group))
            if writer.fault is not None:
                self._call(self._broken, writer.fault)
        writer.finish()

    def _gather(self, due_s: float | None) -> tuple[list[Work], bool]:
        """
        What there is once something is awaited, or what is owed is due; False at the end.

        due_s   when work is done again that could not be done before; None: there is none
        """
        group: list[Work] = []
        size, is_awaited = 0, False
        while size < GROUP_BYTES:
            try:
                if is_awaited:
                    work = self._queue.get_nowait()
                else:
                    work = self._queue.get(timeout=None if due_s is None else max(due_s - time.monotonic(), 0))
            except queue.Empty:
                break
            if work is None:
                return group, False
            group.append(work)
            size += work.size
            if work.answer is not None:
                is_awaited = True
            elif due_s is None:
                due_s = time.monotonic() + OWED_S
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
        if work.answer is None or work.answer.done():
            continue
        if error is not None:
            work.answer.set_exception(error)
        else:
            work.answer.set_result(result)
