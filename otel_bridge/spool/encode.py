"""
An event batch as the bytes of a record, and back.

Invariants
* What is decoded equals what was encoded: tables, columns, order, types. Whatever admission fixed is in the bytes.
* The first byte is `VERSION`. A field that `model` adds later, with a default, needs no new version: fields at their defaults
  are not written.
* Bytes that are no batch raise `Undecodable`, whatever they are: nothing of a half-read record gets out.

    version u8 | width of each column u8 | bytes of tables, events, blocks, payloads u32 | least start u64
    tables: JSON of streams, blocks and names | columns, little-endian, as narrow as their values allow | payloads

A column of zeros has the width 0 and takes no bytes. Columns are narrowed since records are written, and written again by the
checkpoint, in pages of 4 KiB: 256 events take one of them instead of three.
"""

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import ConfigDict, TypeAdapter, ValidationError

from otel_bridge.model.events import Block, EventBatch, Identifier
from otel_bridge.model.stream import Stream
from otel_bridge.spool.steady import ABSENT, TYPES, most_of, narrowed, steady_of, width_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

VERSION = 1

_OF_EVENTS = ("kind", "instruction", "chain", "name", "start", "duration", "clock", "metadata", "occurrence")
"""Columns in the order in which they are written; before them stand events a block, and lengths of payloads."""
_HEAD = struct.Struct(f"<B{2 + len(_OF_EVENTS)}s4IQ")


class Undecodable(ValueError):
    """Bytes that are no record of this version."""


_JSON = ConfigDict(ser_json_bytes="hex", val_json_bytes="hex", ser_json_inf_nan="constants")
_Senders = tuple[tuple[Stream, ...], tuple[Block, ...]]
_SENDERS: TypeAdapter[_Senders] = TypeAdapter(_Senders, config=_JSON)
_Tables = tuple[tuple[Stream, ...], tuple[Block, ...], tuple[Identifier, ...]]
_TABLES: TypeAdapter[_Tables] = TypeAdapter(_Tables, config=_JSON)


def encode(batch: EventBatch) -> bytes:
    """The bytes of a batch."""
    steady = steady_of(batch)
    senders = _SENDERS.serializer.to_json((batch.streams, batch.blocks), exclude_defaults=True)
    least = np.minimum.reduce(batch.start) if len(batch) else np.uint64(0)
    counts, start, duration = batch.bounds[1:] - batch.bounds[:-1], batch.start - least, batch.duration
    lengths = list(map(len, batch.payloads))
    widths = [width_of(most) for most in (most_of(counts), max(lengths, default=0), most_of(start), most_of(duration))]
    of_counts, of_lengths, of_start, of_duration = widths
    packed = bytes([of_counts, of_lengths, *steady.widths_before, of_start, of_duration, *steady.widths_after])
    sizes = (len(senders) + len(steady.names) + 1, len(batch), len(batch.blocks), len(batch.payloads))
    return b"".join(
        (
            _HEAD.pack(VERSION, packed, *sizes, int(least)),
            senders[:-1],
            b",",
            steady.names,
            b"]",
            narrowed(counts, of_counts),
            narrowed(np.array(lengths, np.uint64), of_lengths) if of_lengths else b"",
            steady.before,
            narrowed(start, of_start),
            narrowed(duration, of_duration),
            steady.after,
            *batch.payloads,
        )
    )


def decode(data: bytes) -> EventBatch:
    """The batch in the bytes. Raises `Undecodable`."""
    if data[:1] != bytes([VERSION]):
        raise Undecodable(f"{len(data)} bytes that start with {data[:1].hex() or 'nothing'}, not with version {VERSION}")
    try:
        return _decode(data)
    except (struct.error, ValidationError, ValueError, KeyError) as error:
        raise Undecodable(f"{len(data)} bytes are no record: {type(error).__name__}") from error


def _decode(data: bytes) -> EventBatch:
    _, widths, tables_bytes, events, block_count, payload_count, least = _HEAD.unpack_from(data)
    if max(events, block_count, payload_count) > len(data):  # each takes a byte or more, but a column of zeros takes none
        raise ValueError("more of something than there are bytes")
    at = _HEAD.size + tables_bytes
    streams, blocks, names = _TABLES.validate_json(data[_HEAD.size : at])
    columns: list[NDArray[Any]] = []
    for width, length in zip(widths, (block_count, payload_count, *[events] * len(_OF_EVENTS)), strict=True):
        if width != ABSENT:
            columns.append(np.frombuffer(data, TYPES[width], length, at) if width else np.zeros(length, np.uint8))
            at += width * length
    counts, lengths, kind, instruction, chain, name, start, duration, clock, metadata, *occurrence = columns
    batch = EventBatch(
        streams=streams,
        blocks=blocks,
        names=names,
        payloads=tuple(_cut(data[at:], lengths.tolist())),
        bounds=np.concatenate(([0], np.cumsum(counts, dtype=np.int64))),
        kind=kind.astype(np.uint8),
        instruction=(instruction.astype(np.uint32) - np.uint32(1)).view(np.int32),
        chain=chain.astype(np.uint8),
        name=name.astype(np.uint32),
        start=start.astype(np.uint64) + np.uint64(least),
        duration=duration.astype(np.uint64),
        clock=clock.astype(np.uint8),
        metadata=metadata.astype(np.uint32),
        occurrence=occurrence[0].astype(np.uint32) if occurrence else None,
    )
    if int(batch.bounds[-1]) != events or len(blocks) != block_count:
        raise ValueError("tables and columns differ in length")
    return batch


def _cut(data: bytes, lengths: list[int]) -> Iterator[bytes]:
    at = 0
    for length in lengths:
        yield data[at : at + length]
        at += length
    if at != len(data):
        raise ValueError("payloads and their lengths differ")
