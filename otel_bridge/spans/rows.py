"""
Rows of bytes: spans of equal length as one two-dimensional array.

A row is a head of fixed width with ids and times, and a tail (spans/tails.py):

    0x12 len | 0a 10 trace id | 12 08 span id | 39 start | 41 end | 85 01 flags | [22 08 parent id] | tail
     field 2    16 B             8 B             8 B LE     8 B LE   4 B LE         8 B
    of ScopeSpans
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from otel_bridge.spans import encode, ids
from otel_bridge.spans.scene import Inference

_TRACE, _SPAN, _START, _END, _FLAGS, _PARENT = 2, 20, 29, 38, 48, 54
"""Offsets in a row, counted from the end of its length prefix."""
_HEAD = b"\x0a\x10" + bytes(16) + b"\x12\x08" + bytes(8) + b"\x39" + bytes(8) + b"\x41" + bytes(8) + b"\x85\x01" + bytes(4)
_PARENT_FIELD = b"\x22\x08" + bytes(8)


def prototype(tail: bytes, *, parented: bool) -> bytes:
    """A whole row with this tail, its ids and times all zero."""
    content = _HEAD + (_PARENT_FIELD if parented else b"") + tail
    return encode.field(2, len(content)) + content


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """
    What differs between rows of one tail, as bytes.

    trace uint8[n, 16]; span, parent uint8[n, 8] big-endian; start, end uint8[n, 8] and flags uint8[n, 4] little-endian.
    """

    trace: NDArray[np.uint8]
    span: NDArray[np.uint8]
    parent: NDArray[np.uint8]
    start: NDArray[np.uint8]
    end: NDArray[np.uint8]
    flags: NDArray[np.uint8]


def columns_of(
    inferences: tuple[Inference, ...],
    block: NDArray[np.int64],
    places: tuple[NDArray[np.uint64], NDArray[np.uint64]],
    times: tuple[NDArray[np.int64], NDArray[np.int64]],
    is_root: NDArray[np.bool_],
) -> Columns:
    """The columns of n spans: `block` indexes `inferences`, `places` are the span's and its parent's, `times` start and end."""
    keys = np.array([ids.key_of(inference.derived) for inference in inferences], np.uint64)[block]
    parent = _big_endian(ids.span_ids(places[1], keys))
    of_app = np.frombuffer(b"".join(inference.parent or bytes(8) for inference in inferences), np.uint8).reshape(-1, 8)
    parent[is_root] = of_app[block[is_root]]
    traces = np.frombuffer(b"".join(inference.trace_id for inference in inferences), np.uint8).reshape(-1, 16)
    flags = np.array([(inference.flags, inference.root_flags) for inference in inferences], "<u4")
    return Columns(
        traces[block],
        _big_endian(ids.span_ids(places[0], keys)),
        parent,
        _little_endian(times[0]),
        _little_endian(times[1]),
        flags[block, is_root.astype(np.int64)].astype("<u4").view(np.uint8).reshape(-1, 4),
    )


def write_rows(prototypes: list[bytes], which: NDArray[np.int64], columns: Columns, rows: NDArray[np.int64]) -> memoryview:
    """
    Rows of one length as one run of bytes.

    `prototypes` are of equal length, `which` chooses one a row, `rows` are the rows of `columns` to write.
    """
    matrix = np.frombuffer(b"".join(prototypes), np.uint8).reshape(len(prototypes), -1)[which]
    head = _prefix(prototypes[0])
    for offset, column in (
        (_TRACE, columns.trace),
        (_SPAN, columns.span),
        (_START, columns.start),
        (_END, columns.end),
        (_FLAGS, columns.flags),
    ):
        matrix[:, head + offset : head + offset + column.shape[1]] = column[rows]
    has_parent = np.array([p[head + _PARENT - 2 : head + _PARENT] == b"\x22\x08" for p in prototypes], np.bool_)[which]
    chosen = np.flatnonzero(has_parent)
    if len(chosen):  # else a row may be too short for the field
        matrix[chosen, head + _PARENT : head + _PARENT + 8] = columns.parent[rows[chosen]]
    return matrix.reshape(-1).data


def _prefix(row: bytes) -> int:
    length = 1
    while row[length] & 0x80:
        length += 1
    return length + 1


def _big_endian(values: NDArray[np.uint64]) -> NDArray[np.uint8]:
    return values.astype(">u8").view(np.uint8).reshape(-1, 8)


def _little_endian(values: NDArray[np.int64]) -> NDArray[np.uint8]:
    return values.astype("<u8").view(np.uint8).reshape(-1, 8)
