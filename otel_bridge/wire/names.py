"""
The table of names and identifiers of a request, decoded and checked. Part of admission.

Invariants
* A device sends the same table with every request: small ones are remembered by their bytes, at most `_KEPT` of them, and at
  most `_KEPT_LARGE` of those of models with up to a thousand identifiers or so, which take a millisecond to decode.
* An entry that cannot be used costs the events that use it, nothing else.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from otel_bridge.model.events import Identifier
from otel_bridge.v1 import profiling_pb2 as pb

MAX_NAME_BYTES = 4096
_MAX_INT = 2**31 - 1

_KEPT, _KEPT_LARGE = 1024, 64
_KEPT_BYTES, _LARGE_BYTES = 16_384, 1 << 18
"""Of one small table that is remembered, and of one large one."""
_ENTRY_BYTES = 200
"""
What Python needs for an entry beside its text, about. So all tables that are kept take some 50 MB at most, and 120 where names
have characters of four bytes, for which Python keeps all others of a text as wide.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Names:
    """
    The table of k entries; a faulty entry's name is never used.

    names     by index
    faults    (reason, fault) of each; ("", "") where it is sound
    sound     whether all of them are
    number    of each, 1 where it is a number
    """

    names: tuple[Identifier, ...]
    faults: tuple[tuple[str, str], ...]
    sound: bool
    number: bytes

    def __len__(self) -> int:
        return len(self.names)


def names_of(identifiers: tuple[bytes, ...]) -> Names:
    """The table of these serialised `Identifier`s. Raises `DecodeError` where one is none."""
    size = sum(map(len, identifiers)) + _ENTRY_BYTES * len(identifiers)
    if size <= _KEPT_BYTES:
        return _known(identifiers)
    return _known_large(identifiers) if size <= _LARGE_BYTES else _decode(identifiers)


def _decode(identifiers: Sequence[bytes]) -> Names:
    read = [_name(pb.Identifier.FromString(each)) for each in identifiers]
    number = bytes(isinstance(name, int) for name, _, _ in read)
    faults = tuple((reason, fault) for _, reason, fault in read)
    sound = not any(reason for reason, _ in faults)
    return Names(tuple(name for name, _, _ in read), faults, sound, number)


_known, _known_large = lru_cache(maxsize=_KEPT)(_decode), lru_cache(maxsize=_KEPT_LARGE)(_decode)


def _name(identifier: pb.Identifier) -> tuple[Identifier, str, str]:
    match identifier.WhichOneof("value"):
        case "number":
            number = identifier.number
            if number == -1 or not -_MAX_INT - 1 <= number <= _MAX_INT:
                return 0, "identifier_out_of_range", f"is {number}; an int identifier has 32 bits, and -1 means none"
            return number, "", ""
        case "text":
            if not 0 < len(identifier.text) <= MAX_NAME_BYTES:
                fault = f"has {len(identifier.text)} bytes; 1 to {MAX_NAME_BYTES} are allowed"
                return "", "name_too_long" if identifier.text else "unnamed", fault
            try:
                return identifier.text.decode("utf-8"), "", ""
            except UnicodeDecodeError as error:
                return "", "not_utf8", f"is not UTF-8 at byte {error.start}; send text, or a number"
        case _:
            return "", "unnamed", "is not set; set number or text"
