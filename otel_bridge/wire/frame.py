"""
An `ExportEventsRequest` on its way into columns: the same message, read more coarsely.

Protobuf's own parser makes a Python object of every number that is asked for, which costs more than all that is done with it
later. So it is given the schema with two kinds of fields replaced by what they are on the wire: identifiers and columns come
as bytes. Packed columns are then decoded by numpy, tables of identifiers that are known already are not decoded at all.

Invariants
* A body is read here if and only if protobuf reads it with the schema of `proto/`, with an equal result. Whatever is unusual
  (columns that are not packed, or come in pieces) is left to protobuf. One exception does no harm: groups of unknown fields in
  an identifier, which are skipped, may be nested one level deeper than protobuf allows.
* A few events are cheaper by protobuf: below `_FEW_BYTES` of columns they are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self, cast

import numpy as np
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet
from numpy.typing import NDArray

from otel_bridge.errors import MalformedRequest
from otel_bridge.v1 import profiling_pb2 as pb
from otel_bridge.wire.names import Names, names_of
from otel_bridge.wire.varints import decode_varints, unzigzag

_FEW_BYTES = 1000
_UINT32 = np.uint64(2**32 - 1)

_MOST = {"identifiers": 1 << 20, "metadata": 1 << 20, "blocks": 1 << 16}
_MOST_EVENTS = 1 << 20

COLUMNS = tuple(field.name for field in pb.EventColumns.DESCRIPTOR.fields)
_ZIGZAG = {"instruction", "start_delta"}
_HALF = {"kind", "instruction", "chain", "identifier", "clock", "metadata", "occurrence"}
"""Columns of 32 bits: protobuf drops what a longer number has beyond."""
_SIGNED = {"kind"}
"""Of these, those whose highest bit is a sign."""

_NONE = np.zeros(0, np.int64)

Columns = Mapping[str, NDArray[Any]]
"""Each column's numbers, of whatever integer type holds them."""


def _coarse_messages() -> tuple[Any, Any]:
    """The classes of `ExportEventsRequest` and `EventColumns` in the coarse schema."""
    file = descriptor_pb2.FileDescriptorProto()
    pb.DESCRIPTOR.CopyToProto(file)
    for message in file.message_type:
        for field in message.field:
            if message.name == "EventColumns" or (message.name == "ExportEventsRequest" and field.name in _AS_BYTES):
                field.ClearField("type_name")
                field.ClearField("options")
                field.label = descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED
                field.type = descriptor_pb2.FieldDescriptorProto.TYPE_BYTES
    pool = DescriptorPool()
    pool.Add(file)
    names = pb.ExportEventsRequest.DESCRIPTOR.full_name, pb.EventColumns.DESCRIPTOR.full_name
    request, columns = (GetMessageClass(pool.FindMessageTypeByName(name)) for name in names)
    return request, columns


_AS_BYTES = {"identifiers", "events"}
_CoarseRequest, _CoarseColumns = _coarse_messages()


@dataclass(frozen=True, slots=True)
class Frame:
    """
    A request, parsed as far as admission needs it; made by `FromString`, as messages are.

    stream    None: unset
    names     the table `identifiers`
    blocks    to be read once: that changes them
    """

    stream: pb.Stream | None
    names: Names
    metadata: Sequence[bytes]
    blocks: Sequence[pb.Block]
    columns: Columns

    DESCRIPTOR: ClassVar[Descriptor] = pb.ExportEventsRequest.DESCRIPTOR

    @classmethod
    def FromString(cls, body: bytes) -> Self:  # noqa: N802 - the name that protobuf's messages have
        """The frame in the bytes. Raises `DecodeError` as protobuf does, and `MalformedRequest` where a table is too long."""
        seen = _CoarseRequest.FromString(body)
        for name, most in _MOST.items():
            _bound(name, len(getattr(seen, name)), most)
        columns = _coarse_columns(seen.events)
        if columns is None:
            columns = _protobuf_columns(pb.ExportEventsRequest.FromString(body).events)
        _bound("events.kind", len(columns["kind"]), _MOST_EVENTS)
        return cls(
            cast("pb.Stream", seen.stream) if seen.HasField("stream") else None,
            names_of(tuple(seen.identifiers)),
            seen.metadata,
            seen.blocks,
            columns,
        )


def _bound(table: str, entries: int, most: int) -> None:
    if entries > most:
        raise MalformedRequest(f"{table}: has {entries} entries; at most {most} are allowed, send several requests")


def _coarse_columns(events: Sequence[bytes]) -> Columns | None:
    """The columns of the one `EventColumns` of a request; None: protobuf must say."""
    if len(events) != 1:
        return None
    if len(events[0]) < _FEW_BYTES:
        return _few_columns(events[0])
    coarse = _CoarseColumns.FromString(events[0])
    if len(UnknownFieldSet(coarse)):  # a column that is not packed is unknown to the coarse schema
        return None
    pieces = [getattr(coarse, name) for name in COLUMNS]
    if max(map(len, pieces)) > 1:
        return None
    decoded = decode_varints([piece[0] if piece else b"" for piece in pieces])
    if decoded is None:
        return None
    columns: dict[str, NDArray[Any]] = {}
    for name, column in zip(COLUMNS, decoded, strict=True):
        numbers = column & _UINT32 if name in _HALF and column.dtype == np.uint64 else column
        if name in _ZIGZAG:
            columns[name] = unzigzag(numbers)
        elif name in _SIGNED and numbers.dtype == np.uint64:
            columns[name] = numbers.astype(np.int32)
        else:
            columns[name] = numbers
    return columns


def _few_columns(events: bytes) -> Columns | None:
    """The same by protobuf, which follows unknown groups one level deeper than it would from the top of the request."""
    columns = pb.EventColumns.FromString(events)
    return None if len(UnknownFieldSet(columns)) else _protobuf_columns(columns)


def _protobuf_columns(events: pb.EventColumns) -> Columns:
    columns = {}
    for name in COLUMNS:
        values = getattr(events, name)
        columns[name] = np.fromiter(values, np.uint64 if name == "duration" else np.int64, len(values)) if values else _NONE
    return columns
