"""Metadata of a fixed layout, declared with the mapping."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_bridge.metadata.declared import compile_format
from otel_bridge.metadata.decoder import Content
from otel_bridge.metadata.layout import CODES, Layout
from otel_bridge.v1 import mapping_pb2 as pb


def layout_of(*fields: tuple[str, str, str], big_endian: bool = False) -> pb.StructLayout:
    """A layout with these (name, type, unit)."""
    given_fields = [pb.StructField(name=name, type=kind, unit=unit) for name, kind, unit in fields]
    return pb.StructLayout(fields=given_fields, big_endian=big_endian)


def test_fields_keep_their_types_and_say_their_units() -> None:
    """Integers stay integers, unlike those of a parser that may answer anything."""
    layout = layout_of(
        ("kernel", "u8", ""), ("shift", "i16", ""), ("took", "u32", "ns"), ("cycles", "u64", "{cycle}"), ("heap", "u16", "By"),
        ("load", "f32", "%"), ("ratio", "f64", "1"), ("hot", "bool", ""), ("tag", "bytes<3>", ""),
    )  # fmt: skip
    data = struct.pack("<BhIQHfd?3s", 7, -2, 1000, 2**40, 512, 0.5, 2.25, True, b"\x00\xff\x01")
    content = Layout(layout).decode(data)
    assert content == Content(
        pairs=(
            ("kernel", 7), ("shift", -2), ("took_ns", 1000), ("cycles_cycle", 2**40), ("heap_bytes", 512),
            ("load_percent", 0.5), ("ratio", 2.25), ("hot", True), ("tag", "00ff01"),
        )
    )  # fmt: skip
    assert [type(value) for _, value in content.pairs] == [int, int, int, int, int, float, float, bool, str]


@given(
    st.lists(st.sampled_from(sorted(CODES)), min_size=1, max_size=8),
    st.binary(min_size=64, max_size=64),
    st.booleans(),
)
def test_any_bytes_of_the_right_length_are_read_as_struct_reads_them(kinds: list[str], data: bytes, big_endian: bool) -> None:  # noqa: FBT001 - drawn by Hypothesis
    """What has no room in an attribute is left out and told; all else is there, unchanged."""
    form = struct.Struct((">" if big_endian else "<") + "".join(CODES[kind] for kind in kinds))
    layout = layout_of(*[(f"f{number}", kind, "") for number, kind in enumerate(kinds)], big_endian=big_endian)
    content = Layout(layout).decode(data[: form.size])
    expected = dict(zip((f"f{number}" for number in range(len(kinds))), form.unpack(data[: form.size]), strict=True))
    shown = dict(content.pairs)
    assert shown == {key: expected[key] for key in shown}
    for key, value in expected.items():
        if key not in shown:
            assert f"{key} is not a finite number of 64 bits with a sign" in content.error
            assert value != value or abs(value) >= 2**63  # noqa: PLR0124 - NaN is the value that differs from itself


@pytest.mark.parametrize("data", [b"\x01", b"\x01\x02\x03", b"\x00" * 10_000_000])
def test_bytes_of_another_length_are_not_of_the_layout(data: bytes) -> None:
    """Nothing is read from the wrong place."""
    content = Layout(layout_of(("n", "u16", ""))).decode(data)
    assert content.error == f"{len(data)} bytes, where the layout declared with the mapping has 2"
    assert data.hex().startswith(content.raw)


def test_a_declaration_that_says_nothing_costs_the_decoding_only() -> None:
    """A registry may hold what another version let through."""
    for layout in (layout_of(("n", "u128", "")), layout_of(("n", "bytes<x>", ""))):
        declared = pb.MetadataFormat(delegate="Toy", layout=layout).SerializeToString()
        assert "no type of a field" in read_by(declared, b"\x01").error
    assert "cannot be read" in read_by(pb.MetadataFormat(delegate="Toy").SerializeToString(), b"\x01").error


def read_by(declared: bytes, data: bytes) -> Content:
    """What a serialised declaration makes of bytes that it cannot read."""
    decode = compile_format(declared)
    assert not isinstance(decode, Layout)
    return decode(data)


@given(
    st.lists(st.sampled_from([*sorted(CODES), "bytes<1>", "bytes<5>"]), min_size=1, max_size=6),
    st.lists(st.binary(min_size=48, max_size=48), max_size=9),
    st.booleans(),
)
def test_read_together_bytes_say_what_each_says_alone(kinds: list[str], data: list[bytes], big_endian: bool) -> None:  # noqa: FBT001 - drawn by Hypothesis
    """Values and types are the same; those that something is left out of are not called good."""
    layout = Layout(layout_of(*[(f"f{number}", kind, "") for number, kind in enumerate(kinds)], big_endian=big_endian))
    assert layout.is_plain
    data = [each[: layout.size] for each in data]
    columns, good = layout.read(data)
    for index, each in enumerate(data):
        content = layout.decode(each)
        assert bool(good[index]) == (not content.error)
        if good[index]:
            said = [column[index].item() for column in columns]
            said = [value.decode() if isinstance(value, bytes) else value for value in said]
            assert said == [value for _, value in content.pairs]
            assert [type(value) for value in said] == [type(value) for _, value in content.pairs] == list(layout.types.values())


def test_a_layout_whose_fields_share_a_key_is_read_one_by_one() -> None:
    """Which of two fields of one name is shown, and what is told of the other, is said in one place."""
    assert not Layout(layout_of(("n", "u8", ""), ("n", "u8", ""))).is_plain
    assert not Layout(layout_of(("n_", "u8", ""))).is_plain
    assert not Layout(layout_of(*[(f"f{number}", "u8", "") for number in range(33)])).is_plain
