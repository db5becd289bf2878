"""
A spool's file: what can be done to it, in SQL. One thread uses it, and says where transactions begin and end.

Invariants
* Each method leaves the books in agreement with the tables, within the caller's transaction.
* Numbers ascend in the order of calls, over `append`, `release` and `expire`: order of reading is order of numbers.
* A record is moved between tables as it is, byte for byte; what returns to the records waits for its turn from then on.
"""

import contextlib
import sqlite3
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from otel_bridge.spool.age import AgeClock
from otel_bridge.spool.protocol import Awaited
from otel_bridge.spool.rows import Row
from otel_bridge.spool.schema import ROW_BYTES, ROW_COLUMNS

MAX_QUARANTINE_BYTES = 16 << 20
"""Of records that could not be read, the oldest go first."""

_AT_ONCE = 500
_MARK = struct.Struct("<QQI")
_IS_AWAITED = "tenant = ? AND awaited_build = ? AND name = ? AND version = ?"


@dataclass(frozen=True, slots=True)
class Held:
    """How much is in a table, and the last number in it (0: nothing is)."""

    records: int = 0
    events: int = 0
    size: int = 0
    last: int = 0


class Mark:
    """
    The books once more, beside the database: tells what a write-ahead log that was cut, or a page that is gone, has taken.

    Not synchronised with the disk. A power cut may lose what was written last; then less of a loss is known, never too much.

    kept, gone   events, as in the table; both 0 where the mark is not there, or damaged
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("r+b" if path.exists() else "w+b", buffering=0)
        found = self._file.read(_MARK.size)
        self.kept = self.gone = 0
        if len(found) == _MARK.size:
            kept, gone, checksum = _MARK.unpack(found)
            if checksum == zlib.crc32(found[:-4]):
                self.kept, self.gone = kept, gone

    def write(self, kept: int, gone: int) -> None:
        """Note the books, if it can be: what was committed stands without it."""
        numbers = _MARK.pack(kept, gone, 0)[:-4]
        with contextlib.suppress(OSError):
            self._file.seek(0)
            self._file.write(numbers + zlib.crc32(numbers).to_bytes(4, "little"))

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


class SpoolFile:
    """The file behind a connection in autocommit mode, which has the tables of schema.py."""

    def __init__(self, connection: sqlite3.Connection, clock: AgeClock, mark: Mark) -> None:
        self._connection = connection
        self._clock = clock
        self._mark = mark
        tables = ("records", "parked", "quarantine")
        self._next = 1 + max(self._value(f"SELECT coalesce(max(number), 0) FROM {table}") for table in tables)
        self._changes = 0

    def begin(self) -> None:
        """Begin a transaction, as the only writer."""
        self._connection.execute("BEGIN IMMEDIATE")
        self._changes = self._connection.total_changes

    def commit(self) -> None:
        """End it. Once this returns, what it wrote survives; where it wrote nothing, the disk is left alone."""
        if self._connection.total_changes == self._changes:
            self._connection.execute("COMMIT")
            return
        self.note_time()
        kept, gone = self._books()
        self._connection.execute("COMMIT")
        self._mark.write(kept, gone)

    def roll_back(self) -> None:
        """Give it up."""
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def note_time(self) -> None:
        """Write down when this was, for the age of what waits."""
        note = "UPDATE books SET age_ns = ?, noted_ns = ?"
        self._connection.execute(note, (self._clock.now_ns(), self._clock.wall_ns()))

    def append(self, body: bytes, events: int) -> int:
        """Keep a record; its number."""
        row = (self._take_numbers(1), 0, events, len(body) + ROW_BYTES, self._clock.now_ns(), None, zlib.crc32(body), body)
        self._connection.execute(
            f"INSERT INTO records (number, waited, {ROW_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            row,
        )
        self._connection.execute("UPDATE books SET kept = kept + ?", (events,))
        return row[0]

    def remove(self, numbers: Sequence[int]) -> None:
        """Forget records."""
        for first in range(0, len(numbers), _AT_ONCE):
            some = numbers[first : first + _AT_ONCE]
            these = f"FROM records WHERE number IN ({', '.join('?' * len(some))})"
            self._connection.execute(f"UPDATE books SET gone = gone + (SELECT coalesce(sum(events), 0) {these})", some)
            self._connection.execute(f"DELETE {these}", some)

    def rows(self, after: int, last: int, max_bytes: int) -> list[Row]:
        """Records with numbers above `after`, to `last`, in order: as many as have `max_bytes`, and at least one."""
        found: list[Row] = []
        taken = 0
        # Casts, since a damaged page may hold values of any type.
        cursor = self._connection.execute(
            "SELECT number, CAST(events AS INTEGER), CAST(size AS INTEGER), CAST(kept_ns AS INTEGER), waited = 1, "
            "CAST(build AS TEXT), CAST(checksum AS INTEGER), CAST(body AS BLOB) "
            "FROM records WHERE number > ? AND number <= ? ORDER BY number",
            (after, last),
        )
        for number, events, size, kept_ns, waited, build, checksum, body in cursor:
            found.append(Row(number, events, size, kept_ns, bool(waited), build, checksum, body))
            taken += size
            if taken >= max_bytes:
                break
        cursor.close()
        return found

    def park(self, number: int, awaited: Awaited, build: str | None, until_ns: int) -> None:
        """Move a record to the lot."""
        self._connection.execute(
            f"INSERT INTO parked (number, tenant, awaited_build, name, version, until_ns, build, {_but_build()}) "
            f"SELECT number, ?, ?, ?, ?, ?, coalesce(?, build), {_but_build()} FROM records WHERE number = ?",
            (*_key(awaited), until_ns, build, number),
        )
        self._connection.execute("DELETE FROM records WHERE number = ?", (number,))

    def release(self, awaited: Awaited, build: str) -> Held:
        """Move what waits for one thing back to the records, bound to a build."""
        return self._return(awaited, None, build)

    def expire(self) -> dict[Awaited, Held]:
        """Move what has waited long enough back to the records."""
        now_ns = self._clock.now_ns()
        due = "SELECT DISTINCT tenant, awaited_build, name, version FROM parked WHERE until_ns <= ?"
        found = [_awaited(*key) for key in self._connection.execute(due, (now_ns,)).fetchall()]
        return {awaited: self._return(awaited, now_ns, None) for awaited in found}

    def quarantine(self, number: int, reason: str) -> None:
        """Set a record apart that cannot be read; at the bound the oldest ones go."""
        self._connection.execute(
            f"INSERT INTO quarantine (number, reason, {ROW_COLUMNS}) "
            f"SELECT number, ?, {ROW_COLUMNS} FROM records WHERE number = ?",
            (reason, number),
        )
        self.remove([number])
        while self._value("SELECT coalesce(sum(size), 0) FROM quarantine") > MAX_QUARANTINE_BYTES:
            self._connection.execute("DELETE FROM quarantine WHERE number = (SELECT min(number) FROM quarantine)")

    def free_bytes(self) -> int:
        """Of the file, what the next records can take before it grows."""
        return self._value("PRAGMA freelist_count") * self._value("PRAGMA page_size")

    def waiting(self) -> Held:
        """What waits for the pipeline."""
        return self._held("records")

    def parked(self) -> dict[Awaited, Held]:
        """What is parked, by what it waits for."""
        keys = self._connection.execute("SELECT DISTINCT tenant, awaited_build, name, version FROM parked").fetchall()
        return {_awaited(*key): self._held(f"parked WHERE {_IS_AWAITED}", key) for key in keys}

    def settle_books(self, actual: int) -> int:
        """Events that the books, or the mark, say are here, where only `actual` ones are; then the books say so too."""
        kept, gone = self._books()
        kept = max(kept, self._mark.kept, gone + actual)
        self._connection.execute("UPDATE books SET kept = ?, gone = ?", (kept, kept - actual))
        return kept - gone

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()
        self._mark.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _return(self, awaited: Awaited, until_ns: int | None, build: str | None) -> Held:
        """Move what waits for one thing, all of it or what is due, to the end of the records."""
        due = "parked WHERE " + _IS_AWAITED + (" AND until_ns <= ?" if until_ns is not None else "")
        key = _key(awaited) if until_ns is None else (*_key(awaited), until_ns)
        held = self._held(due, key)
        first = self._take_numbers(held.records)
        rest = _but_build().replace("kept_ns, ", "")
        self._connection.execute(
            f"INSERT INTO records (number, waited, build, kept_ns, {rest}) SELECT ? - 1 + row_number() OVER (ORDER BY number), "
            f"1, coalesce(?, build), ?, {rest} FROM {due}",
            (first, build, self._clock.now_ns(), *key),
        )
        self._connection.execute(f"DELETE FROM {due}", key)
        return Held(held.records, held.events, held.size, self._next - 1)

    def _held(self, where: str, arguments: Sequence[object] = ()) -> Held:
        query = f"SELECT count(*), coalesce(sum(events), 0), coalesce(sum(size), 0), coalesce(max(number), 0) FROM {where}"
        return Held(*self._connection.execute(query, arguments).fetchone())

    def _books(self) -> tuple[int, int]:
        query = "SELECT coalesce(CAST(kept AS INTEGER), 0), coalesce(CAST(gone AS INTEGER), 0) FROM books"
        kept, gone = self._connection.execute(query).fetchone()
        return int(kept), int(gone)

    def _take_numbers(self, count: int) -> int:
        first = self._next
        self._next += count
        return first

    def _value(self, query: str) -> int:
        (value,) = self._connection.execute(query).fetchone()
        return int(value)


def _but_build() -> str:
    return ROW_COLUMNS.replace("build, ", "")


def _key(awaited: Awaited) -> tuple[str, str, str, str]:
    return awaited.tenant, awaited.build, awaited.name, awaited.version


def _awaited(tenant: str, build: str, name: str, version: str) -> Awaited:
    return Awaited(build, name, version, tenant)
