"""
Taking over the spool of a worker that is not any more.

Invariants
* One transaction over both files: a kill leaves every record, and every line of the books, in one of them and in no other.
  SQLite keeps that promise with rollback journals, not with write-ahead logs, so both files have those meanwhile.
* What the other file had accepted, emitted and dropped, this one has. What waits goes behind what waits here, and has waited
  as long; what was seen is remembered.
* What damage has taken from either is told, as at any opening.

No other process has either file open.
"""

import contextlib
import logging
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from otel_bridge.errors import ConfigError
from otel_bridge.spool.books import Books
from otel_bridge.spool.opening import FILE_NAME, MARK_NAME, SYSTEM, Clocks, Opened, open_file, tell_lost
from otel_bridge.spool.protocol import Ended, Watch
from otel_bridge.spool.salvage import read_text
from otel_bridge.spool.schema import bit

_log = logging.getLogger(__name__)

_TABLES = ("records", "parked", "quarantine", "seen")
_WITH_NUMBERS = _TABLES[:3]


def adopt(directory: Path, left: Path, destinations: Sequence[str], watch: Watch, clocks: Clocks = SYSTEM) -> None:
    """
    Move all that is in the spool in `left` to the one in `directory`, and remove it; nothing where there is none.

    Raises `ConfigError` where a file cannot be used.
    """
    path, mark = left / FILE_NAME, left / MARK_NAME
    if not path.exists() and not mark.exists():  # with a mark alone, opening it finishes a repair, or tells the loss
        return
    ours, theirs = (_settled(each, destinations, watch, clocks) for each in (directory, left))
    try:
        mark.unlink(missing_ok=True)  # before: it would say that what has been moved is lost
        with contextlib.closing(sqlite3.connect(directory / FILE_NAME, isolation_level=None)) as connection:
            connection.text_factory = read_text
            connection.execute("PRAGMA journal_mode = DELETE").close()
            connection.execute("ATTACH ? AS theirs", (str(path),))
            connection.execute("PRAGMA theirs.journal_mode = DELETE").close()
            connection.execute("BEGIN IMMEDIATE")
            _move(connection, ours.clock.now_ns() - theirs.clock.now_ns())
            connection.execute("COMMIT")
        path.unlink()
    except (OSError, sqlite3.Error) as error:
        raise ConfigError(
            f"the spool {path} cannot be taken over by {directory / FILE_NAME}: {error}; see to the disk, and end what else "
            "has either open"
        ) from error
    events = sum(each.here for each in theirs.accounts)
    _log.info("the spool %s was taken over, with %d events for %d destinations", path, events, len(theirs.accounts))


def _settled(directory: Path, destinations: Sequence[str], watch: Watch, clocks: Clocks) -> Opened:
    """A spool whose books are in agreement with its tables, closed again."""
    opened = open_file(directory, destinations, "FULL", clocks)
    opened.file.close()
    tell_lost(opened, watch)
    return opened


def _move(connection: sqlite3.Connection, later_ns: int) -> None:
    """
    Move books and rows from `theirs`.

    later_ns   what our clock is ahead of theirs
    """
    numbers = _add_books(connection)

    def ours(mask: int) -> int:
        return sum(bit(own) for their, own in numbers.items() if mask & bit(their))

    connection.create_function("ours", 1, ours, deterministic=True)
    last = max(connection.execute(f"SELECT coalesce(max(number), 0) FROM {each}").fetchone()[0] for each in _WITH_NUMBERS)
    changed = {"number": f"number + {last}", "pending": "ours(CAST(pending AS INTEGER))"}
    changed |= {column: f"{column} + {later_ns}" for column in ("kept_ns", "until_ns", "noted_ns")}
    for table in _TABLES:
        columns = [column for (column,) in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))]
        values = ", ".join(changed.get(column, column) for column in columns)
        connection.execute(
            f"INSERT INTO main.{table} ({', '.join(columns)}) SELECT {values} FROM theirs.{table} ORDER BY rowid"
        )
    for table in (*_TABLES, "books", "drops"):
        connection.execute(f"DELETE FROM theirs.{table}")


def _add_books(connection: sqlite3.Connection) -> dict[int, int]:
    """Add their books to ours; our numbers of the destinations, by theirs."""
    books = Books(connection)
    accounts = connection.execute("SELECT destination, name, accepted, emitted FROM theirs.books").fetchall()
    numbers = books.serve([name for _, name, _, _ in accounts])
    for number, name, accepted, emitted in accounts:
        dropped = dict(connection.execute("SELECT reason, events FROM theirs.drops WHERE destination = ?", (number,)))
        books.accept(bit(numbers[name]), accepted)
        books.end(numbers[name], Ended(emitted, dropped))
    return {number: numbers[name] for number, name, _, _ in accounts}
