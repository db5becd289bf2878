"""
The thread that a spool's file belongs to: many writes, one transaction.

Invariants
* Work is done in the order in which it was given, by one thread, and what is awaited is answered after the commit.
* A group is what has gathered while the one before was committed: a lone request is not held up, and many share a commit.
* What nobody awaits is owed: it joins the next group, or makes one after `OWED_S`. It is never lost while the process lives: a
  transaction that fails is done again, owed work first.
* A full disk fails what writes and is awaited; reading goes on, and so does the process. A damaged file ends all work, and is
  told.
"""

import asyncio
import contextlib
import logging
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from otel_bridge.errors import SpoolFull, Unavailable
from otel_bridge.spool.file import SpoolFile

_log = logging.getLogger(__name__)

OWED_S = 0.1
"""How long work that nobody awaits may wait for company."""

GROUP_BYTES = 8 << 20
"""A transaction has about this at most: its pages go into the write-ahead log, which is as large as the largest of them."""

RESERVE_BYTES = 16 << 20
"""What is left free on the disk: without room for the write-ahead log not even a removal can be written."""

_PASSING = {
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
}
"""What may be better next time; anything else means that the file, or this code, is broken."""
_PRIMARY = 0xFF
_RETRY_AFTER_S = 1.0
_QUIET_S = 10.0
"""A disk that stays full is logged this often."""

T = TypeVar("T")
Act = Callable[[SpoolFile], Any]


@dataclass(frozen=True, slots=True)
class Work:
    """
    Something to do with the file.

    answer   where the result goes; None: it is owed
    size     about the bytes that it writes
    reads    it only reads, and needs no transaction
    """

    act: Act
    answer: "asyncio.Future[Any] | None" = None
    size: int = 0
    reads: bool = False


Answers = list[tuple[Work, Any, BaseException | None]]


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
        self._owed: list[Work] = []
        self._due_s = self._rest_until_s = self._quiet_until_s = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._fault: Unavailable | None = None
        opened: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, args=(open_file, opened), name="spool", daemon=True)
        self._thread.start()
        opened.result()

    def submit(self, act: Callable[[SpoolFile], T], size: int = 0, *, reads: bool = False) -> "asyncio.Future[T]":
        """Do something soon; the result, once it is committed. Raises `SpoolFull`, `Unavailable` and errors of SQLite."""
        self._loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = self._loop.create_future()
        self._queue.put(Work(act, answer, size, reads))
        return answer

    def owe(self, act: Act) -> None:
        """Do something some time."""
        self._queue.put(Work(act))

    def stop(self) -> None:
        """Do what is left, and end. Blocks."""
        self._queue.put(None)
        self._thread.join()

    def _run(self, open_file: Callable[[], SpoolFile], opened: "Future[None]") -> None:
        try:
            file = open_file()
        except BaseException as error:  # noqa: BLE001 - it is raised where somebody waits for it
            opened.set_exception(error)
            return
        opened.set_result(None)
        with file:
            going = True
            while going:
                group, going = self._gather()
                self._answer(self._commit(file, group))
        if self._owed:
            _log.warning("%d changes could not be written to the spool; their events are read again", len(self._owed))

    def _gather(self) -> tuple[list[Work], bool]:
        """What is awaited now, after the owed work before it; nothing when owed work is due. False at the end."""
        group: list[Work] = []
        size = 0
        while size < GROUP_BYTES and (group or not self._is_due()):
            try:
                if group:
                    work = self._queue.get_nowait()
                else:
                    work = self._queue.get(timeout=self._due_s - time.monotonic() if self._owed else None)
            except queue.Empty:
                break
            if work is None:
                return group, False
            if work.answer is None and not group:
                self._put_off(work)
            else:
                group.append(work)
                size += work.size
        return group, True

    def _is_due(self) -> bool:
        return bool(self._owed) and time.monotonic() >= self._due_s

    def _put_off(self, work: Work) -> None:
        if not self._owed:
            self._due_s = time.monotonic() + OWED_S
        self._owed.append(work)

    def _commit(self, file: SpoolFile, group: list[Work]) -> Answers:
        going, answers = self._refuse_without_room(file, group)
        error = self._fault or self._rest_error()
        if error is None:
            done, error = self._attempt(file, [*self._owed, *going])
            if error is None:
                self._owed = []
                return answers + done
        return answers + self._commit_owed(file, going, error)

    def _commit_owed(self, file: SpoolFile, going: list[Work], error: Unavailable) -> Answers:
        """What can be done where not all of it can: what is owed, since it makes room, and what only reads."""
        self._owed += [work for work in going if work.answer is None]
        if self._fault is None and self._rest_error() is None:
            _, still = self._attempt(file, self._owed)
            if still is None:
                self._owed = []
            self._rest_until_s = self._due_s = time.monotonic() + _RETRY_AFTER_S
        awaited = [work for work in going if work.answer is not None]
        return [self._read(file, work) if work.reads and self._fault is None else (work, None, error) for work in awaited]

    def _rest_error(self) -> Unavailable | None:
        """After a write that failed, none is tried for a while: what is owed may be much."""
        return self._full("its last write failed") if time.monotonic() < self._rest_until_s else None

    def _refuse_without_room(self, file: SpoolFile, group: list[Work]) -> tuple[list[Work], Answers]:
        """What may be written, and the answers to the rest. Each page is written twice: to the log, and by the checkpoint."""
        wanted = 2 * sum(work.size for work in group)
        room = self._free_bytes() - RESERVE_BYTES if wanted else 0
        if wanted <= room:
            return group, []
        with contextlib.suppress(sqlite3.Error):  # the transaction will meet it too
            room += file.free_bytes()
        going: list[Work] = []
        answers: Answers = []
        for work in group:
            if work.size and room < 2 * work.size:
                answers.append((work, None, self._full("no more than its reserve is free on the disk")))
            else:
                room -= 2 * work.size
                going.append(work)
        return going, answers

    def _free_bytes(self) -> int:
        try:
            disk = os.statvfs(self._directory)
        except OSError:
            return 0
        return disk.f_bavail * disk.f_frsize

    def _attempt(self, file: SpoolFile, group: list[Work]) -> tuple[Answers, Unavailable | None]:
        try:
            return self._transact(file, group), None
        except Exception as error:  # noqa: BLE001 - see above
            return [], self._note(error)

    def _transact(self, file: SpoolFile, group: list[Work]) -> Answers:
        """All of it in one transaction."""
        if not group:
            return []
        file.begin()
        try:
            answers: Answers = [(work, work.act(file), None) for work in group]
            file.commit()
        except BaseException:
            file.roll_back()
            raise
        return answers

    def _read(self, file: SpoolFile, work: Work) -> tuple[Work, Any, BaseException | None]:
        try:
            return work, work.act(file), None
        except Exception as error:  # noqa: BLE001 - see above
            return work, None, self._note(error)

    def _note(self, error: Exception) -> Unavailable:
        """What those who wait are told of an error."""
        if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & _PRIMARY in _PASSING:
            return self._full(str(error))
        self._fault = Unavailable(f"the spool's file is damaged: {error}; the bridge stops", reason="spool_damaged")
        _log.critical("the spool cannot go on; at the next start its file is repaired where it is damaged", exc_info=error)
        self._call(self._broken, self._fault)
        return self._fault

    def _full(self, found: str) -> SpoolFull:
        if time.monotonic() >= self._quiet_until_s:
            self._quiet_until_s = time.monotonic() + _QUIET_S
            _log.error("the spool cannot write: %s; senders are told to come again", found)
        return SpoolFull(f"the spool cannot write now: {found}; try again later", retry_after_s=_RETRY_AFTER_S)

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
