"""
What can still be read of a damaged spool, copied into a new file.

Invariants
* The damaged file is not written to.
* Rows are taken as they are; the checksum of each is looked at when it is read.
* From both ends: one bad page of a table costs what lies on it, and not what lies behind it.
"""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from otel_bridge.spool.schema import ROW_COLUMNS

DAMAGE = (sqlite3.DatabaseError, UnicodeDecodeError)
"""What reading a damaged file raises: the second where the message of the first would quote it."""

_COLUMNS = {
    "records": f"number, waited, {ROW_COLUMNS}",
    "parked": f"number, tenant, awaited_build, name, version, until_ns, {ROW_COLUMNS}",
}


def read_text(data: bytes) -> str:
    """A text of a file that may be damaged: what is not UTF-8 becomes a sign for that, and no error."""
    return data.decode(errors="replace")


def copy_readable(damaged: Path, target: sqlite3.Connection) -> bool:
    """Copy records, parked ones and the books into the tables of `target`, within its transaction; whether there were books."""
    with contextlib.closing(sqlite3.connect(damaged, isolation_level=None)) as source:
        source.text_factory = read_text
        for table, columns in _COLUMNS.items():
            slots = ", ".join("?" * len(columns.split(",")))
            for row in _readable(source, table, columns):
                # A row may have been read as something that the table does not take.
                with contextlib.suppress(sqlite3.IntegrityError):
                    target.execute(f"INSERT OR IGNORE INTO {table} ({columns}) VALUES ({slots})", row)
        with contextlib.suppress(*DAMAGE):
            for books in source.execute("SELECT kept, gone, age_ns, noted_ns FROM books"):
                target.execute("UPDATE books SET kept = ?, gone = ?, age_ns = ?, noted_ns = ?", books)
                return True
    return False


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
