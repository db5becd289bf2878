"""The query of an upload by HTTP, parameter by parameter."""

import pytest
from support.requests import is_clear

from otel_bridge.errors import MalformedRequest
from otel_bridge.v1 import profiling_pb2 as pb
from otel_bridge.wire.query import upload_request


def an_upload(**stream: object) -> pb.UploadETDumpRequest:
    """An upload of this stream."""
    return pb.UploadETDumpRequest(stream=pb.Stream(**stream))  # type: ignore[arg-type]  # fields of a message


def a_model(**model: bytes) -> pb.UploadETDumpRequest:
    """An upload of this model."""
    return an_upload(model=pb.ModelRef(**model))


def a_clock(**clock: int) -> pb.UploadETDumpRequest:
    """An upload with this clock."""
    return an_upload(clocks=[pb.Clock(**clock)])


def a_resource(*attributes: tuple[bytes, bytes]) -> pb.UploadETDumpRequest:
    """An upload with these resource attributes."""
    return an_upload(resource=[pb.Attribute(key=key, value=pb.Value(text=text)) for key, text in attributes])


@pytest.mark.parametrize(
    ("query", "request_"),
    [
        (b"", pb.UploadETDumpRequest()),
        (b"&&", pb.UploadETDumpRequest()),
        (b"model=net@1.2", a_model(name=b"net", version=b"1.2")),
        (b"model=net", a_model(name=b"net", version=b"")),
        (b"model=net@1@2", a_model(name=b"net", version=b"1@2")),
        (b"model=a+b%20c%2Bd", a_model(name=b"a b c+d", version=b"")),
        (b"model=%C3%A9", a_model(name="é".encode(), version=b"")),
        ("model=é".encode(), a_model(name="é".encode(), version=b"")),
        (b"model=%ff\xfe", a_model(name=b"\xff\xfe", version=b"")),
        (b"model=", a_model(name=b"", version=b"")),
        (b"build_id=b%2F1", a_model(build_id=b"b/1")),
        (b"method=forward", pb.UploadETDumpRequest(method=b"forward")),
        (b"stream=000102030405060708090a0b0c0d0eFF", an_upload(stream_id=bytes([*range(15), 255]))),
        (b"sequence=18446744073709551615", an_upload(sequence=2**64 - 1)),
        (b"first_position=7", pb.UploadETDumpRequest(first_position=7)),
        (b"ended_at=9223372036854775807", pb.UploadETDumpRequest(ended_at_unix_ns=2**63 - 1)),
        (b"runtime_version=1.5.1", an_upload(runtime_version=b"1.5.1")),
        (b"tick_ratio=125/3", a_clock(numerator=125, denominator=3)),
        (b"tick_ratio=1000", a_clock(numerator=1000, denominator=1)),
        (b"counter_bits=24", a_clock(counter_bits=24)),
        (b"anchor=5=7", a_clock(anchor_ticks=5, anchor_unix_ns=7)),
        (b"anchor=5%3D7&counter_bits=32&tick_ratio=2",
         a_clock(numerator=2, denominator=1, counter_bits=32, anchor_ticks=5, anchor_unix_ns=7)),
        (b"resource.service.name=app&resource.os.name=x", a_resource((b"service.name", b"app"), (b"os.name", b"x"))),
        (b"resource.k%ff=%00", a_resource((b"k\xff", b"\x00"))),
    ],
)  # fmt: skip
def test_a_parameter(query: bytes, request_: pb.UploadETDumpRequest) -> None:
    """Each parameter is the field of its name in UploadETDumpRequest, to the byte."""
    assert upload_request(query) == request_


@pytest.mark.parametrize(
    ("query", "told"),
    [
        (b"modell=net", r"^query parameter 'modell': is not known; known are model, build_id, .*resource\.KEY$"),
        (b"=", r"^query parameter '': is not known"),
        (b"%1b[31m=1", r"^query parameter '\\x1b\[31m': is not known"),
        (b"\xff=1", r"^query parameter '\\udcff': is not known"),
        (b"x" * 999 + b"=1", r"^query parameter 'x{64}': is not known"),
        (b"model=a&model=b", r"^query parameter 'model': is given twice; give it once"),
        (b"resource.k=a&resource.k=b", r"^query parameter 'resource\.k': is given twice"),
        (b"stream=xyz", r"^query parameter stream: must be 32 hex digits"),
        (b"stream=\xff", r"^query parameter stream: must be 32 hex digits"),
        (b"stream=00+01", r"^query parameter stream: must be 32 hex digits"),
        (b"stream=0001", r"^query parameter stream: must be 32 hex digits"),
        (b"stream=", r"^query parameter stream: must be 32 hex digits"),
        (b"sequence=-1", r"^query parameter sequence: must be a number from 0 to 2\^64-1"),
        (b"sequence=18446744073709551616", r"^query parameter sequence: must be"),
        (b"sequence=" + b"9" * 5000, r"^query parameter sequence: must be"),
        (b"sequence=1.0", r"^query parameter sequence: must be"),
        (b"sequence=", r"^query parameter sequence: must be"),
        (b"sequence=%D9%A1", r"^query parameter sequence: must be"),
        (b"first_position=x", r"^query parameter first_position: must be"),
        (b"ended_at=9223372036854775808", r"^query parameter ended_at: must be a number from 0 to 2\^63-1"),
        (b"ended_at=2026-01-01T00:00:00Z", r"^query parameter ended_at: must be a number"),
        (b"tick_ratio=0", r"^query parameter tick_ratio: must be N or N/D, neither of them 0"),
        (b"tick_ratio=1/0", r"^query parameter tick_ratio: must be N or N/D, neither of them 0"),
        (b"tick_ratio=1/", r"^query parameter tick_ratio: must be a number"),
        (b"tick_ratio=1/2/3", r"^query parameter tick_ratio: must be a number"),
        (b"counter_bits=256", r"^query parameter counter_bits: must be a number from 0 to 2\^8-1"),
        (b"anchor=5", r"^query parameter anchor: must look like TICKS=UNIX_NS"),
        (b"anchor=5=", r"^query parameter anchor: must be a number"),
        (b"anchor=5=9223372036854775808", r"^query parameter anchor: must be a number from 0 to 2\^63-1"),
    ],
)
def test_a_parameter_that_cannot_be_read(query: bytes, told: str) -> None:
    """A parameter that is unknown, repeated or unreadable is refused by name, with what it must be."""
    with pytest.raises(MalformedRequest, match=told) as raised:
        upload_request(query)
    assert is_clear(str(raised.value))
