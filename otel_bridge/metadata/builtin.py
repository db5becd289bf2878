"""
The decoders that come with the bridge: `json`, `utf8`, `raw` and `auto`.

They read no more than what they are given, call nobody and end at once, so they run in the pipeline itself.
"""

import json
from collections.abc import Callable
from typing import Any

from otel_bridge.metadata.decoder import Content, content_of, undecoded


def read_object(data: bytes) -> dict[str, Any] | Content:
    """The JSON object that the bytes are; else the undecoded bytes, and where it went wrong."""
    try:
        value = json.loads(data)
    except UnicodeDecodeError as error:
        return undecoded(data, f"not UTF-8 at byte {error.start}")
    except (ValueError, RecursionError) as error:
        return undecoded(data, f"not JSON: {str(error)[:200]}")
    return value if isinstance(value, dict) else undecoded(data, f"JSON, but {type(value).__name__} and not an object")


def decode_json(data: bytes) -> Content:
    """A JSON object; anything else stays undecoded and says where it went wrong."""
    value = read_object(data)
    if isinstance(value, Content):
        return value
    try:
        flat = {key: _flat(item) for key, item in value.items()}
    except RecursionError:  # writing needs more of the stack than reading did
        return undecoded(data, "JSON nested too deep")
    return content_of(flat, data)


def decode_utf8(data: bytes) -> Content:
    """UTF-8 text as one value; other bytes stay undecoded."""
    try:
        return content_of([data.decode("utf-8")], data)
    except UnicodeDecodeError as error:
        return undecoded(data, f"not UTF-8 at byte {error.start}")


def decode_raw(data: bytes) -> Content:
    """Hex digits, always."""
    return undecoded(data)


def decode_auto(data: bytes) -> Content:
    """A JSON object where it is one, else printable UTF-8, else hex: what holds where nobody named a decoder."""
    if data.lstrip()[:1] == b"{":
        content = decode_json(data)
        if content.pairs:
            return content
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return undecoded(data)
    return content_of([text], data) if _is_printable(text) else undecoded(data)


BUILTIN: dict[str, Callable[[bytes], Content]] = {
    "json": decode_json,
    "utf8": decode_utf8,
    "raw": decode_raw,
    "auto": decode_auto,
}
"""By the name that stands in configuration and on the command line."""


def _is_printable(text: str) -> bool:
    return all(character.isprintable() or character in "\n\r\t" for character in text)


def _flat(value: Any) -> object:
    """Nested values as JSON text; scalars as they are, null as the text `null`."""
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return "null" if value is None else value
