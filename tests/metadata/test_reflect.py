"""Metadata that are FlatBuffers, read by a schema that the mapping declares. The schema and the message are flatc's work."""

import struct
from pathlib import Path

import flatbuffers
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_bridge.metadata.decoder import MAX_KEYS, MAX_RAW_BYTES, MAX_TEXT, Content
from otel_bridge.metadata.reflect import compile_schema
from otel_bridge.v1 import mapping_pb2 as pb

HERE = Path(__file__).parent
BFBS, MESSAGE = (HERE / "probe.bfbs").read_bytes(), (HERE / "probe.bin").read_bytes()


def decode(data: bytes, bfbs: bytes = BFBS, root_table: str = "") -> Content:
    """Read with a schema."""
    return compile_schema(pb.FlatbufferSchema(bfbs=bfbs, root_table=root_table))(data)


def test_every_kind_of_field_is_read_as_declared() -> None:
    """The message is probe.json, which flatc made binary: types as declared, tables by path, vectors as JSON, bytes as hex."""
    content = decode(MESSAGE)
    assert dict(content.pairs) == {
        "kernel": "conv", "unit": "NPU", "hot": True, "load": 0.5, "energy": 2.25, "small": -3, "retries": 4,
        "offset": -9_000_000_000, "box_low_x": 1, "box_low_y": 1.5, "box_high_x": -2, "box_high_y": 2.5,
        "box_codes": "[1,2,255]", "timing_start": 12, "timing_cycles": 5, "timing_inner_start": 13,
        "timing_inner_cycles": 6, "outcome_type": "Failure", "outcome_reason": "hot", "lanes": "[1,-2]", "names": '["a","b"]',
        "points": '[{"x":3,"y":0.5}]', "steps": '[{"start":1,"cycles":5}]', "blob": "dead", "units": '["CPU","NPU"]',
    }  # fmt: skip
    assert content.error == "big is not a finite number of 64 bits with a sign"  # 2^63


def message_of(**slots: int) -> bytes:
    """A message of table `Other`, or of `Run` with nothing in it."""
    builder = flatbuffers.Builder(64)
    builder.StartObject(1)
    for value in slots.values():
        builder.PrependInt32Slot(0, value, 0)
    builder.Finish(builder.EndObject())
    return bytes(builder.Output())


def test_what_is_not_there_has_the_schemas_default_or_no_key() -> None:
    """An optional scalar, text, tables and vectors that are absent are not shown as if they were there."""
    assert dict(decode(message_of()).pairs) == {
        "unit": "GPU", "hot": False, "load": 0.0, "energy": 0.0, "small": 0, "offset": 0, "big": 0, "outcome_type": "NONE",
    }  # fmt: skip


def test_another_table_may_be_the_root() -> None:
    """By its full name."""
    assert decode(message_of(value=9), root_table="probe.Other").pairs == (("value", 9),)
    assert "lacks the root table" in decode(message_of(value=9), root_table="probe.Missing").error


def test_a_value_that_the_enum_does_not_have_is_its_number_as_text() -> None:
    """The key keeps its type when a device is newer than the schema."""
    builder = flatbuffers.Builder(64)
    builder.StartObject(2)
    builder.PrependInt8Slot(1, 99, 1)
    builder.Finish(builder.EndObject())
    assert dict(decode(bytes(builder.Output())).pairs)["unit"] == "99"


def nested(depth: int) -> bytes:
    """A `Run` whose `timing` holds `inner` so many times."""
    builder = flatbuffers.Builder(1024)
    inner = 0
    for _ in range(depth):
        builder.StartObject(3)
        if inner:
            builder.PrependUOffsetTRelativeSlot(2, inner, 0)
        inner = builder.EndObject()
    builder.StartObject(13)
    builder.PrependUOffsetTRelativeSlot(11, inner, 0)
    builder.Finish(builder.EndObject())
    return bytes(builder.Output())


def shared(width: int) -> bytes:
    """A `Run` whose vector `steps` refers to one chain of tables so many times."""
    builder = flatbuffers.Builder(1024)
    table = 0
    for _ in range(6):
        builder.StartObject(3)
        if table:
            builder.PrependUOffsetTRelativeSlot(2, table, 0)
        table = builder.EndObject()
    builder.StartVector(4, width, 4)
    for _ in range(width):
        builder.PrependUOffsetTRelative(table)
    steps = builder.EndVector()
    builder.StartObject(19)
    builder.PrependUOffsetTRelativeSlot(17, steps, 0)
    builder.Finish(builder.EndObject())
    return bytes(builder.Output())


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", "an offset to byte"),
        (b"\x00" * 8, "not readable by the schema"),
        (b"\xff" * 4096, "an offset to byte"),
        (struct.pack("<I", 4) + b"\x00" * 60, "not readable by the schema"),
        (nested(200), "tables nested deeper than 8"),
        (MESSAGE[:100], "not readable by the schema"),
    ],
)
def test_a_hostile_message_stays_undecoded_and_says_why(data: bytes, error: str) -> None:
    """Circles, depth and offsets into nowhere."""
    content = decode(data)
    assert error in content.error
    assert data[:MAX_RAW_BYTES].hex() == content.raw


def test_one_table_that_is_referred_to_many_times_costs_a_bounded_amount() -> None:
    """128 of a vector are read, and within those no more than the budget."""
    content = decode(shared(100_000))
    assert content.error
    assert "steps" not in dict(content.pairs) or len(str(dict(content.pairs)["steps"])) <= MAX_TEXT


@pytest.mark.parametrize(
    "bfbs", [b"", b"BFBS", b"\x00\x00\x00\x00BFBS", MESSAGE, b"\xff" * 4 + b"BFBS" + b"\xff" * 100, BFBS[:200]]
)
def test_a_hostile_schema_costs_the_decoding_only(bfbs: bytes) -> None:
    """It is told what is wrong, on every event that would have needed it."""
    assert "schema declared with the mapping" in decode(MESSAGE, bfbs).error


@settings(deadline=None, max_examples=300)
@given(st.lists(st.tuples(st.integers(0, len(BFBS) - 1), st.integers(0, 255)), max_size=6), st.integers(0, len(BFBS)))
def test_no_schema_breaks_the_reader(changes: list[tuple[int, int]], end: int) -> None:
    """Any bytes changed, any end: something to show, within bounds, and no exception."""
    bfbs = bytearray(BFBS)
    for place, value in changes:
        bfbs[place] = value
    _check(decode(MESSAGE, bytes(bfbs[: end if end > 8 else len(bfbs)])))


@settings(deadline=None, max_examples=300)
@given(st.lists(st.tuples(st.integers(0, len(MESSAGE) - 1), st.integers(0, 255)), max_size=6), st.binary(max_size=200))
def test_no_message_breaks_the_reader(changes: list[tuple[int, int]], other: bytes) -> None:
    """A message damaged anywhere, and bytes that are none."""
    data = bytearray(MESSAGE)
    for place, value in changes:
        data[place] = value
    _check(decode(bytes(data)))
    _check(decode(other))


def _check(content: Content) -> None:
    assert content.pairs or content.raw or content.error
    assert len(content.pairs) <= MAX_KEYS
    assert len(content.error) <= MAX_TEXT
    assert all(len(value) <= MAX_TEXT for _, value in content.pairs if isinstance(value, str))
