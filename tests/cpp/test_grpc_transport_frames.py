"""Frames that a server of HTTP/2 may send and grpcio does not: the C++ transport with a server of raw frames."""

from pathlib import Path

import pytest
from hyperframe.frame import (
    DataFrame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    PriorityFrame,
    SettingsFrame,
    WindowUpdateFrame,
)
from support.raw_http2 import HEAD, TAKEN, TRAILERS, RawConnection, RawPeer, Script, frame_bytes, framed
from support.senders import Outcome, Sender

from otel_bridge.v1 import profiling_pb2 as pb

WINDOW, FRAME = 65_535, 16_384
HEADERS, END_HEADERS = 1, 4
INITIAL_WINDOW = SettingsFrame.INITIAL_WINDOW_SIZE


def outcome_of(send_grpc: Path, *scripts: Script, request: bytes = b"x") -> Outcome:
    """What comes of one request."""
    with RawPeer(*scripts) as peer, Sender(send_grpc, peer.target, "timeout_ms=15000") as send:
        return send(request)


@pytest.mark.parametrize(
    "how", [{"huffman": False}, {"huffman": True}, {"parts": 12}, {"padding": 200}, {"padding": 1, "parts": 3}], ids=str
)
def test_ways_to_answer(send_grpc: Path, how: dict[str, int]) -> None:
    """Headers in plain or Huffman code, in one frame or in CONTINUATIONs, padded or not, all say the same."""
    rejected = [pb.Rejection(reason="unnamed", events=2)]
    response = pb.ExportEventsResponse(accepted=7, rejected=rejected, first_rejection="block 0").SerializeToString()

    def script(connection: RawConnection) -> None:
        for _ in range(2):
            connection.send_answer(connection.read_call().stream, framed(response), **how)

    with RawPeer(script) as peer, Sender(send_grpc, peer.target) as send:
        assert send(b"x").status == "OK"
        second = send(b"x")
    assert (second.sent, second.accepted, second.rejected) == (True, 14, 4)


def test_what_is_passed_over(send_grpc: Path) -> None:
    """Unknown frames and settings, PRIORITY, HEADERS with a priority, 1xx answers and empty DATA change nothing."""

    def script(connection: RawConnection) -> None:
        connection.greet({0x77: 5, SettingsFrame.MAX_CONCURRENT_STREAMS: 1, SettingsFrame.MAX_FRAME_SIZE: 1 << 20})
        stream = connection.read_call().stream
        connection.send_raw(frame_bytes(0xEE, 0xFF, 0, b"anything") + frame_bytes(0x77, 0, stream))
        connection.send(PriorityFrame(stream, depends_on=0, stream_weight=9, exclusive=False))
        connection.send_fields(stream, [(":status", "103"), ("link", "</a>")])
        block = connection.encoder.encode([*HEAD, ("x" * 500, "long"), ("server", "y" * 5_000)])
        connection.send(HeadersFrame(stream, block, flags=["END_HEADERS", "PRIORITY"], stream_weight=3))
        connection.send(DataFrame(stream, b""), DataFrame(stream, b"", flags=["PADDED"], pad_length=9))
        for byte in TAKEN:
            connection.send(DataFrame(stream, bytes([byte])))
        connection.send_fields(stream, TRAILERS, end=True)
        connection.answer_all()

    assert outcome_of(send_grpc, script).accepted == 1


def test_what_has_to_be_acknowledged(send_grpc: Path) -> None:
    """PING and SETTINGS are acknowledged, in a call and between calls, where the next one brings it."""

    def script(connection: RawConnection) -> None:
        first = connection.read_call()
        connection.ping(b"during a"[:8])
        connection.send_answer(first.stream)
        connection.send(PingFrame(0, b"between "), SettingsFrame(0, settings={INITIAL_WINDOW: 70_000}))
        acknowledged = {b"between ": False, "settings": False}
        while not all(acknowledged.values()):
            frame = connection.read_frame()
            if isinstance(frame, PingFrame):
                acknowledged[frame.opaque_data] = "ACK" in frame.flags
            acknowledged["settings"] |= isinstance(frame, SettingsFrame) and "ACK" in frame.flags
        stream = next(frame.stream_id for frame in connection.frames[::-1] if isinstance(frame, HeadersFrame))
        connection.send_answer(stream)

    with RawPeer(script) as peer, Sender(send_grpc, peer.target) as send:
        assert send(b"x").sent
        assert send(b"y").sent


def test_a_long_answer(send_grpc: Path) -> None:
    """An answer far beyond what is kept, and beyond every window, is read to its end; the request counts as taken."""

    def script(connection: RawConnection) -> None:
        stream = connection.read_call().stream
        connection.send_fields(stream, HEAD)
        room = {0: WINDOW, stream: WINDOW}
        left = 500_000
        while left:
            size = min(left, FRAME, *room.values())
            if size:
                connection.send(DataFrame(stream, bytes(size)))
                left -= size
                for number in room:
                    room[number] -= size
            else:
                frame = connection.read_until(lambda frame: isinstance(frame, WindowUpdateFrame))
                room[frame.stream_id] += frame.window_increment
        connection.send_fields(stream, TRAILERS, end=True)

    outcome = outcome_of(send_grpc, script)
    assert (outcome.sent, outcome.accepted) == (True, 0)
    assert "cannot be read" in outcome.message


def test_stream_numbers_end(send_grpc: Path) -> None:
    """The last number that a stream may have is used; the call after it opens a new connection."""
    last = 2**31 - 1
    streams: list[int] = []

    def script(connection: RawConnection) -> None:
        while True:
            streams.append(connection.read_call().stream)
            connection.send_answer(streams[-1])

    with RawPeer(script) as peer, Sender(send_grpc, peer.target, f"first_stream={last - 2}") as send:
        for _ in range(4):
            assert send(b"x").sent
        assert peer.connections == 2
    assert streams == [last - 2, last, last - 2, last]


def take(connection: RawConnection) -> None:
    """Take every request."""
    connection.answer_all()


def refuse(connection: RawConnection) -> None:
    """Refuse a stream, as servers do that have no room."""
    connection.reset(connection.read_call().stream, 7)


def go_away_before(connection: RawConnection) -> None:
    """Say that a stream was not looked at."""
    connection.read_call()
    connection.send(GoAwayFrame(0, last_stream_id=0))
    connection.read_until(lambda _: False)


def take_one_and_close(connection: RawConnection) -> None:
    """Take one request and hang up."""
    connection.send_answer(connection.read_call().stream)


def take_one_and_die(connection: RawConnection) -> None:
    """Take one request and hang up on the next, before a word of an answer."""
    take_one_and_close(connection)
    connection.read_call()


@pytest.mark.parametrize("first", [refuse, go_away_before], ids=lambda script: script.__name__)
def test_what_was_not_processed_goes_again(send_grpc: Path, first: Script) -> None:
    """A request of which the server vouches that it was not processed is sent again at once; once, not for ever."""
    with RawPeer(first, take) as peer, Sender(send_grpc, peer.target) as send:
        assert send(b"x").sent
        assert peer.connections == 2
    with RawPeer(first) as peer, Sender(send_grpc, peer.target) as send:
        outcome = send(b"x")
        assert (outcome.status, outcome.again) == ("UNAVAILABLE", True)
        assert peer.connections == 2


@pytest.mark.parametrize("first", [take_one_and_close, take_one_and_die], ids=lambda script: script.__name__)
def test_a_connection_that_died_while_idle(send_grpc: Path, first: Script) -> None:
    """A call that finds its kept connection dead goes over a new one, unseen by the caller."""
    with RawPeer(first, take) as peer, Sender(send_grpc, peer.target) as send:
        assert send(b"x").sent
        assert send(b"x").sent
        assert peer.connections == 2


def test_a_server_that_lets_a_call_end(send_grpc: Path) -> None:
    """GOAWAY that covers the call lets it end; the next call opens a new connection."""

    def script(connection: RawConnection) -> None:
        stream = connection.read_call().stream
        connection.send(GoAwayFrame(0, last_stream_id=2**31 - 1), GoAwayFrame(0, last_stream_id=stream))
        connection.send_answer(stream)
        connection.read_until(lambda _: False)

    with RawPeer(script) as peer, Sender(send_grpc, peer.target) as send:
        assert send(b"x").sent
        assert send(b"x").sent
        assert peer.connections == 2


def test_an_answer_before_the_end_of_the_request(send_grpc: Path) -> None:
    """A server that answers while it is still being sent to is heeded at once, and the connection stays of use."""
    body = bytes(1 << 20)

    def script(connection: RawConnection) -> None:
        connection.greet()
        connection.read_until(lambda frame: isinstance(frame, DataFrame))
        connection.send_fields(1, [*HEAD, ("grpc-status", "8"), ("grpc-message", "too%20large")], end=True)
        connection.read_until(lambda frame: frame.type == 3 and frame.stream_id == 1)
        connection.send(WindowUpdateFrame(0, 1 << 20))
        connection.answer_all()

    with RawPeer(script) as peer, Sender(send_grpc, peer.target) as send:
        outcome = send(body)
        assert (outcome.status, outcome.again) == ("RESOURCE_EXHAUSTED", False)
        assert outcome.message.endswith("answered RESOURCE_EXHAUSTED: 'too large'")
        assert send(b"x").sent
        assert peer.connections == 1


def test_an_answer_before_the_end_of_the_connection(send_grpc: Path) -> None:
    """What a server says before it hangs up is heeded, though the request was still being written and the writing failed."""

    def script(connection: RawConnection) -> None:
        connection.greet({INITIAL_WINDOW: 1 << 30})
        connection.send(WindowUpdateFrame(0, 1 << 30))
        connection.read_until(lambda frame: isinstance(frame, DataFrame))
        connection.send_fields(1, [*HEAD, ("grpc-status", "3")], end=True)

    with RawPeer(script) as peer, Sender(send_grpc, peer.target) as send:
        for _ in range(10):
            assert send(bytes(4 << 20)).status == "INVALID_ARGUMENT"


def test_the_table_of_headers_is_off(send_grpc: Path) -> None:
    """The client announces a table of size 0 and no pushes, and takes the size update that an encoder may open a block with."""

    def script(connection: RawConnection) -> None:
        stream = connection.read_call().stream
        announced = next(frame for frame in connection.frames if isinstance(frame, SettingsFrame))
        assert announced.settings[SettingsFrame.HEADER_TABLE_SIZE] == 0
        assert announced.settings[SettingsFrame.ENABLE_PUSH] == 0
        for size_update in (b"\x20", b"\x3f\xe1\x1f\x20"):  # 0; 4096, the size before our SETTINGS, and then 0
            block = size_update + b"\x88"
            connection.send_raw(frame_bytes(HEADERS, END_HEADERS, stream, block))
        connection.send(DataFrame(stream, TAKEN))
        connection.send_fields(stream, TRAILERS, end=True)

    assert outcome_of(send_grpc, script).sent
