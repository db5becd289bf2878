"""
Metadata of a fixed layout, as the mapping declares it: fields one after the other, without padding.

Invariant: bytes of another length than the layout's are not of this layout, and stay undecoded.
"""

import re
import struct
from collections.abc import Callable

from otel_bridge.metadata.decoder import Content, Scalar, declared, undecoded
from otel_bridge.v1 import mapping_pb2 as pb

CODES = {
    "u8": "B", "i8": "b", "u16": "H", "i16": "h", "u32": "I", "i32": "i", "u64": "Q", "i64": "q", "f32": "f", "f64": "d",
    "bool": "?",
}  # fmt: skip
"""Types of fields, as Python's struct names them; beside them there is `bytes<N>`."""

_BYTES = re.compile(r"bytes<(\d{1,4})>\Z")
_WORDS = {"By": "bytes", "%": "percent", "1": ""}
"""UCUM codes as words, where the code itself would not read as one."""


def compile_layout(layout: pb.StructLayout) -> Callable[[bytes], Content]:
    """The decoder of a layout. Raises `ValueError` for what is no layout (mapping/formats.py lets none through)."""
    form = struct.Struct((">" if layout.big_endian else "<") + "".join(_code(field.type) for field in layout.fields))
    keys = [_key(field) for field in layout.fields]

    def decode(data: bytes) -> Content:
        if len(data) != form.size:
            return undecoded(data, f"{len(data)} bytes, where the layout declared with the mapping has {form.size}")
        values: tuple[Scalar | bytes, ...] = form.unpack(data)
        return declared(
            ((key, value.hex() if isinstance(value, bytes) else value) for key, value in zip(keys, values, strict=True)), data
        )

    return decode


def _code(kind: str) -> str:
    if kind in CODES:
        return CODES[kind]
    count = _BYTES.match(kind)
    if count is None:
        raise ValueError(f"no type of a field: {kind[:64]!r}")
    return f"{count[1]}s"


def _key(field: pb.StructField) -> str:
    unit = field.unit
    word = _WORDS.get(unit, unit.strip("{}").lower())
    return f"{field.name}_{word}" if word else field.name
