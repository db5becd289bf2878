"""
An event batch as the bytes of a record, and back.

Invariants
* What is decoded equals what was encoded: tables, columns, order, types. Whatever admission fixed is in the bytes.
* The first byte is the version: the lowest that has all of it. A field that `model` adds later, with a default, needs no
  new version: fields at their defaults are not written.
* Bytes that are no batch raise `Undecodable`, whatever they are: nothing of a half-read record gets out.

    version u8 | width of each column u8 | bytes of tables, events, blocks, payloads u32 | least start u64
    tables: JSON of streams, blocks and names | columns, little-endian, as narrow as their values or tables allow | payloads

A column of zeros has the width 0 and takes no bytes. Columns are narrowed since records are written, and written again by the
checkpoint, in pages of 4 KiB: 256 events take one of them instead of three. Ticks that are as a device sent them (`SentTicks`)
are written so, from version 2 on: both columns have the width `SENT`, and for the least start stand the bytes of both fields,
u32 each.
"""

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, TypeAdapter, ValidationError

from otel_bridge.model.events import Block, EventBatch, Identifier
from otel_bridge.model.stream import Stream
from otel_bridge.model.ticks import AnyTicks, SentTicks, Ticks, sent_ticks
from otel_bridge.spool.steady import ABSENT, TYPES, most_of, narrowed, steady_of, width_of

VERSIONS = (1, 2)
"""That are read."""

SENT = 254
"""In place of the widths of `start` and `duration`: they are fields of a message."""
_OF_EVENTS = ("kind", "instruction", "chain", "name", "start", "duration", "clock", "metadata", "occurrence")
"""Columns in the order in which they are written; before them stand events a block, and lengths of payloads."""
_HEAD = struct.Struct(f"<B{2 + len(_OF_EVENTS)}s4IQ")
_SIZES = struct.Struct("<II")


class Undecodable(ValueError):
    """Bytes that are no record of a version that is read."""


_JSON = ConfigDict(ser_json_bytes="hex", val_json_bytes="hex", ser_json_inf_nan="constants")
_Senders = tuple[tuple[Stream, ...], tuple[Block, ...]]
_SENDERS: TypeAdapter[_Senders] = TypeAdapter(_Senders, config=_JSON)
_Tables = tuple[tuple[Stream, ...], tuple[Block, ...], tuple[Identifier, ...]]
_TABLES: TypeAdapter[_Tables] = TypeAdapter(_Tables, config=_JSON)


def encode(batch: EventBatch) -> bytes:
    """The bytes of a batch."""
    steady = steady_of(batch)
    senders = _SENDERS.serializer.to_json((batch.streams, batch.blocks), exclude_defaults=True)
    widths_of_times, least, times = _encode_ticks(batch.ticks)
    counts, lengths = batch.bounds[1:] - batch.bounds[:-1], list(map(len, batch.payloads))
    of_counts, of_lengths = width_of(len(batch)), width_of(max(lengths, default=0))
    packed = bytes([of_counts, of_lengths, *steady.widths_before, *widths_of_times, *steady.widths_after])
    sizes = (len(senders) + len(steady.names) + 1, len(batch), len(batch.blocks), len(batch.payloads))
    return b"".join(
        (
            _HEAD.pack(VERSIONS[SENT in widths_of_times], packed, *sizes, least),
            senders[:-1],
            b",",
            steady.names,
            b"]",
            narrowed(counts, of_counts),
            narrowed(np.array(lengths, np.uint64), of_lengths) if of_lengths else b"",
            steady.before,
            *times,
            steady.after,
            *batch.payloads,
        )
    )


def _encode_ticks(ticks: AnyTicks) -> tuple[tuple[int, int], int, tuple[bytes, bytes]]:
    """Widths of both columns, what stands for the least start, and the columns."""
    if isinstance(ticks, SentTicks):
        sizes = _SIZES.pack(len(ticks.deltas), len(ticks.durations))
        return (SENT, SENT), int.from_bytes(sizes, "little"), (ticks.deltas, ticks.durations)
    least = np.minimum.reduce(ticks.start) if len(ticks) else np.uint64(0)
    start, duration = ticks.start - least, ticks.duration
    widths = width_of(most_of(start)), width_of(most_of(duration))
    return widths, int(least), (narrowed(start, widths[0]), narrowed(duration, widths[1]))


def decode(data: bytes) -> EventBatch:
    """The batch in the bytes. Raises `Undecodable`."""
    if not data or data[0] not in VERSIONS:
        raise Undecodable(f"{len(data)} bytes that start with {data[:1].hex() or 'nothing'}, not with a version of {VERSIONS}")
    try:
        return _decode(data)
    except (struct.error, ValidationError, ValueError, KeyError) as error:
        raise Undecodable(f"{len(data)} bytes are no record: {type(error).__name__}") from error


def _decode(data: bytes) -> EventBatch:
    version, widths, tables_bytes, events, block_count, payload_count, least = _HEAD.unpack_from(data)
    if max(events, block_count, payload_count) > len(data):  # each takes a byte or more, but a column of zeros takes none
        raise ValueError("more of something than there are bytes")
    at = _HEAD.size + tables_bytes
    streams, blocks, names = _TABLES.validate_json(data[_HEAD.size : at])
    rest = _Columns(data, at)
    counts, lengths = rest.next(widths[0], block_count), rest.next(widths[1], payload_count)
    kind, instruction, chain, name = [rest.next(width, events) for width in widths[2:6]]
    is_sent = version > 1 and widths[6:8] == bytes([SENT, SENT])
    ticks = rest.next_sent(least, events) if is_sent else rest.next_ticks(widths[6:8], least, events)
    clock, metadata = [rest.next(width, events) for width in widths[8:10]]
    occurrence = rest.next(widths[10], events) if widths[10] != ABSENT else None
    batch = EventBatch(
        streams=streams,
        blocks=blocks,
        names=names,
        payloads=tuple(_cut(data[rest.at :], lengths.tolist())),
        bounds=np.concatenate(([0], np.cumsum(counts, dtype=np.int64))),
        kind=kind.astype(np.uint8),
        instruction=(instruction.astype(np.uint32) - np.uint32(1)).view(np.int32),
        chain=chain.astype(np.uint8),
        name=name.astype(np.uint32),
        ticks=ticks,
        clock=clock.astype(np.uint8),
        metadata=metadata.astype(np.uint32),
        occurrence=occurrence.astype(np.uint32) if occurrence is not None else None,
    )
    if int(batch.bounds[-1]) != events or len(blocks) != block_count:
        raise ValueError("tables and columns differ in length")
    return batch


class _Columns:
    """The columns in a record, one after the other; `at` is where the next one begins."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self.at = at

    def next(self, width: int, length: int) -> NDArray[Any]:
        """So many values of that width. Raises `KeyError`, `ValueError`."""
        column = np.frombuffer(self._data, TYPES[width], length, self.at) if width else np.zeros(length, np.uint8)
        self.at += width * length
        return column

    def next_ticks(self, widths: bytes, least: int, events: int) -> AnyTicks:
        """Starts and durations as numbers. Raises as `next` does."""
        start, duration = [self.next(width, events).astype(np.uint64) for width in widths]
        return Ticks(start + np.uint64(least), duration)

    def next_sent(self, sizes: int, events: int) -> AnyTicks:
        """The same as fields of a message, whose bytes are in `sizes`. Raises `ValueError`."""
        fields = []
        for size in _SIZES.unpack(sizes.to_bytes(_SIZES.size, "little")):
            fields.append(self._data[self.at : self.at + size])
            self.at += size
        ticks = sent_ticks(events, *fields)
        if ticks is None or self.at > len(self._data):
            raise ValueError("fields of ticks do not hold a number for each event")
        return ticks


def _cut(data: bytes, lengths: list[int]) -> Iterator[bytes]:
    at = 0
    for length in lengths:
        yield data[at : at + length]
        at += length
    if at != len(data):
        raise ValueError("payloads and their lengths differ")
