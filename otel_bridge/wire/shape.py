"""
The columns of a request that say what happened, and not when. Part of admission; pure.

A model does the same in each inference, so a device sends these columns again and again, byte for byte: what is read and
checked of them is remembered by their bytes.

Invariants
* A shape follows from the bytes alone; whatever depends on the rest of a request (its tables, its clocks) is compared with it.
* Its arrays are shared by batches and cannot be written to.
* What is remembered has a bound: at most `_KEPT` shapes of at most `_KEPT_BYTES` each, as they are on the wire.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otel_bridge.model.events import NO_INSTRUCTION, EventKind
from otel_bridge.model.varints import decode_varints, unzigzag
from otel_bridge.v1 import profiling_pb2 as pb

TIMES = ("start_delta", "duration")
"""The columns that differ from inference to inference."""
STEADY = tuple(field.name for field in pb.EventColumns.DESCRIPTOR.fields if field.name not in TIMES)
"""The others, in the order of the schema."""
MAX_CHAIN = 255

_WHOLE = ("kind", "instruction", "identifier")
"""Columns that have every row; others have every row or none."""
_RUNTIME, _DELEGATE = EventKind.RUNTIME.value, EventKind.DELEGATE.value
_KINDS = len(EventKind)
_UINT32 = np.uint64(2**32 - 1)

_KEPT = 256
_KEPT_BYTES = 12_288
"""
Of one shape, as it came. Decoded it takes twelve times as much at most, so that all that are kept take some 40 MB at the very
most; a request whose columns are longer costs little an event anyway.
"""

Columns = Mapping[str, NDArray[Any]]
"""Each column's numbers, of whatever integer type holds them."""


@dataclass(slots=True, eq=False)
class Shape:
    """
    n rows; see `EventBatch` for its columns. Never changed once it is made.

    columns         as they came, each of any length: for whoever must say what is wrong with them
    even            whether each column has n entries, or may be left out and is
    sound           whether no row is at fault, whatever the tables hold
    most_name       the highest index into each table, of names, clocks and payloads; -1: none
    plain           the names of rows that are not of a delegate, each once
    """

    columns: Columns
    even: bool
    sound: bool
    kind: NDArray[np.uint8]
    instruction: NDArray[np.int32]
    chain: NDArray[np.uint8]
    name: NDArray[np.uint32]
    clock: NDArray[np.uint8]
    metadata: NDArray[np.uint32]
    occurrence: NDArray[np.uint32]
    most_name: int
    most_clock: int
    most_metadata: int
    plain: NDArray[np.uint32]

    def __len__(self) -> int:
        return len(self.kind)


def shape_of(pieces: tuple[bytes, ...]) -> Shape | None:
    """The shape in these packed fields, in the order of `STEADY`; None: protobuf must decode them (model/varints.py)."""
    return _known(pieces) if sum(map(len, pieces)) <= _KEPT_BYTES else _decode(pieces)


def _decode(pieces: Sequence[bytes]) -> Shape | None:
    decoded = decode_varints(pieces)
    if decoded is None:
        return None
    columns: dict[str, NDArray[Any]] = {}
    for name, column in zip(STEADY, decoded, strict=True):
        # All of these have 32 bits: protobuf drops what a longer number has beyond.
        numbers = column & _UINT32 if column.dtype == np.uint64 else column
        if name == "instruction":
            columns[name] = unzigzag(numbers)
        elif name == "kind" and numbers.dtype == np.uint64:
            columns[name] = numbers.astype(np.int32)  # an enum has a sign
        else:
            columns[name] = numbers
    return shape_from(columns)


_known = lru_cache(maxsize=_KEPT)(_decode)


def shape_from(columns: Columns) -> Shape:
    """The shape of decoded columns."""
    n = len(columns["kind"])
    even = all(len(columns[name]) == n or (name not in _WHOLE and not len(columns[name])) for name in STEADY)
    kind, instruction = columns["kind"].astype(np.uint8), columns["instruction"].astype(np.int32)
    name = columns["identifier"].astype(np.uint32)
    if even:
        instruction[kind == _RUNTIME] = NO_INSTRUCTION
    shape = Shape(
        columns,
        even,
        even and _is_sound(columns),
        kind,
        instruction,
        _filled(columns["chain"], n, np.uint8),
        name,
        _filled(columns["clock"], n, np.uint8),
        _filled(columns["metadata"], n, np.uint32),
        columns["occurrence"].astype(np.uint32),
        most_name=_most(columns["identifier"]),
        most_clock=_most(columns["clock"]),
        most_metadata=_most(columns["metadata"]),
        plain=np.unique(name[kind != _DELEGATE]) if even else name,
    )
    for column in (*columns.values(), kind, instruction, shape.chain, name, shape.clock, shape.metadata, shape.occurrence):
        column.flags.writeable = False
    return shape


def _is_sound(columns: Columns) -> bool:
    kind, instruction = columns["kind"], columns["instruction"]
    if not len(kind):
        return True
    if kind.min() < 1 or kind.max() > _KINDS or _most(columns["chain"]) > MAX_CHAIN:
        return False
    lowest = instruction.min()
    if lowest > NO_INSTRUCTION:
        return True
    outside = (kind == _RUNTIME) | (kind == _DELEGATE)
    return lowest == NO_INSTRUCTION and bool(((instruction != NO_INSTRUCTION) | outside).all())


def _most(column: NDArray[Any]) -> int:
    return int(column.max(initial=0)) if len(column) else -1


def _filled(column: NDArray[Any], n: int, dtype: type[np.unsignedinteger[Any]]) -> NDArray[Any]:
    """A column that may be left out: then all of it is 0."""
    return column.astype(dtype) if len(column) else np.zeros(n, dtype)
