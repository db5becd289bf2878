"""
Attributes that differ from span to span, a column at a time: the same keys, and values of one type each.

Invariants
* An entry's fragment is byte for byte what `encode.span_attributes` makes of its attributes.
* Entries whose values take equally many bytes have fragments that differ in the values alone: their form is made once, with
  zeros in place of the values, and those are then written over all rows at once, as ids and times are (spans/rows.py).
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otel_bridge.model.stream import AttributeValue
from otel_bridge.spans.distinct import distinct
from otel_bridge.spans.encode import span_attributes
from otel_bridge.spans.rows import overwrite

_MOST_BYTES = 10
"""Of a varint."""
_STEPS = [np.uint64(1 << 7 * more) for more in range(1, _MOST_BYTES)]
"""From each of these numbers on, a varint takes one byte more."""
_KEPT, _KEPT_BYTES = 1024, 1024
"""Forms that are remembered, and the bytes of values of one: at most about 10 MB with their keys."""


class Sheet:
    """
    k entries of f attributes.

    columns   by key, k values: int64, float64, bool, or ASCII text without padding (`S`)
    entries   k
    form      int64[k]   index into `forms`: the fragment, zeros in place of its values
    """

    def __init__(self, columns: Mapping[str, NDArray[Any]], entries: int) -> None:
        self._keys = tuple(columns)
        self._columns = tuple(columns.values())
        self._values = [_encodable(column) for column in self._columns]
        self._widths = [_widths(values) for values in self._values]
        first, self.form = distinct([np.zeros(entries, np.int64), *self._widths])
        kinds = tuple([column.dtype.kind for column in self._columns])
        widths = zip(*(each[first].tolist() for each in self._widths), strict=True)
        form = _known_form if sum([int(each.max(initial=0)) for each in self._widths]) <= _KEPT_BYTES else _form
        made = [form(self._keys, kinds, each) for each in widths] if self._keys else [(b"", ())] * len(first)
        self.forms = [fragment for fragment, _ in made]
        self._slots = np.array([slots for _, slots in made], np.int64)

    def __len__(self) -> int:
        return len(self.form)

    def attributes(self, entry: int) -> tuple[tuple[str, AttributeValue], ...]:
        """What an entry says."""
        said = [column[entry].item() for column in self._columns]
        return tuple(zip(self._keys, [each.decode() if isinstance(each, bytes) else each for each in said], strict=True))

    def fill(self, data: NDArray[np.uint8], at: NDArray[np.int64], entries: NDArray[np.int64]) -> None:
        """Write the values of entries into their forms, which begin at these positions of `data`."""
        slots = self._slots[self.form[entries]]
        for field, (values, widths) in enumerate(zip(self._values, self._widths, strict=True)):
            chosen, own = values[entries], widths[entries]
            begin = at + slots[:, field]
            for width in np.flatnonzero(np.bincount(own)).tolist():
                rows = np.flatnonzero(own == width)
                overwrite(data, begin[rows], _encode(chosen[rows], width))


def _form(keys: tuple[str, ...], kinds: tuple[str, ...], widths: tuple[int, ...]) -> tuple[bytes, tuple[int, ...]]:
    """The fragment of values of such types that take so many bytes, zeros in their place, and where each of these begins."""
    fragment = bytearray()
    slots = []
    for key, kind, width in zip(keys, kinds, widths, strict=True):
        values: dict[str, AttributeValue] = {"f": 0.0, "b": False, "S": "0" * width}
        encoded = span_attributes(((key, values.get(kind, 1 << 7 * (width - 1))),))
        slots.append(len(fragment) + len(encoded) - width)  # a value stands at the end of its attribute
        fragment += encoded[: len(encoded) - width] + bytes(width)
    return bytes(fragment), tuple(slots)


_known_form = lru_cache(_KEPT)(_form)


def _encodable(column: NDArray[Any]) -> NDArray[Any]:
    """Integers and truth values as what their varints say, others as the bytes that are written."""
    match column.dtype.kind:
        case "f":
            return column.astype("<f8").view("V8")
        case "S":
            return column.view(f"V{column.dtype.itemsize}")
        case _:
            return column.astype(np.int64, copy=False).view(np.uint64)


def _widths(values: NDArray[Any]) -> NDArray[np.int64]:
    """int64[k]: the bytes that each value takes."""
    if values.dtype.kind == "V":
        return np.full(len(values), values.dtype.itemsize)
    widths = np.ones(len(values), np.int64)
    most = values.max(initial=0)
    for step in _STEPS:
        if most < step:
            break
        widths += values >= step
    return widths


def _encode(values: NDArray[Any], width: int) -> NDArray[Any]:
    """Values that take `width` bytes, as these."""
    if values.dtype.kind == "V":
        return values
    encoded = np.empty((len(values), width), np.uint8)
    for place in range(width):
        more = 0x80 if place < width - 1 else 0
        encoded[:, place] = values >> np.uint64(7 * place) & np.uint64(0x7F) | np.uint64(more)
    return encoded.view(f"V{width}")[:, 0]
