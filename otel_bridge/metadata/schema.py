"""
Binary schemas of FlatBuffers (`.bfbs`), read as far as a message needs them.

A `.bfbs` is a FlatBuffer itself, of the schema reflection/reflection.fbs in google/flatbuffers; the numbers below are those of
its fields. The `flatbuffers` package has no reader of it for Python.

Invariants
* A table of the schema is read when a message first needs it, and once.
* A schema may come from anybody: it is read within a budget, and what it says is never believed further than that.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum

from otel_bridge.metadata.flatbuffer import Budget, Buffer, Unreadable

MAX_FIELDS = 512
"""Of one table: an event shows 32 of them."""

_ITEMS = 65_536
_TEXT_BYTES = 1 << 20
_NAME_BYTES = 128
_FIRST_FIELD = 4
_REFERENCE = 4
_IDENTIFIER = b"BFBS"

_I8, _U16, _I32, _I64, _F64, _BOOL = (struct.Struct(f"<{code}") for code in "bHiqd?")


class BaseType(IntEnum):
    """`reflection.BaseType`."""

    NONE = 0
    UTYPE = 1
    BOOL = 2
    BYTE = 3
    UBYTE = 4
    SHORT = 5
    USHORT = 6
    INT = 7
    UINT = 8
    LONG = 9
    ULONG = 10
    FLOAT = 11
    DOUBLE = 12
    STRING = 13
    VECTOR = 14
    OBJECT = 15
    UNION = 16
    ARRAY = 17
    VECTOR64 = 18


@dataclass(frozen=True, slots=True)
class Type:
    """`element` of a vector or array, `index` of its table or enum (-1: none), `length` of an array."""

    base: BaseType
    element: BaseType
    index: int
    length: int


@dataclass(frozen=True, slots=True)
class Field:
    """A field that is in use. `offset` is its place in the vtable, or in the struct."""

    name: str
    type: Type
    offset: int
    default: int | float
    optional: bool


@dataclass(frozen=True, slots=True)
class Record:
    """A table or a struct; fields in the order of their offsets. `size` of a struct in bytes."""

    fields: tuple[Field, ...]
    is_struct: bool
    size: int


@dataclass(frozen=True, slots=True)
class Choice:
    """An enum or a union: number -> name, and for a union the record it stands for (-1: none)."""

    names: dict[int, str]
    records: dict[int, int]


class Schema:
    """
    A binary schema; `root` is the record of the root table.

    root_table   "": the schema's own root

    Raises `Unreadable`.
    """

    def __init__(self, bfbs: bytes, root_table: str = "") -> None:
        if bfbs[4:8] != _IDENTIFIER:
            raise Unreadable("no binary schema: BFBS is missing at byte 4")
        self._buffer = Buffer(bfbs, Budget(_ITEMS, _TEXT_BYTES))
        self._schema = self._buffer.follow(0)
        self._records: dict[int, Record] = {}
        self._choices: dict[int, Choice] = {}
        self.root = self._named(root_table) if root_table else self._own_root()

    def record(self, index: int) -> Record:
        """The table or struct of that index."""
        if index not in self._records:
            self._records[index] = self._read_record(self._entry(0, index))
        return self._records[index]

    def choice(self, index: int) -> Choice:
        """The enum or union of that index."""
        if index not in self._choices:
            self._choices[index] = self._read_choice(self._entry(1, index))
        return self._choices[index]

    def _own_root(self) -> Record:
        at = self._field(self._schema, 4)
        if not at:
            raise Unreadable("a schema without a root_type: name the root table with the mapping")
        return self._read_record(self._buffer.follow(at))

    def _named(self, name: str) -> Record:
        for entry in self._entries(self._schema, 0):
            if self._text(entry, 0) == name:
                return self._read_record(entry)
        raise Unreadable("a schema that lacks the root table that is named with the mapping")

    def _read_record(self, table: int) -> Record:
        fields = [self._read_field(entry) for entry in self._entries(table, 1, MAX_FIELDS) if not self._flag(entry, 6)]
        fields.sort(key=lambda field: field.offset)
        return Record(tuple(fields), self._flag(table, 2), self._number(table, 4, _I32))

    def _read_field(self, table: int) -> Field:
        kind = self._read_type(table, 1)
        is_real = kind.base in (BaseType.FLOAT, BaseType.DOUBLE)
        default: int | float = self._real(table, 5) if is_real else self._number(table, 4, _I64)
        return Field(self._text(table, 0), kind, self._number(table, 3, _U16), default, self._flag(table, 11))

    def _read_type(self, table: int, number: int) -> Type:
        at = self._field(table, number)
        if not at:
            raise Unreadable("a schema with a field that has no type")
        kind = self._buffer.follow(at)
        self._buffer.budget.claim()
        try:
            base, element = BaseType(self._number(kind, 0, _I8)), BaseType(self._number(kind, 1, _I8))
        except ValueError as error:
            raise Unreadable("a schema with a type that is not known") from error
        return Type(base, element, self._number(kind, 2, _I32, -1), self._number(kind, 3, _U16))

    def _read_choice(self, table: int) -> Choice:
        names: dict[int, str] = {}
        records: dict[int, int] = {}
        for entry in self._entries(table, 1):
            number = self._number(entry, 1, _I64)
            names[number] = self._text(entry, 0)
            if self._field(entry, 3):
                records[number] = self._read_type(entry, 3).index
        return Choice(names, records)

    def _entry(self, number: int, index: int) -> int:
        at = self._field(self._schema, number)
        first, count = self._buffer.vector(at, _REFERENCE) if at else (0, 0)
        if not 0 <= index < count:
            raise Unreadable(f"a schema that refers to its part {index}, of {count}")
        return self._buffer.follow(first + _REFERENCE * index)

    def _entries(self, table: int, number: int, limit: int = _ITEMS) -> list[int]:
        at = self._field(table, number)
        first, count = self._buffer.vector(at, _REFERENCE) if at else (0, 0)
        if count > limit:
            raise Unreadable(f"a schema with {count} fields in a table, of {limit} that are read")
        self._buffer.budget.claim(count)
        return [self._buffer.follow(first + _REFERENCE * index) for index in range(count)]

    def _field(self, table: int, number: int) -> int:
        return self._buffer.field(table, _FIRST_FIELD + 2 * number)

    def _number(self, table: int, number: int, form: struct.Struct, default: int = 0) -> int:
        at = self._field(table, number)
        return self._buffer.number(form, at) if at else default

    def _real(self, table: int, number: int) -> float:
        at = self._field(table, number)
        return float(self._buffer.unpack(_F64, at)) if at else 0.0

    def _flag(self, table: int, number: int) -> bool:
        at = self._field(table, number)
        return bool(self._buffer.unpack(_BOOL, at)) if at else False

    def _text(self, table: int, number: int) -> str:
        at = self._field(table, number)
        return self._buffer.text(at, _NAME_BYTES) if at else ""
