"""
FlatBuffers of unknown origin, read in place.

    table:  [to the vtable: i32][fields ...]     the vtable stands at the table's place minus that number
    vtable: [its bytes: u16][the table's bytes: u16][offset of each field in the table: u16 ...]   0: the field is not there
    vector: [count: u32][items ...]              a text is a vector of bytes; a reference is a u32 from its own place

Invariants
* Nothing outside the buffer is read: what points there is `Unreadable`.
* Offsets may point at one place many times, so work does not follow from the size: whatever is read is claimed from a
  `Budget`, which ends.
"""

import struct
from dataclasses import dataclass

_REFERENCE = struct.Struct("<I")
_TO_VTABLE = struct.Struct("<i")
_SLOT = struct.Struct("<H")
_SLOTS = 2 * _SLOT.size
"""Where the slots of a vtable begin."""


class Unreadable(ValueError):
    """Bytes are not what they should be; the text says what, in words of ours only."""


class Budget:
    """How much may still be read: items of any kind, and bytes of text."""

    def __init__(self, items: int, text_bytes: int) -> None:
        self._items = items
        self._text_bytes = text_bytes

    def claim(self, items: int = 1, text_bytes: int = 0) -> None:
        """Take so much, or raise `Unreadable`."""
        self._items -= items
        self._text_bytes -= text_bytes
        if self._items < 0 or self._text_bytes < 0:
            raise Unreadable("more in it than is read")


@dataclass(frozen=True, slots=True)
class Buffer:
    """The bytes of a FlatBuffer, and what may be read of them. Positions count from its first byte."""

    data: bytes
    budget: Budget

    def number(self, form: struct.Struct, at: int) -> int:
        """The integer at byte `at`."""
        return int(self.unpack(form, at))

    def unpack(self, form: struct.Struct, at: int) -> int | float | bool:
        """The value at byte `at`."""
        if not 0 <= at <= len(self.data) - form.size:
            raise Unreadable(f"an offset to byte {at}, of {len(self.data)}")
        value: int | float | bool = form.unpack_from(self.data, at)[0]
        return value

    def follow(self, at: int) -> int:
        """Where the reference at byte `at` leads."""
        return at + self.number(_REFERENCE, at)

    def field(self, table: int, offset: int) -> int:
        """Where a field of the table at byte `table` stands; `offset` is its place in the vtable; 0: it is not there."""
        vtable = table - self.number(_TO_VTABLE, table)
        if self.number(_SLOT, vtable) < _SLOTS:
            raise Unreadable(f"no table at byte {table}")
        if offset + _SLOT.size > self.number(_SLOT, vtable):
            return 0
        inside = self.number(_SLOT, vtable + offset)
        if inside >= max(self.number(_SLOT, vtable + _SLOT.size), 1):
            raise Unreadable(f"a field outside its table at byte {table}")
        return table + inside if inside else 0

    def vector(self, at: int, item_bytes: int) -> tuple[int, int]:
        """Place of the first item, and number of items, of the vector that the field at byte `at` refers to."""
        first = self.follow(at) + _REFERENCE.size
        count = self.number(_REFERENCE, first - _REFERENCE.size)
        if count * item_bytes > len(self.data) - first:
            raise Unreadable(f"{count} items in {len(self.data)} bytes")
        return first, count

    def octets(self, at: int, limit: int) -> bytes:
        """Bytes that the field at byte `at` refers to, cut to `limit`."""
        first, count = self.vector(at, 1)
        self.budget.claim(1, min(count, limit))
        return self.data[first : first + min(count, limit)]

    def text(self, at: int, limit: int) -> str:
        """Text that the field at byte `at` refers to, cut to `limit` bytes; what is not UTF-8 is escaped."""
        return self.octets(at, limit).decode("utf-8", "backslashreplace")
