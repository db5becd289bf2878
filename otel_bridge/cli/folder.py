"""
A folder of files that come in and go out: which are there, which are whole, and where the done ones lie.

Invariants
* A file is whole once two looks in a row have seen it with the same size and the same time of change. A rename into the folder
  needs no other care; a file that is still written to waits.
* What is done is moved by one rename, never copied and never over another file: into `sent` or into `refused`. So a crash
  leaves a file either to be sent again, which shows once, or done.
* One watcher at a time follows a folder: the system's lock on `.otel-bridge-watch.lock`, which ends with the process.
"""

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import click

from otel_bridge.cli.parcel import has_sidecar, sidecar_of

SENT, REFUSED = "sent", "refused"
_LOCK = ".otel-bridge-watch.lock"
_LONGEST_STEM_BYTES = 200  # a name has 255, and a number is added to it


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen of a file."""

    size: int
    changed_ns: int
    inode: int


class Folder:
    """
    The files of one folder whose names match one of `patterns`, such as `*.etdp`; not those below it.

    Raises `click.ClickException` where the folder cannot be read, or later where a file cannot be moved.
    """

    def __init__(self, path: Path, patterns: Sequence[str]) -> None:
        self.path = path
        self._patterns = tuple(patterns)
        self._seen: dict[Path, Look] = {}

    @contextmanager
    def owned(self) -> Iterator[None]:
        """For this watcher alone. Raises `click.ClickException` where another has it or it cannot be written to."""
        try:
            for name in (SENT, REFUSED):
                (self.path / name).mkdir(exist_ok=True)
                if not os.access(self.path / name, os.W_OK):
                    raise PermissionError(13, os.strerror(13), str(self.path / name))
            lock = (self.path / _LOCK).open("a+")
        except OSError as error:
            raise click.ClickException(
                f"{self.path}: cannot be written to: {error.strerror} ({error.filename}); what was sent is moved to "
                f"{self.path / SENT}, so the watcher has to be allowed to write there"
            ) from error
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                lock.seek(0)
                raise click.ClickException(
                    f"{self.path}: another otel-bridge watch follows it (process {lock.read(20).strip() or 'unknown'}); "
                    "one is enough, stop it or give this one a folder of its own"
                ) from error
            lock.truncate(0)
            lock.write(f"{os.getpid()}\n")
            lock.flush()
            yield

    def look(self) -> tuple[list[Path], int]:
        """The files that are whole, in the order in which they were changed, and how many are not yet."""
        before, self._seen = self._seen, {}
        for path in self._listed():
            look = look_at(path)
            if look is not None:
                self._seen[path] = look
        whole = [path for path, look in self._seen.items() if before.get(path) == look]
        return sorted(whole, key=lambda path: (self._seen[path].changed_ns, path.name)), len(self._seen) - len(whole)

    def is_as_seen(self, path: Path) -> bool:
        """Whether a file is still what the last look saw."""
        return look_at(path) == self._seen.get(path)

    def move(self, path: Path, where: str) -> None:
        """Move a file and its sidecar out of the way, to `where` in this folder, under a free name."""
        target = _free(self.path / where, path.name)
        try:
            path.rename(target)
            if has_sidecar(path):
                sidecar_of(path).rename(sidecar_of(target))
        except FileNotFoundError:
            return  # somebody took it: it is out of the way
        except OSError as error:
            raise click.ClickException(f"{path}: cannot be moved to {target}: {error.strerror}") from error

    def _listed(self) -> list[Path]:
        try:
            entries = list(self.path.iterdir())
        except OSError as error:
            raise click.ClickException(f"{self.path}: cannot be read: {error.strerror}") from error
        sidecars = {sidecar_of(each) for each in entries}
        matching = [each for each in entries if any(fnmatchcase(each.name, pattern) for pattern in self._patterns)]
        return [each for each in matching if each.name[0] != "." and each not in sidecars]


def look_at(path: Path) -> Look | None:
    """What is to be seen of a file; None: it is gone, or no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return Look(found.st_size, found.st_mtime_ns, found.st_ino) if path.is_file() else None


def _free(folder: Path, name: str) -> Path:
    """A path that is not taken: devices call every dump `result.etdp`."""
    stem, suffix = os.path.splitext(name)  # noqa: PTH122 - both halves at once
    stem = os.fsdecode(os.fsencode(stem)[:_LONGEST_STEM_BYTES])
    target, number = folder / name, 1
    while target.exists() or has_sidecar(target):
        number += 1
        target = folder / f"{stem}.{number}{suffix}"
    return target
