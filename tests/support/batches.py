"""Comparing batches of events: `EventBatch` holds arrays, which `==` does not compare as one."""

from collections.abc import Iterable
from dataclasses import fields, replace

import numpy as np

from otel_bridge.model.events import EventBatch
from otel_bridge.model.ticks import sent_ticks


def differences(a: EventBatch, b: EventBatch) -> list[str]:
    """Names of the fields in which two batches differ: values, order, dtype or shape. Empty: they are equal."""
    names = [field.name for field in fields(EventBatch) if field.compare and field.name != "ticks"]
    return [name for name in (*names, "start", "duration") if not _equal(getattr(a, name), getattr(b, name))]


def equal_batches(a: EventBatch, b: EventBatch) -> bool:
    """Whether all tables and columns are equal, also in order, dtype and shape."""
    return not differences(a, b)


def packed(numbers: Iterable[int]) -> bytes:
    """A packed field of these numbers."""
    encoded = bytearray()
    for number in numbers:
        left = number
        while left > 0x7F:
            encoded.append(left & 0x7F | 0x80)
            left >>= 7
        encoded.append(left)
    return bytes(encoded)


def as_sent(batch: EventBatch) -> EventBatch:
    """The batch with its ticks as a device sends them."""
    deltas = np.diff(batch.start, prepend=np.uint64(0)).view(np.int64)
    zigzag = (deltas << 1 ^ deltas >> 63).view(np.uint64)
    sent = sent_ticks(len(batch), packed(zigzag.tolist()), packed(batch.duration.tolist()))
    assert sent is not None
    return replace(batch, ticks=sent)


def timeless(batch: EventBatch) -> EventBatch:
    """The batch without the moment of its receipt."""
    return replace(batch, streams=tuple(replace(each, received_ns=0, ended_ns=0, latest_ns=0) for each in batch.streams))


def _equal(a: object, b: object) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b)
    # Types, too: in the table of names 1 == True.
    if isinstance(a, tuple) and isinstance(b, tuple):
        return a == b and [type(item) for item in a] == [type(item) for item in b]
    return a == b
