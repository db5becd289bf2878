"""What is read out of files of requests."""

import io

import pytest
from google.protobuf import proto
from hypothesis import given
from hypothesis import strategies as st
from support.requests import is_clear

from otel_bridge.cli.request_file import RequestInFile, read_requests
from otel_bridge.cli.serial_log import DamagedBlock
from otel_bridge.v1 import profiling_pb2 as pb


def read(data: bytes) -> list[RequestInFile | DamagedBlock]:
    """All of a file."""
    return list(read_requests(io.BytesIO(data)))


def written(*metadata: bytes) -> bytes:
    """Requests as protobuf's own library writes them, one for each."""
    stream = io.BytesIO()
    for each in metadata:
        proto.serialize_length_prefixed(pb.ExportEventsRequest(metadata=[each]), stream)
    return stream.getvalue()


@given(st.lists(st.binary(max_size=400), max_size=5))
def test_what_protobuf_writes_is_read(metadata: list[bytes]) -> None:
    """Every request comes out, byte for byte and in order, by its number."""
    found = read(written(*metadata))
    assert [each.number for each in found if isinstance(each, RequestInFile)] == list(range(1, len(metadata) + 1))
    parsed = [pb.ExportEventsRequest.FromString(each.data) for each in found if isinstance(each, RequestInFile)]
    assert [bytes(each.metadata[0]) for each in parsed] == metadata


@given(st.integers(1, 300))
def test_a_cut_file_gives_what_is_whole(lost: int) -> None:
    """A file that lost its end gives the requests before the cut, then says which one was cut; no byte is made up."""
    whole = written(b"a" * 100, b"b" * 200)
    found = read(whole[:-lost] if lost < len(whole) else b"")
    first = len(written(b"a" * 100))
    kept = [each.number for each in found if isinstance(each, RequestInFile)]
    assert kept == ([1] if len(whole) - lost >= first else [])
    faults = [str(each) for each in found if isinstance(each, DamagedBlock)]
    assert len(faults) == (len(whole) - lost not in {0, first} and lost < len(whole))
    assert all(
        is_clear(fault) and fault.startswith(f"request {len(kept) + 1}, at byte {first * len(kept)}: ") for fault in faults
    )


@given(st.binary(max_size=200))
def test_any_bytes_are_a_file(data: bytes) -> None:
    """Whatever a file holds, reading ends, and says one thing at most."""
    faults = [each for each in read(data) if isinstance(each, DamagedBlock)]
    assert len(faults) <= 1
    assert all(is_clear(str(fault)) for fault in faults)


@pytest.mark.parametrize("data", [b"\xff" * 10, b"\xff" * 9 + b"\x01", b"\x80\x80\x80\x80\x08" + b"x"])
def test_a_length_that_cannot_be(data: bytes) -> None:
    """A length over that of any request is none: nothing is read for it."""
    (fault,) = read(data)
    assert str(fault).startswith("request 1, at byte 0: does not begin with the length of a request")
