"""
Requests in an SQLite file, which outlive the process.

Invariants
* A request is in the file before the first attempt to send it, and leaves it only when it was answered or given up. A process
  that is killed loses nothing that was in it, and what is sent again is the same bytes.
* One process at a time has the file; another is told so at once.
* What cannot be read is never deleted: a damaged file is renamed, with all that SQLite keeps beside it, and a new one begun.
  A damaged request, told by its checksum, costs itself.
* Not power cuts: a write is handed to the system, and not forced to the disk (`synchronous=NORMAL` in WAL mode).
"""

import json
import logging
import sqlite3
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path

from otel_bridge.client.counters import Reason
from otel_bridge.client.outbox import Identity, OutboxDamaged, OutboxFault
from otel_bridge.client.sealing import Sealed

_log = logging.getLogger(__name__)

_VERSION = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS requests (
    number INTEGER PRIMARY KEY AUTOINCREMENT, stream BLOB NOT NULL, sequence TEXT NOT NULL, events INTEGER NOT NULL,
    told TEXT NOT NULL, checksum INTEGER NOT NULL, body BLOB NOT NULL
)"""
_INSERT = "INSERT INTO requests (stream, sequence, events, told, checksum, body) VALUES (?, ?, ?, ?, ?, ?)"
_BESIDE = ("", "-wal", "-shm", "-journal")
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class DiskOutbox:
    """
    The requests of one file.

    give_up   told of the events of a damaged request, and the drops that it would have told
    """

    def __init__(self, path: Path, give_up: Callable[[int, dict[str, int]], None]) -> None:
        """Open the file, made if it is not there. Raises OutboxDamaged, OutboxFault."""
        self.path = path
        self._give_up = give_up
        self._kept: OrderedDict[int, tuple[Identity, int, int]] = OrderedDict()  # number: identity, events, bytes
        self._gone: list[int] = []
        self.nbytes = self.events = 0
        self._database: sqlite3.Connection | None = None
        try:
            self._database = sqlite3.connect(path, timeout=0, isolation_level=None)
            self._open(self._database)
        except sqlite3.Error as error:
            self.close()
            raise _fault(path, error) from error
        except OutboxDamaged:
            self.close()
            raise

    def _open(self, database: sqlite3.Connection) -> None:
        database.execute("PRAGMA locking_mode = EXCLUSIVE")
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        database.execute("PRAGMA journal_size_limit = 0")
        database.execute("PRAGMA cache_size = -256")  # KiB: a request is read once
        database.execute("BEGIN IMMEDIATE")  # takes the lock, which stays
        (version,) = database.execute("PRAGMA user_version").fetchone()
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%'")]
        (sound,) = database.execute("PRAGMA quick_check(1)").fetchone()
        if sound != "ok" or (tables, version) not in (([], 0), (["requests"], _VERSION)):
            database.execute("ROLLBACK")
            raise OutboxDamaged(f"the buffer {self.path} is not whole, or not of this version")
        database.execute(_SCHEMA)
        database.execute(f"PRAGMA user_version = {_VERSION}")
        database.execute("COMMIT")
        query = "SELECT number, stream, sequence, events, length(body) FROM requests ORDER BY number"
        for number, stream, sequence, events, size in database.execute(query):
            if not isinstance(stream, bytes) or not str(sequence).isdecimal() or not isinstance(events, int):
                raise OutboxDamaged(f"the buffer {self.path} holds a request that is none")
            self._add(number, (stream, int(sequence)), events, size)

    def identities(self) -> set[Identity]:
        """See `Outbox`."""
        return {identity for identity, _, _ in self._kept.values()}

    def put(self, requests: Sequence[Sealed]) -> list[int]:
        """See `Outbox`."""
        return self._exchange(requests)

    def first(self) -> tuple[int, Sealed] | None:
        """See `Outbox`."""
        while self._kept:
            number = next(iter(self._kept))
            found = self._read(number)
            if found is not None:
                return number, found
        return None

    def remove(self, number: int, instead: Sequence[Sealed] = ()) -> list[int]:
        """See `Outbox`. A request whose row cannot be deleted now is gone all the same; the row goes with the next change."""
        self._forget(number)
        return self._exchange(instead)

    def last_sequence(self, stream_id: bytes) -> int:
        """See `Outbox`."""
        return max((sequence for (stream, sequence), _, _ in self._kept.values() if stream == stream_id), default=-1)

    def close(self) -> None:
        """See `Outbox`."""
        if self._database is not None:
            self._database.close()
            self._database = None

    @property
    def _db(self) -> sqlite3.Connection:
        if self._database is None:
            raise OutboxFault(f"the buffer {self.path} is closed", Reason.CLOSED)
        return self._database

    def _exchange(self, requests: Sequence[Sealed]) -> list[int]:
        """Requests in, those that are gone out, in one transaction."""
        database = self._db
        numbers: list[int] = []
        try:
            database.execute("BEGIN IMMEDIATE")
            try:
                database.executemany("DELETE FROM requests WHERE number = ?", [(number,) for number in self._gone])
                for each in requests:
                    told, checksum = json.dumps(each.told), zlib.crc32(each.body)
                    values = (each.stream_id, str(each.sequence), each.events, told, checksum, each.body)
                    numbers.append(database.execute(_INSERT, values).lastrowid or 0)
                database.execute("COMMIT")
            except sqlite3.Error:
                if database.in_transaction:
                    database.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise _fault(self.path, error) from error
        self._gone.clear()
        for number, each in zip(numbers, requests, strict=True):
            self._add(number, (each.stream_id, each.sequence), each.events, len(each.body))
        return numbers

    def _read(self, number: int) -> Sealed | None:
        """The request of that number; None: it was damaged and is given up."""
        query = "SELECT stream, sequence, events, told, checksum, body FROM requests WHERE number = ?"
        try:
            row = self._db.execute(query, (number,)).fetchone()
        except sqlite3.Error as error:
            raise _fault(self.path, error) from error
        told = {}
        try:
            stream, sequence, events, written, checksum, body = row
            told = json.loads(written)
            if zlib.crc32(body) == checksum:
                return Sealed(stream, int(sequence), events, told, body)
        except (TypeError, ValueError):  # columns of other types, or no row at all
            pass
        events = self._kept[number][1]
        _log.warning("a request of %d events in the buffer %s is damaged and given up", events, self.path)
        self.remove(number)
        self._give_up(events, told)
        return None

    def _add(self, number: int, identity: Identity, events: int, size: int) -> None:
        self._kept[number] = (identity, events, size)
        self.events += events
        self.nbytes += size

    def _forget(self, number: int) -> None:
        _, events, size = self._kept.pop(number)
        self._gone.append(number)
        self.events -= events
        self.nbytes -= size


def set_aside(path: Path, now: Callable[[], float] = time.time) -> Path:
    """Rename a damaged buffer and what SQLite keeps beside it; its new name. Raises OutboxFault."""
    aside = path.with_name(f"{path.name}.damaged-{int(now())}")
    try:
        for ending in _BESIDE:
            beside = path.with_name(path.name + ending)
            if beside.exists():
                beside.rename(aside.with_name(aside.name + ending))
    except OSError as error:
        raise OutboxFault(f"the damaged buffer {path} cannot be renamed: {error.strerror}", Reason.BUFFER_CORRUPT) from error
    return aside


def _fault(path: Path, error: sqlite3.Error) -> OutboxFault | OutboxDamaged:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the primary code; errors of the module itself have none
    if code in _DAMAGED:
        return OutboxDamaged(f"the buffer {path} is damaged: {error}")
    if code == sqlite3.SQLITE_BUSY:
        return OutboxFault(f"the buffer {path} is used by another process: give each its own", Reason.BUFFER_FULL)
    return OutboxFault(f"the buffer {path} takes no more: {error}", Reason.DISK_FULL)
