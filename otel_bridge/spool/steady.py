"""
The part of a record that devices say again and again: the table of names, and the columns that say what happened, not when.

Admission remembers these by their bytes (wire/shape.py, wire/names.py), so that requests share them: what was made of them
once is found by the identity of the objects.

Invariants
* What is found is what would be made: batches and arrays never change, and objects whose identity is known are kept.
* Only what can be shared, since nobody can write to it, is remembered, within bounds: some 20 MB, if all of them are met.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from otel_bridge.model.events import EventBatch, Identifier

TYPES: dict[int, np.dtype[Any]] = {
    0: np.dtype("u1"),
    1: np.dtype("u1"),
    2: np.dtype("<u2"),
    4: np.dtype("<u4"),
    8: np.dtype("<u8"),
}
"""Of a column, by the bytes that each of its values takes."""

ABSENT = 255
"""In place of the width of `occurrence`: there is none."""

_WIDTHS = [next(width for width in TYPES if bits <= 8 * width) for bits in range(65)]
"""By the bits of the largest value."""

_NAMES: TypeAdapter[tuple[Identifier, ...]] = TypeAdapter(tuple[Identifier, ...])
_KEPT = 256
_KEPT_EVENTS, _KEPT_BYTES = 2048, 16_384
"""Of a batch, and of its names: beyond, an event costs little anyway."""


@dataclass(slots=True, eq=False)
class Steady:
    """
    In bytes, as encode.py puts them together.

    names            JSON
    before, after    columns before and after those of times; widths_before, widths_after of their values
    """

    names: bytes
    widths_before: bytes
    before: bytes
    widths_after: bytes
    after: bytes


def steady_of(batch: EventBatch) -> Steady:
    """What a batch has in common with others."""
    columns = (batch.kind, batch.instruction, batch.chain, batch.name, batch.clock, batch.metadata, batch.occurrence)
    clocks = max((len(stream.clocks) for stream in batch.streams), default=0)
    key = (*map(id, columns), id(batch.names), clocks, len(batch.payloads))
    found = _known.get(key)
    if found is not None:
        return found[0]
    made = _make(batch, clocks)
    is_shared = not (batch.kind.flags.writeable or batch.metadata.flags.writeable)
    if is_shared and len(batch) <= _KEPT_EVENTS and len(made.names) <= _KEPT_BYTES:
        if len(_known) >= _KEPT:
            _known.clear()  # where more take turns, none would be there when it is needed again, whichever goes
        _known[key] = made, (*columns, batch.names)
    return made


_known: dict[tuple[int, ...], tuple[Steady, tuple[object, ...]]] = {}
"""With what the key names, so that it names nothing else."""


def _make(batch: EventBatch, clocks: int) -> Steady:
    instruction = batch.instruction.view(np.uint32) + np.uint32(1)  # so that NO_INSTRUCTION is 0
    # What is an index is bounded by its table; only the others are looked through.
    before: list[tuple[NDArray[Any], int]] = [
        (batch.kind, 1),
        (instruction, width_of(most_of(instruction))),
        (batch.chain, width_of(most_of(batch.chain))),
        (batch.name, width_of(len(batch.names) - 1)),
    ]
    after: list[tuple[NDArray[Any], int]] = [
        (batch.clock, width_of(clocks - 1)),
        (batch.metadata, width_of(len(batch.payloads) - 1)),
    ]
    if batch.occurrence is not None:
        after.append((batch.occurrence, width_of(most_of(batch.occurrence))))
    widths_after = [width for _, width in after]
    if batch.occurrence is None:
        widths_after.append(ABSENT)
    names = _NAMES.dump_json(batch.names)
    return Steady(names, bytes(width for _, width in before), _joined(before), bytes(widths_after), _joined(after))


def _joined(columns: Iterable[tuple[NDArray[Any], int]]) -> bytes:
    return b"".join([narrowed(column, width) for column, width in columns])


def narrowed(column: NDArray[Any], width: int) -> bytes:
    """A column whose values take `width` bytes each; of one that is all 0, none."""
    return column.astype(TYPES[width], copy=False).tobytes() if width else b""


def most_of(column: NDArray[Any]) -> int:
    """The largest value; 0 where there is none."""
    return int(np.maximum.reduce(column)) if len(column) else 0


def width_of(most: int) -> int:
    """The bytes that each value of a column of unsigned integers up to `most` needs."""
    return _WIDTHS[most.bit_length()]
