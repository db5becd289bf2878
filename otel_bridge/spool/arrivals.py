"""
Records that come in, as many as have gathered, in one statement.

Each statement gives up the interpreter's lock, and waits for it afterwards, for milliseconds where the event loop is busy. So
all that an arrival changes follows from one INSERT, by a trigger: the record, the request that was seen, the books.

Invariants
* View and trigger belong to the connection: the file has no trace of them.
* The statement is all or nothing, with a transaction around it or without.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from sqlite3 import Connection
from typing import Any

from otel_bridge.spool.protocol import Seen
from otel_bridge.spool.schema import ROW_BYTES

AT_ONCE = 32
"""Most that one statement takes: there is one text for each number of them, and SQLite keeps what it made of it."""

CREATE = """
PRAGMA temp_store = MEMORY;
CREATE TEMP VIEW arriving AS
    SELECT number, events, size, kept_ns, checksum, body, pending, NULL AS key, NULL AS digest, NULL AS answer FROM records;
CREATE TEMP TRIGGER arrive INSTEAD OF INSERT ON arriving BEGIN
    INSERT INTO records (number, waited, events, size, kept_ns, checksum, body, pending)
        VALUES (NEW.number, 0, NEW.events, NEW.size, NEW.kept_ns, NEW.checksum, NEW.body, NEW.pending);
    INSERT INTO seen SELECT NEW.key, NEW.digest, NEW.answer, NEW.kept_ns WHERE NEW.key IS NOT NULL;
    UPDATE books SET accepted = accepted + NEW.events WHERE (1 << destination) & NEW.pending;
END;
"""
_COLUMNS = 10


@dataclass(slots=True)
class Arrival:
    """
    A record that is to be kept.

    body   encode.py
    seen   its request; None: is not remembered
    """

    body: bytes
    events: int
    seen: Seen | None = None

    @property
    def size(self) -> int:
        """Bytes that count against the bounds."""
        return len(self.body) + ROW_BYTES


def insert(connection: Connection, arrivals: Sequence[Arrival], first: int, now_ns: int, pending: int) -> None:
    """Keep them under ascending numbers from `first`, for the destinations of the mask `pending`. At most `AT_ONCE`."""
    rows = [_row(number, arrival, now_ns, pending) for number, arrival in enumerate(arrivals, first)]
    connection.execute(_statement(len(rows)), list(chain.from_iterable(rows))).close()


def _row(number: int, arrival: Arrival, now_ns: int, pending: int) -> tuple[Any, ...]:
    body, seen = arrival.body, arrival.seen
    of_request = (None, None, None) if seen is None else (seen.key, seen.digest, seen.answer)
    return number, arrival.events, arrival.size, now_ns, zlib.crc32(body), body, pending, *of_request


@cache
def _statement(rows: int) -> str:
    row = f"({', '.join('?' * _COLUMNS)})"
    return f"INSERT INTO arriving VALUES {', '.join([row] * rows)}"
