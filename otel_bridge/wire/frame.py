"""
An `ExportEventsRequest` on its way into columns: the same message, read more coarsely.

Protobuf's own parser makes a Python object of every number that is asked for, which costs more than all that is done with it
later. So it is given the schema with fields replaced by what they are on the wire: identifiers and columns come as bytes.
Tables of identifiers and columns that are known already (wire/shape.py) are not decoded at all, others by numpy, and times not
before a pass needs them (model/ticks.py).

Invariants
* A body is read here if and only if protobuf reads it with the schema of `proto/`, with an equal result. Whatever is unusual
  (columns that are not packed, or come in pieces) is left to protobuf. One exception does no harm: groups of unknown fields in
  an identifier, which are skipped, may be nested one level deeper than protobuf allows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, ClassVar, Self, cast

import numpy as np
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet

from otel_bridge.errors import MalformedRequest
from otel_bridge.model.ticks import SentNumbers, SentTicks, sent_ticks
from otel_bridge.model.varints import decode_varints, unzigzag
from otel_bridge.v1 import profiling_pb2 as pb
from otel_bridge.wire.names import Names, names_of
from otel_bridge.wire.shape import STEADY, Columns, Shape, shape_from, shape_of

_Field = descriptor_pb2.FieldDescriptorProto

_MOST = {"identifiers": 1 << 20, "metadata": 1 << 20, "blocks": 1 << 16}
_LEAST_OF_MANY_BYTES = 2 * min(_MOST.values())
"""Tables of shorter requests are within their bounds: an entry has two bytes at least."""
_MOST_EVENTS = 1 << 20

COLUMNS = tuple(field.name for field in pb.EventColumns.DESCRIPTOR.fields)
_NONE = np.zeros(0, np.int64)


def _coarse_messages() -> tuple[Any, Any]:
    """
    The classes of `ExportEventsRequest` and `EventColumns` in a coarse schema, where columns come as bytes.

    Of a column that comes in pieces only the last is read: then the message is smaller than the bytes that it was read from.
    """
    as_bytes = {"EventColumns": COLUMNS, "ExportEventsRequest": ("identifiers", "events")}
    file = descriptor_pb2.FileDescriptorProto()
    pb.DESCRIPTOR.CopyToProto(file)
    for message in file.message_type:
        for field in message.field:
            if field.name in as_bytes.get(message.name, ()):
                field.ClearField("type_name")
                field.ClearField("options")
                once = message.name == "EventColumns"
                field.label = _Field.LABEL_OPTIONAL if once else _Field.LABEL_REPEATED
                field.type = _Field.TYPE_BYTES
    pool = DescriptorPool()
    pool.Add(file)
    names = pb.ExportEventsRequest.DESCRIPTOR.full_name, pb.EventColumns.DESCRIPTOR.full_name
    request, events = (GetMessageClass(pool.FindMessageTypeByName(name)) for name in names)
    return request, events


_CoarseRequest, _CoarseColumns = _coarse_messages()


@dataclass(slots=True)  # frozen, it would take longer to make than to fill
class Frame:
    """
    A request, parsed as far as admission needs it; made by `FromString`, as messages are.

    stream        None: unset. To be read once: that changes it
    names         the table `identifiers`
    blocks        to be read once: that changes them
    shape         all columns but those of times
    times         these; `SentTicks` have as many as the shape, numbers may have any
    """

    stream: pb.Stream | None
    names: Names
    metadata: Sequence[bytes]
    blocks: Sequence[pb.Block]
    shape: Shape
    times: SentTicks | SentNumbers

    DESCRIPTOR: ClassVar[Descriptor] = pb.ExportEventsRequest.DESCRIPTOR

    @classmethod
    def FromString(cls, body: bytes) -> Self:  # noqa: N802 - the name that protobuf's messages have
        """The frame in the bytes. Raises `DecodeError` as protobuf does, and `MalformedRequest` where a table is too long."""
        seen = _CoarseRequest.FromString(body)
        if len(body) > _LEAST_OF_MANY_BYTES:
            for name, most in _MOST.items():
                _bound(name, len(getattr(seen, name)), most)
        columns = _coarse_columns(seen.events)
        if columns is None:
            columns = _protobuf_columns(pb.ExportEventsRequest.FromString(body).events)
        _bound("events.kind", len(columns[0]), _MOST_EVENTS)
        return cls(
            cast("pb.Stream", seen.stream) if seen.HasField("stream") else None,
            names_of(tuple(seen.identifiers)),
            seen.metadata,
            seen.blocks,
            *columns,
        )

    @property
    def columns(self) -> Columns:
        """All columns as they came."""
        return {**self.shape.columns, **self.numbers._asdict()}

    @property
    def numbers(self) -> SentNumbers:
        """The columns of times."""
        return self.times.numbers if isinstance(self.times, SentTicks) else self.times


def _bound(table: str, entries: int, most: int) -> None:
    if entries > most:
        raise MalformedRequest(f"{table}: has {entries} entries; at most {most} are allowed, send several requests")


_Columns = tuple[Shape, SentTicks | SentNumbers]
"""The last two parts of a `Frame`."""


def _coarse_columns(events: Sequence[bytes]) -> _Columns | None:
    """The columns of the one `EventColumns` of a request; None: protobuf must say."""
    if len(events) != 1:
        return None
    coarse = _CoarseColumns.FromString(events[0])
    # A column that is not packed is unknown to the coarse schema; one that comes in pieces is cut.
    if coarse.ByteSize() != len(events[0]) or len(UnknownFieldSet(coarse)):
        return None
    shape = shape_of(_steady_of(coarse))
    if shape is None:
        return None
    deltas, durations = coarse.start_delta, coarse.duration
    sent = sent_ticks(len(shape), deltas, durations)
    if sent is not None:
        return shape, sent
    decoded = decode_varints((deltas, durations))
    if decoded is None:
        return None
    delta, duration = decoded
    return shape, SentNumbers(unzigzag(delta).astype(np.int64, copy=False), duration.astype(np.uint64, copy=False))


_steady_of = attrgetter(*STEADY)
"""The packed fields of these columns, b"" where there is none."""


def _protobuf_columns(events: pb.EventColumns) -> _Columns:
    columns = {}
    for name in STEADY:
        values = getattr(events, name)
        columns[name] = np.fromiter(values, np.int64, len(values)) if values else _NONE
    delta, duration = events.start_delta, events.duration
    times = SentNumbers(np.fromiter(delta, np.int64, len(delta)), np.fromiter(duration, np.uint64, len(duration)))
    return shape_from(columns), times
