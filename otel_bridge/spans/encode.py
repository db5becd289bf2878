"""
OTLP bytes: made from messages of `opentelemetry-proto`, spliced from such, or, where many are wanted, equal to such.

Protobuf messages concatenate: the bytes of two fragments of one `Span`, end to end, are the bytes of their union. That is
what templates rest on (https://protobuf.dev/programming-guides/encoding, "Last One Wins").
"""

import struct
from collections.abc import Iterable
from functools import lru_cache

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, InstrumentationScope, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans, Span

from otel_bridge import __version__
from otel_bridge.spans.attributes import Value

SCOPE = InstrumentationScope(name="otel_bridge", version=__version__)
"""The instrumentation scope of every span the bridge emits."""


def varint(number: int) -> bytes:
    """A non-negative integer as a base-128 varint."""
    return _SHORT[number] if number < len(_SHORT) else _long_varint(number)


def _long_varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:  # noqa: PLR2004 - seven bits a byte
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


_SHORT = tuple(_long_varint(number) for number in range(2048))
_pack_double = struct.Struct("<d").pack


def field(number: int, size: int) -> bytes:
    """The head of a length-delimited field."""
    return varint(number << 3 | 2) + varint(size)


def key_value(key: str, value: Value) -> KeyValue:
    """One attribute. Lone surrogates in text, which no encoding can carry, come out escaped."""
    return KeyValue(key=_text(key), value=_any_value(value))


def key_values(attributes: Iterable[tuple[str, Value]]) -> list[KeyValue]:
    """Attributes in their order."""
    return [key_value(key, value) for key, value in attributes]


def span_attributes(attributes: Iterable[tuple[str, Value]]) -> bytes:
    """A fragment of a `Span` that holds only these attributes: what protobuf makes of `key_values`, in a third of the time."""
    return _tagged(b"\x4a", attributes)


def resource(attributes: Iterable[tuple[str, Value]]) -> bytes:
    """A `Resource` of these attributes, as protobuf writes it."""
    return _tagged(b"\x0a", attributes)


def _tagged(tag: bytes, attributes: Iterable[tuple[str, Value]]) -> bytes:
    encoded: list[bytes] = []
    for key, value in attributes:
        inside = _tagged_key(key) + _sized_value(value)
        encoded += (tag, varint(len(inside)), inside)
    return b"".join(encoded)


@lru_cache(maxsize=4096)
def _tagged_key(key: str) -> bytes:
    """`KeyValue.key`, and the tag of `KeyValue.value` behind it; senders' keys have at most 256 bytes."""
    text = _text(key).encode()
    return (b"\x0a" + varint(len(text)) + text if text else b"") + b"\x12"


def _sized_value(value: Value) -> bytes:
    """An `AnyValue`, its size before it."""
    if isinstance(value, str):
        text = _text(value).encode()
        encoded = b"\x0a" + varint(len(text)) + text
    elif isinstance(value, bool):  # before int: a bool is one
        encoded = b"\x10\x01" if value else b"\x10\x00"
    elif isinstance(value, int):
        encoded = b"\x18" + varint(value % 2**64)
    elif isinstance(value, float):
        encoded = b"\x21" + _pack_double(value)
    else:
        values = b"".join([b"\x0a" + _sized_value(item) for item in value])
        encoded = b"\x2a" + varint(len(values)) + values
    return varint(len(encoded)) + encoded


def span_face(name: str, attributes: Iterable[tuple[str, Value]]) -> bytes:
    """A fragment of a `Span`: name, kind INTERNAL and attributes, as protobuf writes them."""
    text = _text(name).encode()
    return (field(5, len(text)) + text if text else b"") + _INTERNAL + span_attributes(attributes)


_INTERNAL = Span(kind=Span.SpanKind.SPAN_KIND_INTERNAL).SerializeToString()


SCOPE_HEAD = ScopeSpans(scope=SCOPE).SerializeToString()
"""The fragment of a `ScopeSpans` in front of its spans."""


def _any_value(value: Value) -> AnyValue:
    match value:
        case bool():  # before int: a bool is one
            return AnyValue(bool_value=value)
        case int():
            return AnyValue(int_value=value)
        case float():
            return AnyValue(double_value=value)
        case str():
            return AnyValue(string_value=_text(value))
        case _:
            return AnyValue(array_value=ArrayValue(values=[_any_value(item) for item in value]))


def _text(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")
