"""
Delegate metadata: bytes that only the delegate's author can read.

Invariants
* A decoder has the signature that delegate authors already write for ExecuTorch's Inspector:
  `parse_delegate_metadata(delegate_metadatas: list[bytes]) -> list[str] | dict[str, Any]`.
* It is called once per distinct byte string with a list of one, and never for empty metadata (the Inspector hands over
  `""`, a `str`, for those).
* A decoder that raises, returns nonsense or too much, or hangs costs that attribute only: the raw bytes stay, with an error.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Parser = Callable[[list[bytes]], Any]
"""What a delegate's author supplies."""

MAX_KEYS = 32
MAX_VALUES = 128
MAX_TEXT = 2048
MAX_RAW_BYTES = 1024
"""Bytes of undecoded metadata that are shown, as twice as many hex digits: within a back end's limit of 2,048."""

_NOT_IN_KEY = re.compile(r"[^a-z0-9_]+")


@dataclass(frozen=True, slots=True)
class Content:
    """
    What one byte string says.

    pairs    key -> number or text, keys within [a-z0-9_]
    values   lines of text, where the decoder gives a list
    raw      hex digits, where the bytes are not decoded
    error    why they are not, or what was left out
    """

    pairs: tuple[tuple[str, str | float], ...] = ()
    values: tuple[str, ...] = ()
    raw: str = ""
    error: str = ""


def undecoded(data: bytes, error: str = "") -> Content:
    """The bytes as they are, in hex and cut to `MAX_RAW_BYTES`."""
    return Content(raw=data[:MAX_RAW_BYTES].hex(), error=error)


def content_of(result: object, data: bytes) -> Content:
    """What a decoder's answer says; an answer of another shape than the contract's leaves the bytes undecoded."""
    if isinstance(result, Mapping):
        return _content_of_pairs(result, data)
    if isinstance(result, list | tuple):
        values = tuple(_text(item) for item in result[:MAX_VALUES])
        left = len(result) - len(values)
        error = f"{left} values more than {MAX_VALUES} were left out" if left else ""
        return Content(values=values, error=error) if values else undecoded(data, "the decoder gave an empty list")
    return undecoded(data, f"the decoder gave {type(result).__name__}, not a list of strings or a dict")


def _content_of_pairs(result: Mapping[Any, Any], data: bytes) -> Content:
    pairs: dict[str, str | float] = {}
    faults: list[str] = []
    for position, (key, value) in enumerate(result.items()):
        name = _NOT_IN_KEY.sub("_", str(key)[:128].lower()).strip("_")
        if not name or name in pairs:
            faults.append(f"key {position} is {'empty' if not name else 'a second ' + name} once cut to [a-z0-9_]")
        elif len(pairs) == MAX_KEYS:
            faults.append(f"{len(result) - position} keys more than {MAX_KEYS} were left out")
            break
        elif (shown := _scalar(value)) is None:
            faults.append(f"{name} is not a finite number")
        else:
            pairs[name] = shown
    if not pairs:
        return undecoded(data, "; ".join(faults) or "the decoder gave an empty dict")
    return Content(pairs=tuple(pairs.items()), error="; ".join(faults)[:MAX_TEXT])


def _scalar(value: object) -> str | float | None:
    """Numbers are double and all else text, so that a key has one type; None where a number has no double."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            return None
        return number if math.isfinite(number) else None
    return _text(value)


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value[:MAX_TEXT].decode("utf-8", "backslashreplace")[:MAX_TEXT]
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)[:MAX_TEXT]
