"""
Delegate metadata: bytes that only the delegate's author can read.

Invariants
* A decoder has the signature that delegate authors already write for ExecuTorch's Inspector:
  `parse_delegate_metadata(delegate_metadatas: list[bytes]) -> list[str] | dict[str, Any]`.
* It is called once per distinct byte string with a list of one, and never for empty metadata (the Inspector hands over
  `""`, a `str`, for those).
* A decoder that raises, returns nonsense or too much, or hangs costs that attribute only: the raw bytes stay, with an error.
* An author's decoder gives doubles and text, since Python's types change from value to value; where types are declared, in a
  layout, a schema or a decoder of the bridge's own, integers and truth values stay what they are.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Parser = Callable[[list[bytes]], Any]
"""What a delegate's author supplies."""

MAX_KEYS = 32
MAX_VALUES = 128
MAX_TEXT = 2048
MAX_RAW_BYTES = 1024
"""Bytes of undecoded metadata that are shown, as twice as many hex digits: within a back end's limit of 2,048."""

Scalar = str | int | float | bool
"""A value of one key."""

_INT64 = 2**63
_NOT_IN_KEY = re.compile(r"[^a-z0-9_]+")


@dataclass(frozen=True, slots=True)
class Content:
    """
    What one byte string says.

    pairs    key -> value, keys within [a-z0-9_]
    values   lines of text, where the decoder gives a list
    raw      hex digits, where the bytes are not decoded
    error    why they are not, or what was left out
    """

    pairs: tuple[tuple[str, Scalar], ...] = ()
    values: tuple[str, ...] = ()
    raw: str = ""
    error: str = ""


def undecoded(data: bytes, error: str = "") -> Content:
    """The bytes as they are, in hex and cut to `MAX_RAW_BYTES`."""
    return Content(raw=data[:MAX_RAW_BYTES].hex(), error=error)


def content_of(result: object, data: bytes) -> Content:
    """What a decoder's answer says; an answer of another shape than the contract's leaves the bytes undecoded."""
    if isinstance(result, Mapping):
        return _content_of_pairs(result.items(), data, _scalar)
    if isinstance(result, list | tuple):
        values = tuple(_text(item) for item in result[:MAX_VALUES])
        left = len(result) - len(values)
        error = f"{left} values more than {MAX_VALUES} were left out" if left else ""
        return Content(values=values, error=error) if values else undecoded(data, "the decoder gave an empty list")
    return undecoded(data, f"the decoder gave {type(result).__name__}, not a list of strings or a dict")


def declared(pairs: Iterable[tuple[str, Scalar]], data: bytes, faults: Iterable[str] = ()) -> Content:
    """Pairs whose types are declared; `faults` is what was left out already."""
    return _content_of_pairs(pairs, data, _typed, faults)


def _content_of_pairs(
    items: Iterable[tuple[Any, Any]], data: bytes, shown: Callable[[Any], Scalar | None], faults: Iterable[str] = ()
) -> Content:
    pairs: dict[str, Scalar] = {}
    told = list(faults)
    left = 0
    for position, (key, value) in enumerate(items):
        name = key_of(str(key))
        if len(pairs) == MAX_KEYS:
            left += 1
        elif not name or name in pairs:
            told.append(f"key {position} is {'empty' if not name else 'a second ' + name} once cut to [a-z0-9_]")
        elif (scalar := shown(value)) is None:
            told.append(f"{name} is not a finite number" + (" of 64 bits with a sign" if shown is _typed else ""))
        else:
            pairs[name] = scalar
    if left:
        told.append(f"{left} keys more than {MAX_KEYS} were left out")
    error = "; ".join(told)[:MAX_TEXT]
    return (
        Content(pairs=tuple(pairs.items()), error=error)
        if pairs
        else undecoded(data, error or "the decoder gave an empty dict")
    )


def key_of(name: str) -> str:
    """A name as a part of an attribute's key, within [a-z0-9_]; "" where nothing is left."""
    return _NOT_IN_KEY.sub("_", name[:128].lower()).strip("_")


def _scalar(value: object) -> str | float | None:
    """Numbers are double and all else text, so that a key has one type; None where a number has no double."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            return None
        return number if math.isfinite(number) else None
    return _text(value)


def _typed(value: Scalar) -> Scalar | None:
    """As declared; None where OTLP has no room for it: beyond int64 (a u64 may be), or not finite."""
    if isinstance(value, int):  # a bool is one, and fits
        return value if -_INT64 <= value < _INT64 else None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value[:MAX_TEXT]


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value[:MAX_TEXT].decode("utf-8", "backslashreplace")[:MAX_TEXT]
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)[:MAX_TEXT]
