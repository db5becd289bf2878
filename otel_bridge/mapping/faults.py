"""How this room speaks of bad input: where, what was found, and the way out. Foreign text is escaped and cut."""

import json
import math
import re

from otel_bridge.errors import MalformedMapping

_PLAIN = re.compile(r"[A-Za-z0-9_.:-]{1,64}\Z", re.ASCII)


def malformed(where: str, found: str, way_out: str) -> MalformedMapping:
    """The error for a fault at `where`."""
    return MalformedMapping(f"{where}: {found}; {way_out}")


def quoted(text: str, *, limit: int = 64) -> str:
    """`text` in double quotes, printable ASCII only, at most `limit` characters of it."""
    shown = json.dumps(text[:limit]).replace("\x7f", "\\u007f")
    return shown + "..." if len(text) > limit else shown


def named(text: str) -> str:
    """`text` bare where it is a plain word, else quoted: for names inside a path."""
    return text if _PLAIN.match(text) else quoted(text)


def shown(identifier: int | str) -> str:
    """A delegate debug identifier with its type visible: 17, or "17" in quotes."""
    return quoted(identifier) if isinstance(identifier, str) else str(identifier)


def described(value: object) -> str:
    """What a value of parsed JSON is, in JSON's own words; of any other value its type."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value}, which is no JSON number or too large for one"
    if isinstance(value, str):
        return f"the string {quoted(value)}"
    if isinstance(value, list | dict):
        return f"{'a list' if isinstance(value, list) else 'an object'} of {len(value)}"
    if value is not None and not isinstance(value, int | float):
        return f"a value of type {quoted(type(value).__name__)}"
    word = json.dumps(value)
    return word if value is None or isinstance(value, bool) else f"the number {word}"
