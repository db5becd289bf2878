"""How many events an ETDump holds, without reading them: what a sender's account needs at once, at some 2 us a block."""

import struct

from otel_bridge.etdump.layout import ETDUMP, RUN_DATA, read_vtable
from otel_bridge.etdump.limits import Budget, malformed, open_frame

_RUN_DATA, _EVENTS = ETDUMP.index("run_data"), RUN_DATA.index("events")


def count_events(data: bytes) -> int:
    """
    Events of every kind, those that `read` rejects included.

    Raises MalformedETDump as `read` does, but only for what it has to look at.
    """
    frame = open_frame(data)
    budget = Budget(len(frame.data))
    at = frame.root_at
    try:
        at += _u32(frame.data, at)
        first, blocks = _vector(frame.data, at, _field(frame.data, at, ETDUMP, _RUN_DATA))
        budget.claim_blocks(blocks)
        events = 0
        for slot in range(first, first + 4 * blocks, 4):
            at = slot + _u32(frame.data, slot)
            _, count = _vector(frame.data, at, _field(frame.data, at, RUN_DATA, _EVENTS))
            budget.claim_events(count)
            events += count
    except struct.error as error:
        raise malformed("a block", at, "an offset or a length leads outside the file") from error
    return events


def _u32(data: bytes, at: int) -> int:
    return int(struct.unpack_from("<I", data, at)[0])


def _field(data: bytes, table: int, fields: tuple[str, ...], number: int) -> int:
    vtable: int = table - struct.unpack_from("<i", data, table)[0]
    return read_vtable(data, vtable, len(fields))[number]


def _vector(data: bytes, table: int, field: int) -> tuple[int, int]:
    """Where its first entry stands, and how many there are."""
    if not field:
        return 0, 0
    at = table + field
    at += _u32(data, at)
    return at + 4, _u32(data, at)
