"""
JSON from outside, read so that a fault keeps its place.

Invariants
* What JSON leaves open is refused where it stands, with its path: a key given twice, NaN and Infinity, a number beyond 64
  bits or beyond a double.
* Values that nobody asks for are not judged.
"""

import json
import math
from collections.abc import Iterator
from typing import Any

from otel_bridge.mapping.faults import described, malformed, named

_MAX_DIGITS = 20


class _Ambiguous(dict[str, object]):
    """An object of JSON in which `key` stands twice."""

    def __init__(self, pairs: list[tuple[str, object]], key: str) -> None:
        super().__init__(pairs)
        self.key = key


def load_strictly(data: bytes, where: str) -> object:
    """The value of a JSON text in UTF-8; faults inside it show when `object_at` and `integer_at` reach them."""
    return _load(data, where, object_pairs_hook=_object, parse_int=_integer)


def load_quickly(data: bytes | str, where: str) -> object:
    """The value of a JSON text that only describes, and is too large for hooks."""
    return _load(data, where)


def object_at(value: object, where: str, *, wanted: str) -> Iterator[tuple[str, object, str]]:
    """(key, value, path) of an object's members. `wanted` says what should stand there."""
    if not isinstance(value, dict):
        raise malformed(where, described(value), f"{wanted} is an object")
    if isinstance(value, _Ambiguous):
        raise malformed(f"{where}[{named(value.key)}]", "a key that is given twice", "give each key once")
    for key, member in value.items():
        yield key, member, f"{where}[{named(key)}]"


def list_at(value: object, where: str, *, wanted: str) -> list[object]:
    """The list at `where`."""
    if not isinstance(value, list):
        raise malformed(where, described(value), f"{wanted} is a list")
    return value


def integer_at(value: object, where: str, *, least: int, most: int, wanted: str) -> int:
    """The integer at `where`, from `least` to `most`; true, false and 1.0 are none."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise malformed(where, described(value), f"{wanted} is an integer from {least} to {most}")
    return value


def _load(data: bytes | str, where: str, **hooks: Any) -> object:
    try:
        loaded: object = json.loads(data if isinstance(data, str) else data.decode("utf-8-sig"), **hooks)
    except UnicodeDecodeError as error:
        found = f"a byte that is not UTF-8 at offset {error.start}"
        raise malformed(where, found, "JSON is text in UTF-8: is this the right file?") from error
    except json.JSONDecodeError as error:
        found = f"no JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        raise malformed(where, found, "is the file whole, and the right one?") from error
    except (RecursionError, ValueError) as error:
        found = "JSON nested too deep" if isinstance(error, RecursionError) else "a number of thousands of digits"
        raise malformed(where, found, "neither maps nor graphs hold such: is this the right file?") from error
    return loaded


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    value = dict(pairs)
    if len(value) == len(pairs):
        return value
    seen: set[str] = set()
    twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]  # it is None: goes on
    return _Ambiguous(pairs, twice)


def _integer(digits: str) -> int | float:
    """Integers that no field of a mapping holds become infinite: Python refuses to read the longest of them."""
    return int(digits) if len(digits) <= _MAX_DIGITS else math.inf
