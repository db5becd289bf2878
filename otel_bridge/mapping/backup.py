"""
Copies of the registry's file: made beside a bridge that runs, checked whole, and put in its place.

Invariants
* A copy is one moment of the registry: what was acknowledged before it began is in it, and of a later upload all or nothing.
* Nothing is written to what is copied, not even beside it: `SQLite` would make files there that the next bridge may not open.
* What does not pass every check is neither kept nor put in place: each document has the digest under which it stands, and
  builds and aliases name what is there.
* A copy appears under its name at once, whole and on the disk.
"""

import contextlib
import hashlib
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.message import DecodeError

from otel_bridge.errors import ConfigError
from otel_bridge.files import sync_folder
from otel_bridge.mapping.faults import quoted
from otel_bridge.mapping.schema import FORMAT, metadata
from otel_bridge.mapping.sqlite import FILE_NAME
from otel_bridge.v1 import mapping_pb2 as pb

_BESIDE = ("-wal", "-shm")
_WAIT_S = 10.0


@dataclass(frozen=True, slots=True)
class Contents:
    """How much a registry holds."""

    builds: int
    aliases: int
    documents: int

    def __str__(self) -> str:
        """In words."""
        return f"{self.builds} builds, {self.aliases} aliases, {self.documents} mappings"


def back_up(directory: Path, target: Path) -> Contents:
    """
    Copy the registry in `directory` to the new file `target`; a bridge may write to it meanwhile.

    Raises `ConfigError` where there is none, it is damaged, or `target` exists or cannot be written.
    """
    source = directory / FILE_NAME
    if not source.exists():
        raise ConfigError(f"there is no registry of mappings in {directory}: {FILE_NAME} is missing; name a data directory")
    if target.exists():
        raise ConfigError(f"{target} exists; name a file that does not, so that no copy is lost for another")
    return _copy(source, target)


def restore(directory: Path, source: Path, *, replace: bool = False) -> Contents:
    """
    Make a copy the registry in `directory`, which nobody may use meanwhile.

    replace   what is there may be lost

    Raises `ConfigError` where the copy does not pass, or where there is a registry that is not empty and `replace` is not set;
    then nothing has changed.
    """
    target = directory / FILE_NAME
    if not source.is_file():
        raise ConfigError(f"{source} is no file; name a copy that `otel-bridge registry backup` made")
    check(source)
    if target.exists() and not replace and _holds_builds(target):
        raise ConfigError(
            f"{target} holds mappings, which the copy would replace: back it up and give --replace, or name another directory"
        )
    return _copy(source, target)


def check(path: Path) -> Contents:
    """What a registry's file holds, every part of it checked. Raises `ConfigError`, which names what is wrong."""
    try:
        with closing(_open(path)) as connection:
            for fault in _faults(connection):
                raise ConfigError(f"{path} is no whole registry of mappings: {fault}; use another copy")
            builds, aliases, documents = (
                connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608 - names of this line
                for table in ("builds", "aliases", "documents")
            )
    except (sqlite3.Error, UnicodeDecodeError) as error:  # SQLite's own words may quote damaged text
        raise ConfigError(f"{path} cannot be read as a registry of mappings: {quoted(str(error))}; use another copy") from error
    return Contents(builds, aliases, documents)


def _faults(connection: sqlite3.Connection) -> Iterator[str]:
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables >= set(metadata.tables):
        yield f"it has no table {min(set(metadata.tables) - tables)}"
        return
    found = connection.execute("SELECT value FROM state WHERE key = 'format'").fetchone()
    if found != (FORMAT,):
        yield f"it has format {found[0] if found else 'unknown'}, and this version reads format {FORMAT}"
        return
    (whole,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if whole != "ok":
        yield quoted(str(whole))
    for table, *_ in connection.execute("PRAGMA foreign_key_check"):
        yield f"a row of {table} names what is not there"
    for digest, body in connection.execute("SELECT CAST(digest AS TEXT), CAST(body AS BLOB) FROM documents"):
        if hashlib.sha256(body).hexdigest() != digest:
            yield f"the mapping sha256:{quoted(str(digest))} has another digest"
        with contextlib.suppress(DecodeError):
            pb.Mapping.FromString(body)
            continue
        yield f"the mapping sha256:{quoted(str(digest))} cannot be read"


def _copy(source: Path, target: Path) -> Contents:
    part = target.with_name(f"{target.name}.part")
    try:
        part.unlink(missing_ok=True)
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        try:
            _write(source, part)
            contents = check(part)
            _put_in_place(part, target)
        finally:
            part.unlink(missing_ok=True)
    except sqlite3.Error as error:
        raise ConfigError(f"{source} cannot be copied to {target}: {quoted(str(error))}") from error
    except OSError as error:
        raise ConfigError(f"{target} cannot be written: {error.strerror}; name a file in a directory that can") from error
    return contents


def _write(source: Path, part: Path) -> None:
    with closing(_open(source)) as original, closing(sqlite3.connect(part, isolation_level=None)) as copy:
        original.backup(copy)  # in one step: one moment, and writers do not wait (https://www.sqlite.org/backup.html)
        copy.execute("PRAGMA journal_mode = DELETE").close()  # a copy is one file
    with part.open("rb") as written:
        os.fsync(written.fileno())


def _put_in_place(part: Path, target: Path) -> None:
    if target.exists():
        # What is damaged cannot be put in order, and is replaced for that.
        with contextlib.suppress(sqlite3.Error), closing(sqlite3.connect(target, isolation_level=None)) as replaced:
            replaced.execute("PRAGMA wal_checkpoint(TRUNCATE)").close()
    for name in _BESIDE:  # the log of another file must never meet the new one
        target.with_name(target.name + name).unlink(missing_ok=True)
    part.replace(target)
    sync_folder(target.parent)


def _holds_builds(path: Path) -> bool:
    try:
        return check(path).builds > 0
    except ConfigError:
        return True  # nobody knows what is in it


def _open(path: Path) -> sqlite3.Connection:
    """To read only. Without a log nobody has it open: then SQLite is told so, or it would begin a log of its own."""
    how = "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "immutable=1"
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True, isolation_level=None, timeout=_WAIT_S)
    connection.text_factory = lambda text: text.decode(errors="replace")  # a damaged one is no error of its own
    return connection
