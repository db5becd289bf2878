"""
What can still be read of a damaged spool, copied into a new file.

Invariants
* The damaged file is not written to.
* Rows are taken as they are; the checksum of each is looked at when it is read.
* From both ends: one bad page of a table costs what lies on it, and not what lies behind it.
"""

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from otel_bridge.model.destination import DEFAULT
from otel_bridge.spool.books import Account, Books, Mark
from otel_bridge.spool.schema import ROW_COLUMNS, bit
from otel_bridge.spool.upgrade import FIRST_FORMAT, read_old_books

DAMAGE = (sqlite3.DatabaseError, UnicodeDecodeError)
"""What reading a damaged file raises: the second where the message of the first would quote it."""

_COLUMNS = {
    "records": f"number, waited, {ROW_COLUMNS}, pending",
    "parked": f"number, tenant, awaited_build, name, version, until_ns, {ROW_COLUMNS}, pending",
}


def read_text(data: bytes) -> str:
    """A text of a file that may be damaged: what is not UTF-8 becomes a sign for that, and no error."""
    return data.decode(errors="replace")


def copy_readable(damaged: Path, target: sqlite3.Connection, mark: Path) -> bool:
    """
    Copy records, parked ones, seen requests, clock and books into the tables of `target`, within its transaction.

    Books that cannot be read are taken from the mark; False: nor can that be.
    """
    with contextlib.closing(sqlite3.connect(damaged, isolation_level=None)) as source:
        source.text_factory = read_text
        is_old = _is_old(source)
        for table, columns in _COLUMNS.items():
            found = columns.replace("pending", str(bit(1))) if is_old else columns
            _insert(target, table, columns, _readable(source, table, found))
        if is_old:
            return _copy_old_books(source, target, mark)
        for table, columns in (("clock", "id, age_ns, noted_ns"), ("seen", "key, digest, answer, noted_ns")):
            with contextlib.suppress(*DAMAGE):
                _insert(target, table, columns, source.execute(f"SELECT {columns} FROM {table}"))
        written: list[Account] = []
        with contextlib.suppress(*DAMAGE):
            written = Books(source).read()
    with contextlib.closing(Mark(mark)) as marked:
        known = [accounts for accounts in (written, marked.accounts) if accounts]
    for accounts in known:
        # Books on a damaged page may read as something that their table does not take.
        with contextlib.suppress(sqlite3.IntegrityError):
            Books(target).write(accounts)
            return True
    Books(target).write([Account(1, DEFAULT)])
    return False


def _is_old(source: sqlite3.Connection) -> bool:
    """Whether it is of format 1, as far as can be seen."""
    with contextlib.suppress(*DAMAGE):
        return bool(source.execute("PRAGMA user_version").fetchone()[0] == FIRST_FORMAT)
    return False


def _copy_old_books(source: sqlite3.Connection, target: sqlite3.Connection, mark: Path) -> bool:
    accepted, age_ns, noted_ns = 0, 0, 0
    with contextlib.suppress(*DAMAGE):
        accepted, age_ns, noted_ns = read_old_books(source, mark)
    _insert(target, "clock", "id, age_ns, noted_ns", [(1, age_ns, noted_ns)])
    Books(target).write([Account(1, DEFAULT, accepted)])
    return bool(accepted)


def _insert(target: sqlite3.Connection, table: str, columns: str, rows: Iterable[tuple[Any, ...]]) -> None:
    slots = ", ".join("?" * len(columns.split(",")))
    for row in rows:
        # A row may have been read as something that the table does not take.
        with contextlib.suppress(sqlite3.IntegrityError):
            target.execute(f"INSERT OR REPLACE INTO {table} ({columns}) VALUES ({slots})", row)


def _readable(source: sqlite3.Connection, table: str, columns: str) -> Iterator[tuple[Any, ...]]:
    first = 0
    for order in ("ASC", "DESC"):
        try:
            for row in source.execute(
                f"SELECT {columns} FROM {table} NOT INDEXED WHERE number > ? ORDER BY number {order}", (first,)
            ):
                if order == "ASC":
                    first = row[0]
                yield row
        except DAMAGE:
            continue
        return
