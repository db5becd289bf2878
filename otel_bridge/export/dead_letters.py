"""
Requests that a back end refused for good, kept on disk: to be looked at, and sent again when the cause is gone.

Invariants
* The directory is bounded in bytes and in letters. When it is full the oldest go first, and are counted.
* `keep` never fails: what cannot be written is counted. The events of a letter are counted as dropped, kept or not.
* Letters leave some of the disk free, for what matters more: a spool that cannot write has to turn senders away.
* Another process may take letters out at any time (`otel-bridge spool replay`); only the bridge puts them in.
"""

import asyncio
import errno
import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Protocol

from otel_bridge.errors import ConfigError
from otel_bridge.export.isolate import Refused
from otel_bridge.export.letter import about, move_letter, paths_in, read_letter, remove_halves, size_of, write_letter
from otel_bridge.model.destination import DEFAULT

DIRECTORY = "dead-letters"
"""Name of the directory within the data directory; within it, each destination but the default one has a directory."""

MAX_LETTERS = 10_000

_log = logging.getLogger(__name__)


def directory_of(data_dir: Path, destination: str) -> Path:
    """Where the letters of a destination are."""
    whole = data_dir / DIRECTORY
    return whole if destination == DEFAULT else whole / destination


def move_letters(source: Path, target: Path) -> None:
    """Move the letters of all destinations from one home to another; other files stay. Raises `ConfigError`."""
    whole = source / DIRECTORY
    for directory in [each for each in (*whole.glob("*"), whole) if each.is_dir()]:
        into = target / directory.relative_to(source)
        try:
            into.mkdir(mode=0o700, parents=True, exist_ok=True)
            remove_halves(directory)
            for path in paths_in(directory):
                move_letter(path, into)
        except OSError as error:
            raise ConfigError(
                f"the dead letters in {directory} cannot be moved to {into}: {error.strerror}; let the bridge write to both"
            ) from error
        with suppress(OSError):  # what is no letter is for people
            directory.rmdir()


class Watch(Protocol):
    """Who is told."""

    def dead_letter_kept(self, spans: int, reason: str) -> None:
        """A refused request was written; `reason` is that of its refusal."""

    def dead_letter_lost(self, spans: int, reason: str) -> None:
        """One is gone: "full" (it made room, or is larger than all room), "disk" (it could not be written)."""


class DeadLetters:
    """
    The letters of one destination.

    max_bytes       of all files together
    reserve_bytes   that a letter leaves free on the disk

    Raises ConfigError where the directory cannot be used.
    """

    def __init__(
        self,
        directory: Path,
        max_bytes: int,
        watch: Watch,
        *,
        reserve_bytes: int = 0,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._directory = directory
        self._max_bytes = max_bytes
        self._reserve_bytes = reserve_bytes
        self._watch = watch
        self._now_ns = now_ns
        self._lock = Lock()  # of threads: two workers may keep at once
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            remove_halves(directory)
        except OSError as error:
            raise ConfigError(f"the directory of dead letters {directory} cannot be used: {error.strerror}") from error
        self._held = self._measure()

    @property
    def size_bytes(self) -> int:
        """Bytes of all letters; those that another process took out are counted until room is needed."""
        return sum(self._held.copy().values())

    async def keep(self, refused: Refused) -> None:
        """Write a letter, and let the oldest go where there is no room."""
        await asyncio.to_thread(self._keep, refused)

    def _keep(self, refused: Refused) -> None:
        now_ns = self._now_ns()
        size = len(about(refused, now_ns)) + len(refused.payload)
        with self._lock:
            if size > self._max_bytes:
                _log.warning("a refused request of %d bytes is not kept: dead_letter_bytes is less", size)
                self._watch.dead_letter_lost(refused.spans, "full")
                return
            self._make_room(size)
            try:
                self._check_disk(size)
                path = write_letter(self._directory, refused, now_ns)
            except OSError as error:
                _log.warning("a refused request cannot be kept in %s: %s", self._directory, error.strerror)
                self._watch.dead_letter_lost(refused.spans, "disk")
                return
            self._held[path] = size
        _log.warning("%d spans are kept as %s: %s", refused.spans, path, refused.message)
        self._watch.dead_letter_kept(refused.spans, refused.reason)

    def _check_disk(self, size: int) -> None:
        disk = os.statvfs(self._directory)
        if disk.f_bavail * disk.f_frsize < self._reserve_bytes + size:
            raise OSError(errno.ENOSPC, "no more than the reserve of the spool is free on the disk")

    def _make_room(self, size: int) -> None:
        if self._fits(size):
            return
        self._held = self._measure()  # others may have been taken out since
        for path in sorted(self._held):
            if self._fits(size):
                return
            letter = read_letter(path)
            with suppress(OSError):
                letter.remove()
            del self._held[path]
            self._watch.dead_letter_lost(letter.spans, "full")

    def _fits(self, size: int) -> bool:
        return sum(self._held.values()) + size <= self._max_bytes and len(self._held) < MAX_LETTERS

    def _measure(self) -> dict[Path, int]:
        return {path: size_of(path) for path in paths_in(self._directory)}
