"""
FlatBuffers from outside, read in place and within bounds.

    table:  [to the vtable: i32][fields ...]     the vtable stands at the table's place minus that number
    vtable: [its bytes: u16][the table's bytes: u16][offset of field 0 in the table: u16][of field 1] ...   0: not there
    vector: [count: u32][items ...]              a text is a vector of bytes; a reference is a u32 from its own place

Invariants
* No position outside the buffer is read: what points there is a `MalformedMapping` with the position.
* Nothing is copied but the texts that are asked for.
* A reader follows the schema, never the file: depth is fixed, so references that lead in a circle cost what any others do.
* Offsets may point at one place many times, so work does not follow from the file's size: a reader claims what it takes out
  from an `Allowance`, which ends.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from otel_bridge.errors import MalformedMapping
from otel_bridge.mapping.faults import malformed
from otel_bridge.mapping.limits import MAX_DOCUMENT_BYTES, MAX_TEXT_BYTES

U8, U16, U32, U64 = (struct.Struct(f"<{code}") for code in "BHIQ")
I32 = struct.Struct("<i")

_SIZE = 4
"""Of a count, a reference and a table's way to its vtable, in bytes."""


class Allowance:
    """How much may still be taken out of a file, in bytes of the document that it makes."""

    def __init__(self, left_bytes: int = MAX_DOCUMENT_BYTES) -> None:
        self._left_bytes = left_bytes

    def claim(self, size_bytes: int, where: str) -> None:
        """Take out so much; to be called before it is read."""
        self._left_bytes -= size_bytes
        if self._left_bytes < 0:
            raise malformed(
                where,
                f"more than a mapping of {MAX_DOCUMENT_BYTES} bytes holds",
                "its tables are shared: it is damaged or forged",
            )


@dataclass(frozen=True, slots=True)
class Buffer:
    """One FlatBuffer: a view of its bytes, and what it is called in errors. Positions are those of the view."""

    data: memoryview
    where: str

    def number(self, form: struct.Struct, at: int) -> int:
        """The number at byte `at`."""
        if not 0 <= at <= len(self.data) - form.size:
            raise self.fault(at, "a number outside the buffer")
        return int(form.unpack_from(self.data, at)[0])

    def follow(self, at: int) -> int:
        """Where the reference at byte `at` leads."""
        return at + self.number(U32, at)

    def root(self) -> "Table":
        """The root table."""
        return Table(self, self.follow(0))

    def fault(self, at: int, found: str) -> MalformedMapping:
        """The error for what stands at byte `at`."""
        return malformed(f"{self.where}, byte {at}", found, "it was cut or damaged: copy or export it again")


class Table:
    """The table at byte `at`. Slots are counted from 0 in the order of the schema; a union takes two, its type first."""

    __slots__ = ("_at", "_buffer", "_slots", "_vtable")

    def __init__(self, buffer: Buffer, at: int) -> None:
        self._buffer = buffer
        self._at = at
        self._vtable = at - buffer.number(I32, at)
        self._slots = buffer.number(U16, self._vtable) // U16.size - 2
        if self._slots < 0:
            raise buffer.fault(self._vtable, "a vtable shorter than its head")

    def number(self, slot: int, form: struct.Struct, default: int = 0) -> int:
        """A scalar; `default` where it is not there."""
        at = self._find(slot)
        return self._buffer.number(form, at) if at else default

    def table(self, slot: int) -> "Table | None":
        """A table inside this one."""
        at = self._find(slot)
        return Table(self._buffer, self._buffer.follow(at)) if at else None

    def tables(self, slot: int) -> "Vector":
        """A vector of tables; an empty one where it is not there."""
        at, count = self._vector(slot, _SIZE)
        return Vector(self._buffer, at, count)

    def bytes_at(self, slot: int) -> memoryview:
        """A vector of bytes, not copied."""
        at, count = self._vector(slot, 1)
        return self._buffer.data[at : at + count]

    def text(self, slot: int) -> str:
        """A text; "" where it is not there."""
        at, count = self._vector(slot, 1)
        if count > MAX_TEXT_BYTES:
            raise self._buffer.fault(at, f"a text of {count} bytes, where at most {MAX_TEXT_BYTES} are taken")
        try:
            return str(self._buffer.data[at : at + count], "utf-8")
        except UnicodeDecodeError as error:
            raise self._buffer.fault(at, "a text that is not UTF-8") from error

    def _find(self, slot: int) -> int:
        """Where a field stands; 0: it is not there."""
        if slot >= self._slots:
            return 0
        offset = self._buffer.number(U16, self._vtable + 2 * U16.size + slot * U16.size)
        return self._at + offset if offset else 0

    def _vector(self, slot: int, item_bytes: int) -> tuple[int, int]:
        """Where the items of a vector begin, and how many there are."""
        field = self._find(slot)
        if not field:
            return 0, 0
        at = self._buffer.follow(field)
        count = self._buffer.number(U32, at)
        if count * item_bytes > len(self._buffer.data) - at - _SIZE:
            raise self._buffer.fault(at, f"a vector of {count} items that passes the end")
        return at + _SIZE, count


@dataclass(frozen=True, slots=True)
class Vector:
    """`count` tables, whose references begin at byte `at`."""

    buffer: Buffer
    at: int
    count: int

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Table]:
        return (self[index] for index in range(self.count))

    def __getitem__(self, index: int) -> Table:
        """The table at `index`, from 0."""
        if not 0 <= index < self.count:
            raise IndexError(index)
        return Table(self.buffer, self.buffer.follow(self.at + _SIZE * index))
