"""A record as it stands on disk, and what can be made of it."""

import zlib
from dataclasses import dataclass

from otel_bridge.spool.encode import Undecodable, decode
from otel_bridge.spool.protocol import Record


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table `records`; schema.py says what its columns are."""

    number: int
    events: int
    size: int
    kept_ns: int
    has_waited: bool
    build: str | None
    checksum: int
    body: bytes
    pending: int


def events_in(body: bytes, checksum: int) -> int:
    """How many events a body holds; 0 where it is damaged."""
    if zlib.crc32(body) != checksum:
        return 0
    try:
        return len(decode(body))
    except Undecodable:
        return 0


def record_of(row: Row) -> Record | str:
    """The record; or how the row is damaged: `checksum`, `undecodable`, or `count` where it says another number of events."""
    if zlib.crc32(row.body) != row.checksum:
        return "checksum"
    try:
        batch = decode(row.body)
    except Undecodable:
        return "undecodable"
    if len(batch) != row.events:
        return "count"
    record = Record(row.number, batch, row.has_waited)
    return record if row.build is None else record.bind(row.build)
