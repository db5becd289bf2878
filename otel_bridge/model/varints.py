"""
Base-128 varints, many at a time (https://protobuf.dev/programming-guides/encoding).

Invariant: what is decoded here is what protobuf's own parser makes of the same bytes. What it refuses (an end in the middle of
a number, one of more than ten bytes) is not decoded here at all.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.uint8] | NDArray[np.uint64]
"""Of whichever width holds them."""

_CONTINUES = 0x80
_MOST_BYTES = 10
"""Of a number: seven bits each, and of the tenth byte the 64th."""
_WORD_BYTES = 8
"""Of a number that are read at once: 56 bits."""
_WORD = np.dtype("<u8")
_MASKS = np.array([(1 << 8 * (1 + more)) - 1 for more in range(_WORD_BYTES)], np.uint64) & np.uint64(0x7F7F7F7F7F7F7F7F)
"""The bits of a number that count, by how many bytes follow its first."""
_IS_CONTINUED = bytes(byte >= _CONTINUES for byte in range(256))
"""1 in place of each byte that another one of its number follows, else 0."""
_TOO_LONG = bytes([1]) * _MOST_BYTES
_FOLDS = (
    (np.uint64(0x007F007F007F007F), np.uint64(0x7F007F007F007F00), np.uint64(1)),
    (np.uint64(0x00003FFF00003FFF), np.uint64(0x3FFF00003FFF0000), np.uint64(2)),
    (np.uint64(0x000000000FFFFFFF), np.uint64(0x0FFFFFFF00000000), np.uint64(4)),
)
"""Halves of a word that move together, in three steps: groups of 7 bits become 14, 28 and 56."""


def decode_varints(fields: Sequence[bytes]) -> list[Numbers] | None:
    """
    The numbers in packed fields, for each of them n: uint8[n] where all take one byte, else uint64[n].

    None where protobuf refuses them: a number of more than ten bytes, or one that does not end.
    """
    wide = [field for field in fields if not field.isascii()]
    if any(field[-1] >= _CONTINUES for field in wide):
        return None
    decoded = _decode_wide(wide) if wide else []
    if decoded is None:
        return None
    left = iter(decoded)
    return [np.frombuffer(field, np.uint8) if field.isascii() else next(left) for field in fields]


def _decode_wide(fields: Sequence[bytes]) -> list[NDArray[np.uint64]] | None:
    """Of fields that end where a number does, all at once: the first numbers cost more than the next thousand."""
    raw = np.frombuffer(b"".join((*fields, bytes(_WORD_BYTES - 1))), np.uint8)
    ends = (raw[: 1 - _WORD_BYTES] < _CONTINUES).nonzero()[0]
    more = np.empty(len(ends), np.int64)
    more[0] = ends[0]
    np.subtract(ends[1:], ends[:-1], out=more[1:])
    more[1:] -= 1
    most = int(more.max())
    if most >= _MOST_BYTES:
        return None
    words = np.ndarray((len(raw) - _WORD_BYTES + 1,), _WORD, buffer=raw, strides=(1,))  # eight bytes from every byte on
    begin = ends - more
    numbers: NDArray[np.uint64] = words.take(begin).astype(np.uint64, copy=False) & _MASKS.take(more, mode="clip")
    for low, high, shift in _FOLDS[: most.bit_length()]:  # numbers of two bytes need the first alone
        moved = (numbers & high) >> shift
        numbers &= low
        numbers |= moved
    for place in range(_WORD_BYTES, most + 1):
        longer = (more >= place).nonzero()[0]
        numbers[longer] |= (raw[begin[longer] + place].astype(np.uint64) & np.uint64(0x7F)) << np.uint64(7 * place)
    bounds = [0, *np.searchsorted(ends, list(accumulate(map(len, fields)))).tolist()]
    return [numbers[begin:end] for begin, end in pairwise(bounds)]


def unzigzag(numbers: Numbers) -> NDArray[np.int8] | NDArray[np.int64]:
    """The signed numbers that unsigned ones stand for, of the same width: 0, -1, 1, -2, ..."""
    if numbers.dtype == np.uint8:
        return ((numbers >> 1) ^ -(numbers & 1)).view(np.int8)
    return ((numbers >> np.uint64(1)) ^ (np.uint64(0) - (numbers & np.uint64(1)))).view(np.int64)


def are_varints(field: bytes, count: int) -> bool:
    """Whether a packed field holds so many numbers that `decode_varints` decodes."""
    if field.isascii():
        return len(field) == count
    more = field.translate(_IS_CONTINUED)
    return more.count(0) == count and more[-1] == 0 and _TOO_LONG not in more
