"""Metadata of a fixed layout, declared with the mapping."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_bridge.metadata.declared import compile_format
from otel_bridge.metadata.decoder import Content
from otel_bridge.metadata.layout import CODES, compile_layout
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
    content = compile_layout(layout)(data)
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
    content = compile_layout(layout)(data[: form.size])
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
    content = compile_layout(layout_of(("n", "u16", "")))(data)
    assert content.error == f"{len(data)} bytes, where the layout declared with the mapping has 2"
    assert data.hex().startswith(content.raw)


def test_a_declaration_that_says_nothing_costs_the_decoding_only() -> None:
    """A registry may hold what another version let through."""
    for layout in (layout_of(("n", "u128", "")), layout_of(("n", "bytes<x>", ""))):
        declared = pb.MetadataFormat(delegate="Toy", layout=layout).SerializeToString()
        assert "no type of a field" in compile_format(declared)(b"\x01").error
    assert "cannot be read" in compile_format(pb.MetadataFormat(delegate="Toy").SerializeToString())(b"\x01").error
