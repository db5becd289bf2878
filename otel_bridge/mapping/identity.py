"""
What a delegate debug identifier is, and what an entry of a map stands for.

Invariants
* An identifier is an `int` within int32 that is not -1 (`DelegateDebugIntId`, and its unset value,
  runtime/core/event_tracer.h), or a `str` of 1 to 4,096 bytes of UTF-8. `1` and `"1"` are different.
* Only a key whose source has lost the type stands for both, and only if it is the canonical text of such an `int`.
"""

import re

from otel_bridge.model.events import Identifier
from otel_bridge.v1 import mapping_pb2 as pb

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
UNSET_NUMBER = -1
"""`kUnsetDelegateDebugIntId`: no event carries it."""

_CANONICAL = re.compile(r"(?:0|-?[1-9][0-9]{0,9})\Z", re.ASCII)


def number_in(text: str) -> int | None:
    """The int identifier whose canonical text this is: no sign but `-`, no leading zero, within int32, not -1; else None."""
    if not _CANONICAL.match(text):
        return None
    number = int(text)
    return number if is_number(number) else None


def is_number(number: int) -> bool:
    """Whether an event can carry this int identifier."""
    return INT32_MIN <= number <= INT32_MAX and number != UNSET_NUMBER


def key_of(entry: pb.MapEntry) -> tuple[str, Identifier]:
    """Which of an entry's identifier fields is set, and its value; ("", ""): none is."""
    kind = entry.WhichOneof("identifier")
    return (kind, getattr(entry, kind)) if kind else ("", "")


def identifiers_of(kind: str, key: Identifier) -> tuple[Identifier, ...]:
    """The identifiers that an entry with this key matches: one, or two where the source has lost the type."""
    number = number_in(key) if kind == "untyped" and isinstance(key, str) else None
    return (key,) if number is None else (key, number)


def typeless_entry(key: str, handles: list[int]) -> pb.MapEntry:
    """The entry for a key of JSON, where int and str identifiers look the same."""
    if number_in(key) is None:
        return pb.MapEntry(text=key, handles=handles)
    return pb.MapEntry(untyped=key, handles=handles)
