"""
Queries of the HTTP door: parameters as fields of the messages that gRPC would carry.

Invariants
* A parameter that is not known, or given twice, is refused: a slip of the pen must not look like success.
* What is not UTF-8 arrives byte for byte where the field is of bytes, as it would by gRPC.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import parse_qsl

from otel_bridge.errors import MalformedRequest
from otel_bridge.v1 import profiling_pb2 as pb


def parameters(query: bytes, known: Iterable[str], prefix: str | None = None) -> dict[str, str]:
    """
    The parameters of a query; bytes that are not UTF-8 come as surrogates.

    prefix   with which other keys may begin, such as "resource."

    Raises `MalformedRequest` for a parameter that is neither known nor has the prefix, or is given twice.
    """
    names = tuple(known)
    found: dict[str, str] = {}
    text = query.decode("utf-8", "surrogateescape")
    for key, value in parse_qsl(text, keep_blank_values=True, errors="surrogateescape"):
        if key in found:
            raise MalformedRequest(f"query parameter {key[:64]!a}: is given twice; give it once")
        if key not in names and not (prefix and key.startswith(prefix)):
            shown = ", ".join([*names, *([f"{prefix}KEY"] if prefix else [])]) or "none"
            raise MalformedRequest(f"query parameter {key[:64]!a}: is not known; known are {shown}")
        found[key] = value
    return found


def upload_request(query: bytes) -> pb.UploadETDumpRequest:
    """
    The query of an upload as a request without its ETDump.

    Raises `MalformedRequest` for an unknown or repeated parameter and for a value that cannot be read.
    """
    message = pb.UploadETDumpRequest()
    for key, value in parameters(query, UPLOAD_PARAMETERS, "resource.").items():
        if key in UPLOAD_PARAMETERS:
            try:
                UPLOAD_PARAMETERS[key](message, value)
            except ValueError as error:
                raise MalformedRequest(f"query parameter {key}: {error}") from error
        else:
            attribute = message.stream.resource.add(key=_bytes(key.removeprefix("resource.")))
            attribute.value.text = _bytes(value)
    return message


def values(query: bytes, readers: Mapping[str, Callable[[str], Any]]) -> dict[str, Any]:
    """
    The values of the parameters that a query has, each read by its reader, which may raise `ValueError`.

    Raises `MalformedRequest`.
    """
    found = {}
    for key, value in parameters(query, readers).items():
        try:
            found[key] = readers[key](value)
        except ValueError as error:
            raise MalformedRequest(f"query parameter {key}: {error}") from error
    return found


def text(value: str) -> str:
    """A value for a field that is text. Raises `ValueError` where it is not UTF-8."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError("must be UTF-8") from None
    return value


def flag(value: str) -> bool:
    """A value that is true or false. Raises `ValueError`."""
    if value not in {"true", "false"}:
        raise ValueError("must be true or false")
    return value == "true"


def number(value: str, bits: int) -> int:
    """A decimal number of so many bits. Raises `ValueError`."""
    if not value.isascii() or not value.isdecimal() or len(value) > 20 or int(value) >= 2**bits:  # noqa: PLR2004 - digits of 2^64
        raise ValueError(f"must be a number from 0 to 2^{bits}-1")
    return int(value)


def _set_model(message: pb.UploadETDumpRequest, value: str) -> None:
    name, _, version = value.partition("@")
    message.stream.model.name, message.stream.model.version = _bytes(name), _bytes(version)


def _set_stream(message: pb.UploadETDumpRequest, value: str) -> None:
    if not re.fullmatch("[0-9a-fA-F]{32}", value):
        raise ValueError("must be 32 hex digits")
    message.stream.stream_id = bytes.fromhex(value)


def _set_ratio(message: pb.UploadETDumpRequest, value: str) -> None:
    numerator, slash, denominator = value.partition("/")
    clock = _clock(message)
    clock.numerator, clock.denominator = number(numerator, 64), number(denominator, 64) if slash else 1
    if not clock.numerator or not clock.denominator:
        raise ValueError("must be N or N/D, neither of them 0")


def _set_anchor(message: pb.UploadETDumpRequest, value: str) -> None:
    ticks, equals, unix_ns = value.partition("=")
    if not equals:
        raise ValueError("must look like TICKS=UNIX_NS")
    _clock(message).anchor_ticks, _clock(message).anchor_unix_ns = number(ticks, 64), number(unix_ns, 63)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _clock(message: pb.UploadETDumpRequest) -> pb.Clock:
    return message.stream.clocks[0] if message.stream.clocks else message.stream.clocks.add()


def _setter(path: str, bits: int | None = None) -> Callable[[pb.UploadETDumpRequest, str], None]:
    *parents, last = path.split(".")

    def set_field(message: pb.UploadETDumpRequest, value: str) -> None:
        target: Any = message
        for parent in parents:
            target = getattr(target, parent)
        setattr(target, last, _bytes(value) if bits is None else number(value, bits))

    return set_field


UPLOAD_PARAMETERS: dict[str, Callable[[pb.UploadETDumpRequest, str], None]] = {
    "model": _set_model,
    "build_id": _setter("stream.model.build_id"),
    "method": _setter("method"),
    "stream": _set_stream,
    "sequence": _setter("stream.sequence", 64),
    "first_position": _setter("first_position", 64),
    "ended_at": _setter("ended_at_unix_ns", 63),
    "runtime_version": _setter("stream.runtime_version"),
    "tick_ratio": _set_ratio,
    "counter_bits": lambda message, value: setattr(_clock(message), "counter_bits", number(value, 8)),
    "anchor": _set_anchor,
}
