"""
Writing to a spool's file: as much as can be at once, and what can be where not all of it can.

Invariants
* What is owed is never lost while the process lives: a transaction that fails is done again, owed work first.
* A full disk fails what writes and is awaited; reading goes on, and so does the process. A damaged file ends all work.
"""

import contextlib
import logging
import os
import sqlite3
import time
from asyncio import Future
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from otel_bridge.errors import SpoolFull, Unavailable
from otel_bridge.spool.arrivals import AT_ONCE, Arrival
from otel_bridge.spool.file import SpoolFile

_log = logging.getLogger(__name__)

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

Act = Callable[[SpoolFile], Any]


Told = Callable[[Any, BaseException | None], object]


@dataclass(slots=True)
class Work:
    """
    Something to do with the file. Never changed once it is made.

    act      what; or a record that is to be kept, whose number is the result
    answer   where the result goes; None: it is owed
    size     about the bytes that it writes
    reads    it only reads, and needs no transaction
    told     is called with the result, or the error, whether or not somebody still waits for the answer
    """

    act: Act | Arrival
    answer: Future[Any] | None = None
    size: int = 0
    reads: bool = False
    told: Told | None = None


Answers = list[tuple[Work, Any, BaseException | None]]


class Writer:
    """
    Does work in one file. One thread uses it.

    directory   whose disk must have room
    owed        work that nobody awaits, and that is not done yet
    fault       why nothing can be done any more
    """

    def __init__(self, file: SpoolFile, directory: Path) -> None:
        self._file = file
        self._directory = directory
        self._rest_until_s = 0.0
        self.owed: list[Work] = []
        self.fault: Unavailable | None = None

    @property
    def retry_at_s(self) -> float | None:
        """When what is owed is tried again, by the monotonic clock; None: nothing is owed, or nothing can be done any more."""
        return self._rest_until_s if self.owed and self.fault is None else None

    def commit(self, group: list[Work]) -> Answers:
        """Do work, and what is owed before it, in one transaction; the answers to what is awaited."""
        going, answers = self._refuse_without_room(group)
        error = self.fault or self._rest_error()
        if error is None:
            done, error = self._attempt([*self.owed, *going])
            if error is None:
                self.owed = []
                return answers + done
        return answers + self._commit_owed(going, error)

    def finish(self) -> None:
        """Do what is owed, and note the time."""
        _, error = self._attempt([*self.owed, Work(SpoolFile.note_time)])
        if error is not None:
            _log.warning("%d changes could not be written to the spool; their events are read again", len(self.owed))

    def _commit_owed(self, going: list[Work], error: Unavailable) -> Answers:
        """What can be done where not all of it can: what is owed, since it makes room, and what only reads."""
        self.owed += [work for work in going if work.answer is None]
        if self.fault is None and self._rest_error() is None:
            _, still = self._attempt(self.owed)
            if still is None:
                self.owed = []
            self._rest_until_s = time.monotonic() + _RETRY_AFTER_S
        awaited = [work for work in going if work.answer is not None]
        return [self._read(work) if work.reads and self.fault is None else (work, None, error) for work in awaited]

    def _rest_error(self) -> Unavailable | None:
        """After a write that failed, none is tried for a while: what is owed may be much."""
        return self._full("its last write failed") if time.monotonic() < self._rest_until_s else None

    def _refuse_without_room(self, group: list[Work]) -> tuple[list[Work], Answers]:
        """What may be written, and the answers to the rest. Each page is written twice: to the log, and by the checkpoint."""
        wanted = 2 * sum(work.size for work in group)
        room = self._free_bytes() - RESERVE_BYTES if wanted else 0
        if wanted <= room:
            return group, []
        with contextlib.suppress(sqlite3.Error):  # the transaction will meet it too
            room += self._file.free_bytes()
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

    def _attempt(self, group: list[Work]) -> tuple[Answers, Unavailable | None]:
        try:
            return self._transact(group), None
        except Exception as error:  # noqa: BLE001 - of any kind: else the thread would end, and nobody would be told
            return [], self._note(error)

    def _transact(self, group: list[Work]) -> Answers:
        """All of it in one transaction."""
        if not group:
            return []
        arriving = [work.act for work in group if isinstance(work.act, Arrival)]
        try:
            if len(arriving) < len(group) or len(arriving) > AT_ONCE or self._file.must_note_time:
                self._file.begin()
            answers = [answer for run in _runs(group) for answer in self._do(run)]
            self._file.commit()
        except BaseException:
            self._file.roll_back()
            raise
        return answers

    def _do(self, run: list[Work]) -> Answers:
        """Records that come one after the other together, anything else alone."""
        arriving = [work.act for work in run if isinstance(work.act, Arrival)]
        if arriving:
            return [(work, number, None) for work, number in zip(run, self._file.append(arriving), strict=True)]
        return [(work, work.act(self._file), None) for work in run if not isinstance(work.act, Arrival)]

    def _read(self, work: Work) -> tuple[Work, Any, BaseException | None]:
        try:
            return self._do([work])[0]
        except Exception as error:  # noqa: BLE001 - as above
            return work, None, self._note(error)

    def _note(self, error: Exception) -> Unavailable:
        """What those who wait are told of an error."""
        if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & _PRIMARY in _PASSING:
            return self._full(str(error))
        self.fault = Unavailable(f"the spool's file is damaged: {error}; the bridge stops", reason="spool_damaged")
        _log.critical("the spool cannot go on; at the next start its file is repaired where it is damaged", exc_info=error)
        return self.fault

    def _full(self, found: str) -> SpoolFull:
        _log.error("the spool cannot write: %s; senders are told to come again", found)
        return SpoolFull(f"the spool cannot write now: {found}; try again later", retry_after_s=_RETRY_AFTER_S)


def _runs(group: list[Work]) -> Iterator[list[Work]]:
    """The group in order, cut where records that come in begin or end."""
    return (list(run) for _, run in groupby(group, lambda work: isinstance(work.act, Arrival)))
