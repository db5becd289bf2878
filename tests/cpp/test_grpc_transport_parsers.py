"""The parsers of the C++ gRPC transport, by themselves: against the Python package `hpack`, and against damaged bytes."""

from base64 import b64encode
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from hpack import Encoder
from hpack.table import HeaderTable
from hyperframe.frame import DataFrame, Frame, GoAwayFrame, PingFrame, RstStreamFrame, SettingsFrame, WindowUpdateFrame
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.cpp import run
from support.otlp_answers import duration, packed
from support.raw_http2 import HEAD, TRAILERS, Fields, frame_bytes, framed

from otel_bridge.v1 import profiling_pb2 as pb

Built = Callable[..., Path]
Block = list[tuple[bytes, bytes]]

KEPT_NAME, KEPT_VALUE = 64, 4_096
"""Bytes of a Huffman-coded text that are decoded; a field with a longer one is left out."""


def prefixed(*items: bytes) -> bytes:
    """Each item behind its size, as the programs read them."""
    return b"".join(len(item).to_bytes(4, "big") + item for item in items)


@pytest.fixture(scope="session")
def read_headers(built: Built) -> Path:
    """The program that reads blocks of headers."""
    return built("read_headers", "address", "undefined")


def fields_of(line: str) -> Block:
    """The fields of a line that the program prints, which says that the block is well formed."""
    verdict, *fields = line.split(" ")
    assert verdict == "ok"
    return [(bytes.fromhex(name), bytes.fromhex(value)) for name, _, value in (each.partition(":") for each in fields)]


texts = st.one_of(st.binary(max_size=80), st.text("abcdefghijklmnopqrstuvwxyz-0123456789/: ", max_size=200).map(str.encode))
blocks = st.lists(st.tuples(texts.filter(bool), texts), min_size=1, max_size=12)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(given_blocks=st.lists(blocks, min_size=1, max_size=20), huffman=st.booleans())
@example(given_blocks=[[(bytes([byte]), bytes([byte] * 9))] for byte in range(256)], huffman=True)
@example(given_blocks=[[(b"x" * size, b"y")] for size in range(60, 70)], huffman=True)
@example(given_blocks=[[(b"x", b"y" * size), (b"a", b"b")] for size in range(4_090, 4_100)], huffman=True)
def test_headers_are_read_as_they_were_written(read_headers: Path, given_blocks: list[Block], *, huffman: bool) -> None:
    """Fields that another library encodes without a dynamic table are read as they were; overlong coded ones are left out."""
    encoder = Encoder()
    encoder.header_table_size = 0
    encoded = [encoder.encode(block, huffman=huffman) for block in given_blocks]
    lines = run(read_headers, stdin=prefixed(*encoded)).decode().splitlines()
    static = {name for name, _ in HeaderTable.STATIC_TABLE}

    def kept(name: bytes, value: bytes) -> bool:
        return not huffman or ((name in static or len(name) <= KEPT_NAME) and len(value) <= KEPT_VALUE)

    assert [fields_of(line) for line in lines] == [[each for each in block if kept(*each)] for block in given_blocks]


def test_the_static_table(read_headers: Path) -> None:
    """Each index of the static table is the field that RFC 7541 gives it, and there is none beyond it."""
    count = len(HeaderTable.STATIC_TABLE)
    named = [bytes([0x0F, index - 15]) if index >= 15 else bytes([index]) for index in range(1, count + 1)]
    data = [bytes([0x80 | index]) for index in range(1, count + 1)] + [name + b"\x01v" for name in named]
    *lines, beyond = run(read_headers, stdin=prefixed(*data, bytes([0x80 | (count + 1)]))).decode().splitlines()
    table = list(HeaderTable.STATIC_TABLE)
    assert [fields_of(line) for line in lines] == [[field] for field in table] + [[(name, b"v")] for name, _ in table]
    assert beyond == "bad"


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(given_blocks=st.lists(st.binary(min_size=1, max_size=200), min_size=1, max_size=50))
def test_any_bytes_as_headers(read_headers: Path, given_blocks: list[bytes]) -> None:
    """Bytes that are no block of headers are refused or read, never beyond their end."""
    assert len(run(read_headers, stdin=prefixed(*given_blocks)).splitlines()) == len(given_blocks)


def said(*frames: Frame | bytes) -> bytes:
    """What a server says, its SETTINGS first."""
    settings = SettingsFrame(0, settings={SettingsFrame.INITIAL_WINDOW_SIZE: 70_000, SettingsFrame.MAX_FRAME_SIZE: 1 << 20})
    return b"".join(each if isinstance(each, bytes) else each.serialize() for each in (settings, *frames))


def fields(stream: int, block: Fields, *, end: bool = False, huffman: bool = True) -> bytes:
    """A HEADERS frame."""
    encoder = Encoder()
    encoder.header_table_size = 0
    return frame_bytes(1, 4 | end, stream, encoder.encode(block, huffman=huffman))


def sessions() -> list[bytes]:
    """What well-behaved servers say, in all the ways that the transport knows."""
    rejected = [pb.Rejection(reason="unnamed", events=2)]
    body = framed(pb.ExportEventsResponse(accepted=5, rejected=rejected, first_rejection="block 0").SerializeToString())
    status = Status(code=14, message="later", details=[packed(RetryInfo(retry_delay=duration(1.5)))])
    later = [
        ("grpc-status", "14"),
        ("grpc-message", "no%20room"),
        ("grpc-status-details-bin", b64encode(status.SerializeToString()).decode().rstrip("=")),
    ]
    taken = [fields(1, HEAD), DataFrame(1, body), fields(1, TRAILERS, end=True)]
    acknowledged = SettingsFrame(0, flags=["ACK"])
    block = Encoder().encode(HEAD)
    return [
        said(acknowledged, PingFrame(0, bytes(8)), WindowUpdateFrame(0, 9), *taken),
        said(*taken, fields(3, HEAD), DataFrame(3, body, flags=["PADDED"], pad_length=30), fields(3, TRAILERS, end=True)),
        said(fields(1, [*HEAD, *later], end=True), fields(3, [*HEAD, *later], end=True, huffman=False)),
        said(frame_bytes(1, 0, 1, block[:5]), frame_bytes(9, 0, 1, block[5:9]), frame_bytes(9, 4, 1, block[9:]), *taken[1:]),
        said(RstStreamFrame(1, 8), RstStreamFrame(3, 7), fields(5, [(":status", "503")], end=True)),
        said(fields(1, HEAD), GoAwayFrame(0, last_stream_id=1, additional_data=b"bye"), *taken[1:]),
        said(frame_bytes(0xEE, 0, 0, b"unknown"), frame_bytes(2, 0, 1, bytes(5)), *taken, GoAwayFrame(0)),
        said(fields(1, HEAD), *(DataFrame(1, bytes(16_384)) for _ in range(5)), fields(1, TRAILERS, end=True)),
    ]


@pytest.mark.parametrize("seed", range(3))
def test_damaged_answers(built: Built, seed: int) -> None:
    """
    Whatever is done to what a server says, in whatever pieces it arrives, it is read within its bounds and the laws of a
    connection hold; and damage goes deep: answers are still taken, and every kind of fault is found.
    """
    program = built("fuzz_answers", "address", "undefined")
    lines = run(program, seed, 15_000, stdin=prefixed(*sessions())).decode().splitlines()
    ends = Counter({end: int(count) for count, _, end in (line.partition(" ") for line in lines)})
    assert ends.total() == 15_000
    assert {"OK, counted", "OK", "UNAVAILABLE", "CANCELLED", "UNKNOWN", "more is awaited"} <= ends.keys()
    assert len(ends) > 25, sorted(ends)
