"""
Metadata that are a FlatBuffer, read with the schema that the mapping declares.

    scalars                 as declared: integers, doubles, truth values
    enums, types of unions  the name of the value, as text
    text                    text
    tables, structs         a key for each of their fields: `timing.start` is `timing_start`
    vectors, arrays         JSON text; of bytes: hex digits

Invariants
* Depth, values and text are bounded; what passes the bounds costs this byte string its decoding and nothing else.
* A field that is not there has the schema's default; an optional scalar, text, table or vector that is not there has no key.
"""

import json
import struct
from collections.abc import Callable, Iterator

from otel_bridge.metadata.decoder import MAX_TEXT, MAX_VALUES, Content, Scalar, declared, undecoded
from otel_bridge.metadata.flatbuffer import Budget, Buffer, Unreadable
from otel_bridge.metadata.schema import BaseType, Field, Record, Schema, Type
from otel_bridge.v1 import mapping_pb2 as pb

MAX_DEPTH = 8
"""Tables within tables."""

_VALUES = 4096
_TEXT_BYTES = 65_536
_REFERENCE = 4

_FORMS = {
    BaseType.UTYPE: struct.Struct("<B"), BaseType.BOOL: struct.Struct("<?"), BaseType.BYTE: struct.Struct("<b"),
    BaseType.UBYTE: struct.Struct("<B"), BaseType.SHORT: struct.Struct("<h"), BaseType.USHORT: struct.Struct("<H"),
    BaseType.INT: struct.Struct("<i"), BaseType.UINT: struct.Struct("<I"), BaseType.LONG: struct.Struct("<q"),
    BaseType.ULONG: struct.Struct("<Q"), BaseType.FLOAT: struct.Struct("<f"), BaseType.DOUBLE: struct.Struct("<d"),
}  # fmt: skip
_REALS = (BaseType.FLOAT, BaseType.DOUBLE)

_Value = Scalar | list["_Value"] | dict[str, "_Value"]


def compile_schema(schema: pb.FlatbufferSchema) -> Callable[[bytes], Content]:
    """The decoder of a schema; one that cannot be read leaves all bytes undecoded, with the reason."""
    try:
        known = Schema(schema.bfbs, schema.root_table)
    except Unreadable as error:
        fault = f"the schema declared with the mapping cannot be read: {error}"
        return lambda data: undecoded(data, fault)

    def decode(data: bytes) -> Content:
        try:
            buffer = Buffer(data, Budget(_VALUES, _TEXT_BYTES))
            reader = _Reader(known, buffer)
            found = reader.record(known.root, buffer.follow(0), 0)
            return declared(_flat(found, ""), data, reader.faults)
        except Unreadable as error:
            return undecoded(data, f"not readable by the schema declared with the mapping: {error}")

    return decode


class _Reader:
    """Reads one message; `faults` says what was cut."""

    def __init__(self, schema: Schema, buffer: Buffer) -> None:
        self._schema = schema
        self._buffer = buffer
        self.faults: list[str] = []

    def record(self, record: Record, at: int, depth: int) -> dict[str, _Value]:
        """The table or struct at byte `at`."""
        if depth > MAX_DEPTH:
            raise Unreadable(f"tables nested deeper than {MAX_DEPTH}")
        said: dict[str, _Value] = {}
        kinds: dict[str, tuple[int, int]] = {}
        for field in record.fields:
            self._buffer.budget.claim()
            place = at + field.offset if record.is_struct else self._buffer.field(at, field.offset)
            value: _Value | None
            if field.type.base is BaseType.UNION:
                value = self._union(*kinds.get(f"{field.name}_type", (-1, 0)), place, depth)
            else:
                if field.type.base is BaseType.UTYPE:
                    kinds[field.name] = field.type.index, self._buffer.number(_FORMS[BaseType.UTYPE], place) if place else 0
                value = self._value(field, place, depth)
            if value is not None:
                said[field.name] = value
        return said

    def _value(self, field: Field, at: int, depth: int) -> _Value | None:
        kind = field.type
        if at:
            return self._item(kind, kind.base, at, depth)
        if field.optional or kind.base not in _FORMS:
            return None
        return self._scalar(kind, kind.base, field.default)

    def _item(self, kind: Type, base: BaseType, at: int, depth: int) -> _Value:
        """What stands at byte `at`: a field, or an item of a vector."""
        if base in _FORMS:
            return self._scalar(kind, base, self._buffer.unpack(_FORMS[base], at))
        if base is BaseType.STRING:
            return self._buffer.text(at, MAX_TEXT)
        if base is BaseType.OBJECT:
            record = self._schema.record(kind.index)
            return self.record(record, at if record.is_struct else self._buffer.follow(at), depth + 1)
        if base is BaseType.VECTOR:
            if kind.element in (BaseType.BYTE, BaseType.UBYTE) and kind.index < 0:
                return self._buffer.octets(at, MAX_TEXT // 2).hex()
            first, count = self._buffer.vector(at, self._width(kind))
            return self._items(kind, first, count, depth)
        if base is BaseType.ARRAY:
            return self._items(kind, at, kind.length, depth)
        raise Unreadable(f"a field of a type that is not read: {base.name.lower()}")

    def _items(self, kind: Type, first: int, count: int, depth: int) -> _Value:
        if count > MAX_VALUES:
            self.faults.append(f"of {count} items {MAX_VALUES} are shown")
            count = MAX_VALUES
        self._buffer.budget.claim(count)
        width = self._width(kind)
        return [self._item(kind, kind.element, first + width * index, depth) for index in range(count)]

    def _width(self, kind: Type) -> int:
        if kind.element in _FORMS:
            return _FORMS[kind.element].size
        if kind.element is BaseType.OBJECT:
            record = self._schema.record(kind.index)
            return max(record.size, 1) if record.is_struct else _REFERENCE
        if kind.element is BaseType.STRING:
            return _REFERENCE
        raise Unreadable(f"a vector of a type that is not read: {kind.element.name.lower()}")

    def _scalar(self, kind: Type, base: BaseType, value: float) -> Scalar:
        if kind.index >= 0 and base not in _REALS:
            return self._schema.choice(kind.index).names.get(int(value), str(int(value)))
        if base is BaseType.BOOL:
            return bool(value)
        return float(value) if base in _REALS else int(value)

    def _union(self, choice: int, number: int, at: int, depth: int) -> _Value | None:
        if not at or choice < 0:
            return None
        index = self._schema.choice(choice).records.get(number, -1)
        if index < 0:
            return None
        record = self._schema.record(index)
        return self.record(record, self._buffer.follow(at), depth + 1)


def _flat(said: dict[str, _Value], prefix: str) -> Iterator[tuple[str, Scalar]]:
    for name, value in said.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}_")
        elif isinstance(value, list):
            yield prefix + name, json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        else:
            yield prefix + name, value
