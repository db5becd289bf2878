"""Records as they stand on disk, and what can be made of them."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

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


def ranges_of(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """First and last of each stretch of numbers that follow one another: a pass has mostly one."""
    stretches = groupby(enumerate(sorted(numbers)), lambda place: place[1] - place[0])
    return [(stretch[0][1], stretch[-1][1]) for stretch in (list(places) for _, places in stretches)]
