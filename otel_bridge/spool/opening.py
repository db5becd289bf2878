"""
Opening a spool's file: a new one, the one of before, or what can be saved of a damaged one.

Invariants
* What is not a spool, or one of a format that is not known, is refused, and not altered.
* A damaged spool is set aside as `spool.db.damaged` (one is kept) and what can be read of it goes into a new file, at once: a
  kill in between leaves either the one or the other.
* What the books say was here, and is not, is told.
"""

import contextlib
import logging
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from otel_bridge.errors import ConfigError
from otel_bridge.spool.age import AgeClock
from otel_bridge.spool.books import Account, Mark
from otel_bridge.spool.file import SpoolFile
from otel_bridge.spool.held import Shares
from otel_bridge.spool.protocol import CORRUPT, REMOVED, Awaited, Seen, Watch
from otel_bridge.spool.salvage import DAMAGE, copy_readable, read_text
from otel_bridge.spool.schema import APPLICATION_ID, CREATE, FORMAT
from otel_bridge.spool.upgrade import FIRST_FORMAT, OLD_FORMATS, upgrade

_log = logging.getLogger(__name__)

FILE_NAME = "spool.db"
"""The file's name in the data directory."""

Synchronous = Literal["FULL", "NORMAL"]
"""
SQLite's word. FULL: a commit has reached the disk, and survives a power cut. NORMAL: it survives the end of the process; a
power cut may take the last ones.
"""

_MAGIC = b"SQLite format 3\0"
_WAL = "-wal"
MARK_NAME = "spool.mark"
"""That of its mark (books.py)."""

_WAIT_S = 10.0
_MAX_EMPTY_BYTES = 16 << 20
"""An empty file that is larger is made small again: its bytes are those of an outage that is over."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """Nanoseconds: the wall clock, since 1970, and one that is never set."""

    wall_ns: Callable[[], int] = time.time_ns
    monotonic_ns: Callable[[], int] = time.monotonic_ns


SYSTEM = Clocks()
"""Those of this machine."""


@dataclass(frozen=True, slots=True)
class Opened:
    """
    An open spool.

    lost      events that the books of before say are in it, and are not, by destination
    removed   events of destinations that are served no longer, which are given up
    accounts  the books of those that are served, after that
    waiting, parked   what is here
    seen      requests that were seen
    """

    file: SpoolFile
    clock: AgeClock
    lost: Mapping[str, int]
    removed: Mapping[str, int]
    accounts: Sequence[Account]
    waiting: Shares
    parked: Mapping[Awaited, Shares]
    seen: Sequence[Seen]


def open_file(directory: Path, destinations: Sequence[str], synchronous: Synchronous, clocks: Clocks) -> Opened:
    """
    The spool in `directory`, made where it is missing, for these destinations. For the thread that will use it.

    Raises `ConfigError` where the file cannot be used.
    """
    path = directory / FILE_NAME
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _finish_replacement(path)
        if path.exists() and not _is_whole(path):
            _replace(path)
        connection = _connect(path, synchronous)
        try:
            return _prepare(connection, path, destinations, clocks)
        except BaseException:
            connection.close()
            raise
    except (OSError, sqlite3.Error) as error:
        raise ConfigError(
            f"the spool {path} cannot be opened: {error}; name a directory that can be written (server.data_dir)"
        ) from error


def tell_lost(opened: Opened, watch: Watch) -> None:
    """Say what should have been in it, and what nobody wants any more."""
    for name, events in opened.lost.items():
        _log.error("the spool's file was damaged: %d acknowledged events, or fewer, are lost to %s", events, name)
        watch.recovered(name, events)
        watch.dropped(name, events, CORRUPT)
    for name, events in opened.removed.items():
        _log.warning("%d events are dropped that %s had not got, which the settings do not name any more", events, name)
        watch.recovered(name, events)
        watch.dropped(name, events, REMOVED)


def _prepare(connection: sqlite3.Connection, path: Path, destinations: Sequence[str], clocks: Clocks) -> Opened:
    ages = "SELECT coalesce(CAST(age_ns AS INTEGER), 0), coalesce(CAST(noted_ns AS INTEGER), 0) FROM clock"
    age_ns, noted_ns = connection.execute(ages).fetchone() or (0, 0)
    clock = AgeClock(age_ns, noted_ns, clocks.wall_ns, clocks.monotonic_ns)
    mark = Mark(path.with_name(MARK_NAME))
    try:
        return _serve(SpoolFile(connection, clock, mark), connection, destinations, clock)
    except BaseException:
        mark.close()
        raise


def _serve(file: SpoolFile, connection: sqlite3.Connection, destinations: Sequence[str], clock: AgeClock) -> Opened:
    is_empty = not file.waiting() and not file.parked()
    if not is_empty and not clock.is_believed:
        _log.warning("the wall clock was set since the spool was last written; the time between counts as none")
    if is_empty and file.free_bytes() > _MAX_EMPTY_BYTES:
        connection.execute("VACUUM").close()
    file.begin()
    lost = file.settle()
    removed = file.serve(destinations)
    file.commit()
    return Opened(file, clock, lost, removed, file.accounts(), file.waiting(), file.parked(), file.seen())


def _connect(path: Path, synchronous: Synchronous) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, timeout=_WAIT_S)
    connection.text_factory = read_text
    # Debian's SQLite overwrites what is deleted, unless it is told not to.
    for pragma in ("journal_mode = WAL", f"synchronous = {synchronous}", "secure_delete = OFF"):
        connection.execute(f"PRAGMA {pragma}").close()
    if not _shape_of(connection):
        connection.executescript(CREATE)
    if (found := _format_of(connection)) in OLD_FORMATS:
        upgrade(connection, path.with_name(MARK_NAME), found)
        _log.info("the spool %s was of format %d, and is of format %d now", path, found, FORMAT)
    return connection


def _is_whole(path: Path) -> bool:
    """Whether it is an undamaged spool. Raises `ConfigError` for what is none, or of a format that is not known."""
    with path.open("rb") as file:
        start = file.read(len(_MAGIC))
    if not start:
        return True
    if start != _MAGIC:
        raise ConfigError(
            f"{path} is no spool: it starts with {start[:8].hex(' ')}; move it away, or name another server.data_dir"
        )
    with contextlib.closing(sqlite3.connect(path, isolation_level=None, timeout=_WAIT_S)) as connection:
        connection.text_factory = read_text
        try:
            application = connection.execute("PRAGMA application_id").fetchone()[0]
            version = _format_of(connection)
            if not application and not _shape_of(connection):
                return True  # a kill before its tables were made
            if application != APPLICATION_ID:
                raise ConfigError(
                    f"{path} is a database of something else (application_id {application}); move it away, or name another "
                    "server.data_dir"
                )
            if version not in (*OLD_FORMATS, FORMAT):
                raise ConfigError(
                    f"{path} has format {version}, and this otel-bridge knows {FORMAT}; run the version that wrote it until "
                    "the spool is empty, or move the file away"
                )
            found = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
            if found == "ok" and not _has_tables(connection, version):
                found = "its tables are not those of a spool"
        except DAMAGE as error:
            if isinstance(error, sqlite3.OperationalError):
                raise
            found = str(error)
    if found != "ok":
        _log.error("the spool %s is damaged: %s", path, ascii(found)[:200])
    return bool(found == "ok")


def _format_of(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _has_tables(connection: sqlite3.Connection, version: int) -> bool:
    """Whether tables, columns and indexes are those of a spool; of an old one, what goes on to be used."""
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as new:
        new.executescript(CREATE)
        own = _shape_of(new)
    if version != FIRST_FORMAT:
        return _shape_of(connection) == own
    kept = {part for part in own if part[2] in ("records", "parked", "quarantine") and part[3] != "pending"}
    return kept <= _shape_of(connection)


def _shape_of(connection: sqlite3.Connection) -> set[tuple[Any, ...]]:
    """Not the text of the schema: SQLite changes that where a column is added."""
    query = (
        'SELECT m.type, m.name, m.tbl_name, c.name, c.type, c."notnull", c.dflt_value, c.pk '
        "FROM sqlite_master AS m LEFT JOIN pragma_table_info(m.name) AS c"
    )
    return set(connection.execute(query))


def _replace(path: Path) -> None:
    """Set a damaged spool aside, and put a new one in its place with what can be read."""
    new, aside = path.with_name(f"{FILE_NAME}.new"), path.with_name(f"{FILE_NAME}.damaged")
    for each in (new, aside):
        for name in (each, each.with_name(each.name + _WAL), each.with_name(each.name + "-shm")):
            name.unlink(missing_ok=True)
    with contextlib.closing(sqlite3.connect(new, isolation_level=None)) as target:
        target.executescript(CREATE)
        target.execute("BEGIN")
        if not copy_readable(path, target, path.with_name(MARK_NAME)):
            _log.error("neither its books nor %s can be read: how many events are lost is not known", MARK_NAME)
        target.execute("COMMIT")
    # In this order: a kill in between is put right by `_finish_replacement`, and the new file never meets the old one's log.
    path.rename(aside)
    wal = path.with_name(path.name + _WAL)
    if wal.exists():
        wal.rename(aside.with_name(aside.name + _WAL))
    path.with_name(path.name + "-shm").unlink(missing_ok=True)
    new.rename(path)
    _log.error("it was set aside as %s; what could be read of it goes on", aside)


def _finish_replacement(path: Path) -> None:
    """Where the file is missing, a kill came between the renames of `_replace`, or somebody took it away without its log."""
    new = path.with_name(f"{FILE_NAME}.new")
    if path.exists():
        return
    path.with_name(path.name + _WAL).unlink(missing_ok=True)
    if new.exists() and path.with_name(f"{FILE_NAME}.damaged").exists():
        new.rename(path)
