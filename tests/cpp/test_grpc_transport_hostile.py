"""What no server may send, and servers that send nothing: the C++ transport does not break, wait for ever, or believe it."""

import select
from collections.abc import Callable
from pathlib import Path

import pytest
from hyperframe.frame import DataFrame, GoAwayFrame, PingFrame
from support.raw_http2 import HEAD, TAKEN, RawConnection, RawPeer, Script, frame_bytes, framed
from support.senders import Outcome, Sender

DATA, HEADERS, RESET, SETTINGS, PUSH, PING, GO_AWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 5, 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITY = 1, 1, 4, 8, 32
NO_ERROR, PROTOCOL_ERROR, FLOW_CONTROL_ERROR, FRAME_SIZE_ERROR = 0, 1, 3, 6
COMPRESSION_ERROR, ENHANCE_YOUR_CALM = 9, 11


def outcome_of(send_grpc: Path, script: Script, *arguments: str, request: bytes = b"x") -> Outcome:
    """What comes of one request."""
    with RawPeer(script) as peer, Sender(send_grpc, peer.target, *arguments) as send:
        return send(request)


def headers(block: bytes, flags: int = END_HEADERS) -> bytes:
    """A HEADERS frame on the first stream."""
    return frame_bytes(HEADERS, flags, 1, block)


def settings(*pairs: tuple[int, int]) -> bytes:
    """A SETTINGS frame."""
    return frame_bytes(SETTINGS, 0, 0, b"".join(n.to_bytes(2, "big") + v.to_bytes(4, "big") for n, v in pairs))


def window_update(stream: int, credit: int) -> bytes:
    """A WINDOW_UPDATE frame."""
    return frame_bytes(WINDOW_UPDATE, 0, stream, credit.to_bytes(4, "big"))


BREACHES: dict[str, tuple[int, bytes]] = {
    "a frame too long": (FRAME_SIZE_ERROR, frame_bytes(DATA, 0, 1, length=16_385)),
    "the longest frame": (FRAME_SIZE_ERROR, frame_bytes(0xEE, 0, 0, length=2**24 - 1)),
    "DATA on stream 0": (PROTOCOL_ERROR, frame_bytes(DATA, 0, 0, b"x")),
    "DATA on a stream not begun": (PROTOCOL_ERROR, frame_bytes(DATA, 0, 3, b"x")),
    "DATA on a stream of the server": (PROTOCOL_ERROR, frame_bytes(DATA, 0, 2, b"x")),
    "padding as long as its frame": (PROTOCOL_ERROR, frame_bytes(DATA, PADDED, 1, b"\x01")),
    "padding without its length": (PROTOCOL_ERROR, frame_bytes(DATA, PADDED, 1)),
    "padding over headers": (PROTOCOL_ERROR, frame_bytes(HEADERS, PADDED | END_HEADERS, 1, b"\x09\x88")),
    "a priority cut off": (FRAME_SIZE_ERROR, frame_bytes(HEADERS, PRIORITY | END_HEADERS, 1, b"\x00\x00")),
    "HEADERS on stream 0": (PROTOCOL_ERROR, frame_bytes(HEADERS, END_HEADERS, 0, b"\x88")),
    "CONTINUATION alone": (PROTOCOL_ERROR, frame_bytes(CONTINUATION, END_HEADERS, 1, b"\x88")),
    "a frame inside headers": (PROTOCOL_ERROR, headers(b"\x88", 0) + frame_bytes(PING, 0, 0, bytes(8))),
    "CONTINUATION of another stream": (PROTOCOL_ERROR, headers(b"\x88", 0) + frame_bytes(CONTINUATION, 0, 3)),
    "CONTINUATION without end": (ENHANCE_YOUR_CALM, headers(b"", 0) + frame_bytes(CONTINUATION, 0, 1) * 20),
    "headers too long": (ENHANCE_YOUR_CALM, headers(b"\x88" * 8_193)),
    "headers too long in parts": (
        ENHANCE_YOUR_CALM,
        headers(b"\x88" * 8_000, 0) + frame_bytes(CONTINUATION, 4, 1, b"\x88" * 200),
    ),
    "RST_STREAM of the wrong size": (FRAME_SIZE_ERROR, frame_bytes(RESET, 0, 1, b"xxx")),
    "RST_STREAM on stream 0": (PROTOCOL_ERROR, frame_bytes(RESET, 0, 0, bytes(4))),
    "SETTINGS on a stream": (PROTOCOL_ERROR, frame_bytes(SETTINGS, 0, 1)),
    "SETTINGS of the wrong size": (FRAME_SIZE_ERROR, frame_bytes(SETTINGS, 0, 0, b"xxxxx")),
    "an acknowledgement with content": (FRAME_SIZE_ERROR, frame_bytes(SETTINGS, ACK, 0, bytes(6))),
    "a window of 2^31": (FLOW_CONTROL_ERROR, settings((4, 2**31))),
    "frames of 16,383": (PROTOCOL_ERROR, settings((5, 16_383))),
    "frames of 2^24": (PROTOCOL_ERROR, settings((5, 2**24))),
    "a window moved past 2^31": (FLOW_CONTROL_ERROR, window_update(1, 2**31 - 65_536) + settings((4, 2**31 - 1))),
    "PUSH_PROMISE": (PROTOCOL_ERROR, frame_bytes(PUSH, END_HEADERS, 1, b"\x00\x00\x00\x02\x88")),
    "PING of the wrong size": (FRAME_SIZE_ERROR, frame_bytes(PING, 0, 0, b"x")),
    "PING on a stream": (PROTOCOL_ERROR, frame_bytes(PING, 0, 1, bytes(8))),
    "GOAWAY of the wrong size": (FRAME_SIZE_ERROR, frame_bytes(GO_AWAY, 0, 0, bytes(7))),
    "GOAWAY on a stream": (PROTOCOL_ERROR, frame_bytes(GO_AWAY, 0, 1, bytes(8))),
    "WINDOW_UPDATE of the wrong size": (FRAME_SIZE_ERROR, frame_bytes(WINDOW_UPDATE, 0, 0, b"xxx")),
    "no credit": (FLOW_CONTROL_ERROR, window_update(0, 0)),
    "credit past 2^31": (FLOW_CONTROL_ERROR, window_update(0, 2**31 - 1)),
    "credit on a stream not begun": (PROTOCOL_ERROR, window_update(9, 1)),
    "an index of 0": (COMPRESSION_ERROR, headers(b"\x80")),
    "an index beyond the static table": (COMPRESSION_ERROR, headers(b"\xbe")),
    "a name beyond the static table": (COMPRESSION_ERROR, headers(b"\x7e\x01x")),
    "an index that never ends": (COMPRESSION_ERROR, headers(b"\xff" + b"\xff" * 20)),
    "an index cut off": (COMPRESSION_ERROR, headers(b"\xff\x80")),
    "a text longer than the block": (COMPRESSION_ERROR, headers(b"\x00\x7f\xff\xff\xff\x7fx")),
    "a text cut off": (COMPRESSION_ERROR, headers(b"\x00\x05ab")),
    "a value that is missing": (COMPRESSION_ERROR, headers(b"\x00\x01a")),
    "EOS in a text": (COMPRESSION_ERROR, headers(b"\x00\x01a\x84\xff\xff\xff\xff")),
    "padding of zeros": (COMPRESSION_ERROR, headers(b"\x00\x01a\x81\x18")),
    "padding of a whole byte": (COMPRESSION_ERROR, headers(b"\x00\x01a\x82\x1f\xff")),
    "a size update behind a field": (COMPRESSION_ERROR, headers(b"\x88\x20")),
    "a table larger than any": (COMPRESSION_ERROR, headers(b"\x3f\xe2\x1f")),
}


@pytest.mark.parametrize("breach", BREACHES)
def test_breaches_of_the_protocol(send_grpc: Path, breach: str) -> None:
    """A breach of RFC 9113 or 7541 ends the connection with the error code that it asks for; the request may be sent again."""
    expected, sent = BREACHES[breach]
    told: list[int] = []

    def script(connection: RawConnection) -> None:
        connection.read_call()
        connection.send_raw(sent)
        told.append(connection.read_until(lambda frame: isinstance(frame, GoAwayFrame)).error_code)

    with RawPeer(script, RawConnection.answer_all) as peer, Sender(send_grpc, peer.target) as send:
        outcome = send(b"x")
        assert (outcome.status, outcome.again) == ("UNAVAILABLE", True)
        assert "is no gRPC server, or a broken one: " in outcome.message
        assert send(b"x").sent
    assert told == [expected]


NO_HTTP2 = {
    "HTTP/1.1": b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n",
    "TLS": b"\x15\x03\x03\x00\x02\x02\x46",
    "SSH": b"SSH-2.0-OpenSSH_9.2p1\r\n",
    "an acknowledgement first": frame_bytes(SETTINGS, ACK, 0),
    "PING first": frame_bytes(PING, 0, 0, bytes(8)),
    "zeros": bytes(100),
}


@pytest.mark.parametrize("what", NO_HTTP2)
def test_what_is_no_http2(send_grpc: Path, what: str) -> None:
    """A server of something else is found out, and said so."""

    def script(connection: RawConnection) -> None:
        connection.send_raw(NO_HTTP2[what])
        while connection.socket.recv(4096):
            pass

    outcome = outcome_of(send_grpc, script, "timeout_ms=5000")
    assert (outcome.status, outcome.again) == ("UNAVAILABLE", True)
    assert outcome.message.endswith(": it does not speak HTTP/2")


@pytest.mark.parametrize("count", [0, 1, 8, 9, 40], ids=lambda count: f"{count} bytes")
def test_an_answer_that_breaks_off(send_grpc: Path, count: int) -> None:
    """A connection that ends before the answer does, wherever, gives UNAVAILABLE."""

    def script(connection: RawConnection) -> None:
        stream = connection.read_call().stream
        connection.send_raw((headers(connection.encoder.encode(HEAD)) + frame_bytes(DATA, 0, stream, TAKEN * 9))[:count])

    outcome = outcome_of(send_grpc, script)
    assert (outcome.status, outcome.again) == ("UNAVAILABLE", True)
    assert "closed the connection before it answered" in outcome.message


STATUS_OF_HTTP = {
    400: "INTERNAL",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "UNIMPLEMENTED",
    429: "UNAVAILABLE",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "UNAVAILABLE",
    200: "UNKNOWN",
    302: "UNKNOWN",
    500: "UNKNOWN",
}


@pytest.mark.parametrize("status", STATUS_OF_HTTP)
def test_answers_of_proxies(send_grpc: Path, status: int) -> None:
    """An answer without a status of gRPC means what gRPC's table makes of HTTP's, with a body or without."""
    outcomes = []

    def script(connection: RawConnection) -> None:
        fields = [(":status", str(status)), ("content-type", "text/html")]
        connection.send_fields(connection.read_call().stream, fields, end=True)
        stream = connection.read_call().stream
        connection.send_fields(stream, fields)
        connection.send(DataFrame(stream, b"<html>", flags=["END_STREAM"]))

    with RawPeer(script) as peer, Sender(send_grpc, peer.target) as send:
        outcomes += [send(b"x"), send(b"x")]
    assert [one.status for one in outcomes] == [STATUS_OF_HTTP[status]] * 2
    assert [one.again for one in outcomes] == [STATUS_OF_HTTP[status] == "UNAVAILABLE"] * 2
    assert all((f"HTTP {status}" in one.message) == (status != 200) for one in outcomes)


@pytest.mark.parametrize("status", ["", "17", "-1", "1x", "0000", "99999999999999999999"])
def test_statuses_that_cannot_be(send_grpc: Path, status: str) -> None:
    """A grpc-status that is none is UNKNOWN, never OK."""

    def script(connection: RawConnection) -> None:
        connection.send_answer(connection.read_call().stream, trailers=[("grpc-status", status)])

    outcome = outcome_of(send_grpc, script)
    assert (outcome.status, outcome.sent, outcome.again) == ("UNKNOWN", False, False)


STATUS_OF_RESET = {
    0: "INTERNAL",
    1: "INTERNAL",
    2: "INTERNAL",
    3: "INTERNAL",
    4: "INTERNAL",
    5: "UNKNOWN",
    6: "INTERNAL",
    8: "CANCELLED",
    9: "INTERNAL",
    10: "INTERNAL",
    11: "RESOURCE_EXHAUSTED",
    12: "PERMISSION_DENIED",
    13: "UNKNOWN",
    2**32 - 1: "UNKNOWN",
}
"""As gRPC's PROTOCOL-HTTP2.md maps the error codes of RST_STREAM."""


@pytest.mark.parametrize("code", STATUS_OF_RESET)
def test_resets(send_grpc: Path, code: int) -> None:
    """A stream that is reset has the status that gRPC gives to the error code; the connection is kept."""

    def script(connection: RawConnection) -> None:
        connection.reset(connection.read_call().stream, code)
        connection.answer_all()

    with RawPeer(script) as peer, Sender(send_grpc, peer.target) as send:
        assert send(b"x").status == STATUS_OF_RESET[code]
        assert send(b"x").sent
        assert peer.connections == 1


@pytest.mark.parametrize(
    "body",
    [b"", b"\x00", framed(b"", compressed=True), TAKEN[:-1], framed(b"") + b"\x08\x05", framed(b"\x08"), framed(b"\xff" * 9)],
    ids=lambda body: body.hex() or "empty",
)
def test_bodies_that_cannot_be_read(send_grpc: Path, body: bytes) -> None:
    """The status decides: a request answered OK was taken, and a body that cannot be read counts nothing."""

    def script(connection: RawConnection) -> None:
        connection.send_answer(connection.read_call().stream, body)

    outcome = outcome_of(send_grpc, script)
    assert (outcome.sent, outcome.accepted, outcome.rejected) == (True, 0, 0)
    assert "cannot be read" in outcome.message


def silence(connection: RawConnection) -> None:
    """Read everything and say nothing."""
    connection.greet()
    connection.read_until(lambda _: False)


def deafness(connection: RawConnection) -> None:
    """Greet and read nothing more."""
    connection.greet()
    connection.send(PingFrame(0, b"are you?"))
    hung_up = select.poll()  # reading would end the deafness
    hung_up.register(connection.socket, select.POLLRDHUP)
    hung_up.poll(20_000)


def chatter(connection: RawConnection) -> None:
    """Ask and ask, and never read: what the client has to say piles up."""
    connection.greet()
    while True:
        connection.send_raw(frame_bytes(PING, 0, 0, bytes(8)) * 1000)


def dribble(connection: RawConnection) -> None:
    """Begin an answer and never end it."""
    stream = connection.read_call().stream
    connection.send_fields(stream, HEAD)
    while True:
        connection.send(DataFrame(stream, b""))


def no_credit(connection: RawConnection) -> None:
    """Never give credit."""
    connection.greet({4: 0})
    connection.read_until(lambda _: False)


@pytest.mark.parametrize("script", [silence, deafness, chatter, dribble, no_credit], ids=lambda script: script.__name__)
def test_the_deadline_holds(send_grpc: Path, script: Callable[[RawConnection], None]) -> None:
    """Whatever a server does or leaves undone, a call ends with its deadline, and the next one is made on a new connection."""
    with RawPeer(script, RawConnection.answer_all) as peer, Sender(send_grpc, peer.target, "timeout_ms=2500") as send:
        outcome = send(bytes(8 << 20))
        assert (outcome.status, outcome.again) == ("DEADLINE_EXCEEDED", True)
        assert outcome.message == f"{peer.target} did not answer within 2500 ms"
        assert send(b"x").sent
        assert peer.connections == 2


def test_a_server_that_dies_while_it_is_sent_to(send_grpc: Path) -> None:
    """A peer that hangs up in the middle of a request gives an error and no SIGPIPE, which would end the program."""

    def script(connection: RawConnection) -> None:
        connection.greet()
        connection.read_frame()

    with RawPeer(script) as peer, Sender(send_grpc, peer.target) as send:
        for _ in range(3):
            outcome = send(bytes(8 << 20))
            assert (outcome.status, outcome.again) == ("UNAVAILABLE", True)
