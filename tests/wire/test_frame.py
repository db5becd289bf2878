"""Requests are read as protobuf reads them, only faster."""

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.batches import packed
from support.scenes import batches

from otel_bridge.model.events import EventBatch
from otel_bridge.model.varints import decode_varints, unzigzag
from otel_bridge.v1 import profiling_pb2 as pb
from otel_bridge.wire import names as naming
from otel_bridge.wire.codec import request_of
from otel_bridge.wire.frame import COLUMNS, Frame
from otel_bridge.wire.names import names_of


def said(body: bytes) -> list[object] | None:
    """What protobuf makes of a body; None: it refuses it."""
    try:
        request = pb.ExportEventsRequest.FromString(body)
    except DecodeError:
        return None
    names = names_of(tuple(each.SerializeToString() for each in request.identifiers))
    return [
        request.stream.SerializeToString(deterministic=True) if request.HasField("stream") else None,
        (names.names, names.faults),
        list(request.metadata),
        [block.SerializeToString(deterministic=True) for block in request.blocks],
        {name: list(getattr(request.events, name)) for name in COLUMNS},
    ]


def framed(body: bytes) -> list[object] | None:
    """The same of the coarse reader."""
    try:
        frame = Frame.FromString(body)
    except DecodeError:
        return None
    return [
        frame.stream.SerializeToString(deterministic=True) if frame.stream is not None else None,
        (frame.names.names, frame.names.faults),
        list(frame.metadata),
        [block.SerializeToString(deterministic=True) for block in frame.blocks],
        {name: frame.columns[name].tolist() for name in COLUMNS},
    ]


@settings(deadline=None)
@given(batches())
def test_any_batch_is_read_alike(batch: EventBatch) -> None:
    """Whatever a bridge would write, both read the same columns and tables from it."""
    body = request_of(batch).SerializeToString()
    assert framed(body) == said(body)


@settings(deadline=None, max_examples=200)
@given(batches(), st.data())
def test_damaged_bytes_are_read_alike_or_refused_by_both(batch: EventBatch, data: st.DataObject) -> None:
    """Bytes changed, cut out or put in anywhere: what protobuf reads is read alike, what it refuses is refused."""
    body = bytearray(request_of(batch).SerializeToString())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(body)))
        body[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
    assert framed(bytes(body)) == said(bytes(body))


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, len(COLUMNS)), st.binary(max_size=24)), max_size=6))
def test_any_bytes_in_a_column_are_read_alike_or_refused_by_both(columns: list[tuple[int, bytes]]) -> None:
    """Numbers too long for their column, cut in the middle, in pieces: both agree."""
    events = b"".join(bytes([number << 3 | 2, len(packed)]) + packed for number, packed in columns)
    body = b"\x2a" + bytes([len(events) & 0x7F | 0x80, len(events) >> 7]) + events
    assert framed(body) == said(body)


def test_columns_that_are_not_packed_or_come_in_pieces() -> None:
    """Proto2's way to write a repeated number, pieces of one column and pieces of the message are read as one column."""
    unpacked, packed, piece = b"\x08\x01\x08\x04", b"\x0a\x02\x02\x03", b"\x2a\x04\x0a\x02\x02\x03"
    bodies = [b"\x2a\x08" + unpacked + packed, b"\x2a\x08" + packed + packed, piece + piece]
    assert [framed(body) for body in bodies] == [said(body) for body in bodies]
    assert [Frame.FromString(body).columns["kind"].tolist() for body in bodies] == [[1, 4, 2, 3], [2, 3] * 2, [2, 3] * 2]


def test_a_kind_has_a_sign() -> None:
    """An enum is 32 bits with a sign: a large number is a negative one to both, and is told as such to the sender."""
    body = b"\x2a\x07\x0a\x05\xff\xff\xff\xff\x0f"
    assert framed(body) == said(body)
    assert Frame.FromString(body).columns["kind"].tolist() == [-1]


@pytest.mark.parametrize("levels", [98, 99, 100])
def test_nesting_is_bounded_alike(levels: int) -> None:
    """Unknown groups in each other: protobuf gives up at a depth that counts from the top of the request, whoever reads it."""
    events = b"\x7b" * levels + b"\x7c" * levels
    body = b"\x2a" + bytes([len(events) & 0x7F | 0x80, len(events) >> 7]) + events
    assert framed(body) == said(body)


@given(st.lists(st.lists(st.integers(0, 127) | st.integers(0, 2**64 - 1)), max_size=4))
@example([[0], [], [2**56 - 1, 0, 127, 128], [128], [2**56, 2**63, 2**64 - 1, 1]])
def test_numbers_of_64_bits_are_decoded(fields: list[list[int]]) -> None:
    """No number that a field can have takes the slow way."""
    decoded = decode_varints(list(map(packed, fields)))
    assert decoded is not None
    assert [numbers.tolist() for numbers in decoded] == fields


@given(st.lists(st.integers(-(2**55), 2**55 - 1)), st.booleans())
def test_signed_numbers_are_what_they_were(numbers: list[int], narrow: bool) -> None:  # noqa: FBT001 - drawn by Hypothesis
    """The zigzag of any number is undone, in bytes as in words."""
    if narrow:
        numbers = [number % 256 - 128 for number in numbers]
    zigzag = [number << 1 if number >= 0 else (-number << 1) - 1 for number in numbers]
    assert unzigzag(np.array(zigzag, np.uint8 if narrow else np.uint64)).tolist() == numbers


def test_a_table_is_decoded_once() -> None:
    """Requests of one device share the names of their table: they are compared by identity first, further on."""
    body = request_of_names(b"conv #1", b"conv #2")
    assert Frame.FromString(body).names is Frame.FromString(body).names


def test_tables_that_are_remembered_are_small() -> None:
    """A table of very many or long entries is decoded anew each time: what devices make the bridge remember is bounded."""
    for names in ([b"x" * 4096] * 65, [b""] * 2000):
        body = request_of_names(*names)
        assert Frame.FromString(body).names is not Frame.FromString(body).names


def test_large_tables_that_are_remembered_are_few() -> None:
    """A model of a thousand identifiers is decoded once, and pushes out no small table; many such models, not all of them."""
    small = Frame.FromString(request_of_names(b"small")).names
    bodies = [
        request_of_names(*(b"%d of %d" % (number, model) for number in range(1000))) for model in range(naming._KEPT_LARGE)
    ]
    tables = [Frame.FromString(body).names for body in bodies]
    assert all(Frame.FromString(body).names is table for body, table in zip(bodies, tables, strict=True))
    Frame.FromString(request_of_names(*[b"one more"] * 1000))
    assert Frame.FromString(bodies[0]).names is not tables[0]
    assert Frame.FromString(request_of_names(b"small")).names is small


def request_of_names(*names: bytes) -> bytes:
    """A request with these names."""
    return pb.ExportEventsRequest(identifiers=[pb.Identifier(text=name) for name in names]).SerializeToString()
