"""
Metadata of a fixed layout, as the mapping declares it: fields one after the other, without padding.

Invariants
* Bytes of another length than the layout's are not of this layout, and stay undecoded.
* Read many at a time (`Layout.read`) or one by one (`Layout.decode`), bytes say the same.
"""

import re
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otel_bridge.metadata.decoder import MAX_KEYS, Content, Scalar, declared, key_of, undecoded
from otel_bridge.v1 import mapping_pb2 as pb

CODES = {
    "u8": "B", "i8": "b", "u16": "H", "i16": "h", "u32": "I", "i32": "i", "u64": "Q", "i64": "q", "f32": "f", "f64": "d",
    "bool": "?",
}  # fmt: skip
"""Types of fields, as Python's struct names them; beside them there is `bytes<N>`."""

_BYTES = re.compile(r"bytes<(\d{1,4})>\Z")
_WORDS = {"By": "bytes", "%": "percent", "1": ""}
"""UCUM codes as words, where the code itself would not read as one."""


_DIGITS = np.array([f"{byte:02x}" for byte in range(256)], "S2")


class Layout:
    """
    The decoder of a layout.

    size     bytes of what it reads
    types    of each field, by key
    Raises `ValueError` for what is no layout (mapping/formats.py lets none through).
    """

    def __init__(self, layout: pb.StructLayout) -> None:
        order = ">" if layout.big_endian else "<"
        codes = [_code(field.type) for field in layout.fields]
        self._form = struct.Struct(order + "".join(codes))
        self._keys = [_key(field) for field in layout.fields]
        self._columns = np.dtype([(str(index), _column_type(order, code)) for index, code in enumerate(codes)])
        self.size = self._form.size
        self.types: dict[str, type[Scalar]] = dict(zip(self._keys, map(_type, codes), strict=True))

    @property
    def is_plain(self) -> bool:
        """Whether each field is shown under its own key: then many can be read at a time."""
        return 0 < len(self.types) == len(self._keys) <= MAX_KEYS and all(key_of(key) == key for key in self._keys)

    def decode(self, data: bytes) -> Content:
        """What one byte string says."""
        if len(data) != self.size:
            return undecoded(data, f"{len(data)} bytes, where the layout declared with the mapping has {self.size}")
        values: tuple[Scalar | bytes, ...] = self._form.unpack(data)
        said = [value.hex() if isinstance(value, bytes) else value for value in values]
        return declared(zip(self._keys, said, strict=True), data)

    def read(self, data: Sequence[bytes]) -> tuple[list[NDArray[Any]], NDArray[np.bool_]]:
        """
        What k byte strings of the layout's size say: a column of k values for each field, and bool[k] which of them are good.

        The others are to be decoded one by one: a value has no room in an attribute (beyond int64, or not finite).
        """
        table = np.frombuffer(b"".join(data), self._columns)
        columns, good = [], np.ones(len(table), np.bool_)
        for name in self._columns.names or ():
            column = table[name]
            match column.dtype.kind, column.ndim:
                case "u", 2:
                    columns.append(_DIGITS[column].view(f"S{2 * column.shape[1]}")[:, 0])
                case "f", _:
                    with np.errstate(invalid="ignore"):  # a signalling NaN is no fault of numpy's
                        columns.append(column.astype(np.float64))
                    good &= np.isfinite(column)
                case "b", _:
                    columns.append(column.view(np.uint8) != 0)  # as struct reads it: any byte but 0 is true
                case _:
                    columns.append(column.astype(np.int64))
                    good &= (columns[-1] >= 0) | (column.dtype.kind == "i")
        return columns, good


def _code(kind: str) -> str:
    if kind in CODES:
        return CODES[kind]
    count = _BYTES.match(kind)
    if count is None:
        raise ValueError(f"no type of a field: {kind[:64]!r}")
    return f"{count[1]}s"


def _column_type(order: str, code: str) -> object:
    """The type of a column as numpy names it."""
    return ("u1", (int(code[:-1]),)) if code.endswith("s") else order + code


def _type(code: str) -> type[Scalar]:
    return str if code.endswith("s") else bool if code == "?" else float if code in "fd" else int


def _key(field: pb.StructField) -> str:
    unit = field.unit
    word = _WORDS.get(unit, unit.strip("{}").lower())
    return f"{field.name}_{word}" if word else field.name
