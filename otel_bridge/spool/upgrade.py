"""
From earlier formats to the present one, in place.

Format 2 has the same tables. It is another one so that a bridge that does not know all records refuses the file.

Format 1 kept events for one back end, which is the destination "default" now, and said in its only row of `books` how many it
had ever kept and how many were gone. How those ended is not known: the new books begin with what was still here.

Invariants
* One transaction: a kill leaves the earlier format or the present one.
* Bodies are not copied: it needs no room, and no time, however much is spooled.
"""

import contextlib
import struct
import zlib
from pathlib import Path
from sqlite3 import Connection

from otel_bridge.model.destination import DEFAULT
from otel_bridge.spool.schema import CREATE_BOOKS, FORMAT, PENDING

FIRST_FORMAT = 1
OLD_FORMATS = (FIRST_FORMAT, 2)

_OLD_MARK = struct.Struct("<QQI")


def upgrade(connection: Connection, mark: Path, found: int) -> None:
    """Make a file of an earlier format one of the present; `mark` is the file beside the spool."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        if found == FIRST_FORMAT:
            _add_destinations(connection, mark)
        connection.execute(f"PRAGMA user_version = {FORMAT}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _add_destinations(connection: Connection, mark: Path) -> None:
    accepted, age_ns, noted_ns = read_old_books(connection, mark)
    for table in ("records", "parked"):
        connection.execute(f"ALTER TABLE {table} ADD COLUMN {PENDING}")
    connection.execute("DROP TABLE books")
    for statement in filter(str.strip, CREATE_BOOKS.split(";")):
        connection.execute(statement)
    connection.execute("INSERT INTO clock VALUES (1, ?, ?)", (age_ns, noted_ns))
    connection.execute("INSERT INTO books VALUES (1, ?, ?, 0)", (DEFAULT, accepted))


def read_old_books(connection: Connection, mark: Path) -> tuple[int, int, int]:
    """Of format 1: events that should be here, by the books or the mark; when that was, by the age clock and the wall clock."""
    columns = ", ".join(f"coalesce(CAST({name} AS INTEGER), 0)" for name in ("kept", "gone", "age_ns", "noted_ns"))
    kept, gone, age_ns, noted_ns = connection.execute(f"SELECT {columns} FROM books").fetchone() or (0, 0, 0, 0)
    if not kept:
        kept, gone = _read_old_mark(mark)
    return max(kept, _read_old_mark(mark)[0]) - gone, age_ns, noted_ns


def _read_old_mark(mark: Path) -> tuple[int, int]:
    """Events that were kept, and gone, by the mark of format 1; zeros where it cannot be read."""
    found = b""
    with contextlib.suppress(OSError):
        found = mark.read_bytes()
    if len(found) != _OLD_MARK.size:
        return 0, 0
    kept, gone, checksum = _OLD_MARK.unpack(found)
    return (kept, gone) if checksum == zlib.crc32(found[:-4]) else (0, 0)
