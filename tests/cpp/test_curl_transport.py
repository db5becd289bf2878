"""The HTTPS transport of the C++ client with a server that answers what a test tells it to."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from support.certificates import LOOPBACK, make_certificates
from support.events_peer import counts
from support.otlp_answers import Answer, duration, packed
from support.otlp_sink import OtlpSink
from support.raw_http2 import RawConnection, RawPeer, Script
from support.senders import Sender

from otel_bridge.wire.intake import SENT_KEY


def url_of(sink: OtlpSink) -> str:
    """The URL of a server that takes any request, whatever its path."""
    return sink.http_endpoint.replace("/v1/traces", "/v1/events")


def test_what_is_sent(send_curl: Path) -> None:
    """A request goes out as it is, with its type, its token and the time of each attempt, and asks for no compression."""
    bodies = [b"", b"x", bytes(3 << 20)]
    with OtlpSink() as sink, Sender(send_curl, url_of(sink), "token=s3cret") as send:
        sink.answer = counts(1)
        assert [send(body).accepted for body in bodies] == [1, 2, 3]
    assert [one.payload for one in sink.received] == bodies
    for one in sink.received:
        assert one.path == "/v1/events"
        assert one.headers["content-type"] == "application/x-protobuf"
        assert one.headers["authorization"] == "Bearer s3cret"
        assert one.headers["user-agent"] == "otel-bridge-cpp"
        assert not {"expect", "accept-encoding", "content-encoding", "transfer-encoding"} & one.headers.keys()
    times = [int(one.headers[SENT_KEY]) for one in sink.received]
    assert times == sorted(set(times))
    assert abs(times[0] / 1e9 - datetime.now(UTC).timestamp()) < 3_600


def test_counts_are_totals(send_curl: Path) -> None:
    """Accepted and rejected events add up over requests; an answer that cannot be read leaves the request taken."""
    with OtlpSink() as sink, Sender(send_curl, url_of(sink)) as send:
        sink.answers += [
            counts(3),
            counts(2, "bad \x1b[2J", unnamed=2, not_utf8=5),
            Answer(body=b"\x08"),
            Answer(body=bytes(9_000)),
        ]
        assert send(b"x").message == ""
        some = send(b"x")
        assert (some.status, some.accepted, some.rejected) == ("200", 5, 7)
        assert some.message == "7 rejected, the first: 'bad \\x1b[2J'"
        for _ in range(2):
            unread = send(b"x")
            assert (unread.sent, unread.accepted, unread.rejected) == (True, 5, 7)
            assert "cannot be read" in unread.message


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 408, 411, 413, 415, 429, 500, 501, 502, 503, 504, 505])
def test_statuses(send_curl: Path, status: int) -> None:
    """429, 502, 503 and 504 are to be sent again, after the time that the answer names; all else is final."""
    with OtlpSink() as sink, Sender(send_curl, url_of(sink)) as send:
        sink.answers += [Answer.http_failure(status, "no\nsuch"), Answer.http_failure(status, retry_after="7")]
        plain, told = send(b"x"), send(b"x")
    again = status in {429, 502, 503, 504}
    assert [(one.status, one.sent, one.again) for one in (plain, told)] == [(str(status), False, again)] * 2
    assert (plain.wait_ms, told.wait_ms) == (0, 7_000 if again else 0)
    assert plain.message == f"the bridge answered HTTP {status}: 'no\\x0asuch'"


def test_times_to_wait(send_curl: Path) -> None:
    """Retry-After is read as seconds and as a date and is at most a day; RetryInfo in a protobuf body is more exact."""
    exact = Status(code=14, message="later", details=[packed(RetryInfo(retry_delay=duration(1.25)))]).SerializeToString()
    date = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    with OtlpSink() as sink, Sender(send_curl, url_of(sink)) as send:
        sink.answers += [
            Answer.http_failure(503, retry_after=value) for value in ("3", "0", "soon", "-1", "99999999999999999999", date)
        ]
        sink.answers += [Answer(status=503, body=exact, headers={"retry-after": "2"})]
        sink.answers += [Answer(status=503, body=exact, headers={"retry-after": "2", "content-type": "text/plain"})]
        waits = [send(b"x").wait_ms for _ in range(len(sink.answers))]
    day_ms = 24 * 60 * 60 * 1000
    assert waits[:3] + waits[6:] == [3_000, 0, 0, 1_250, 2_000]
    assert waits[3] == 0
    assert waits[4] in {0, day_ms}  # libcurl's word for a number that it cannot hold depends on its version
    assert 3_000_000 < waits[5] <= 3_600_000


def test_redirects_are_not_followed(send_curl: Path) -> None:
    """A redirect is final: requests and tokens go only where they were configured to go."""
    with OtlpSink() as other, OtlpSink() as sink, Sender(send_curl, url_of(sink), "token=t") as send:
        sink.answer = Answer.http_failure(308, location=url_of(other))
        outcome = send(b"x")
        assert (outcome.status, outcome.again) == ("308", False)
        assert other.received == []


def test_tls(send_curl: Path, tmp_path: Path) -> None:
    """With the authority's certificate the server is trusted; with another, or none, nothing is sent, and a retry may help."""
    made, foreign = make_certificates(tmp_path), make_certificates(tmp_path, name="foreign")
    with OtlpSink(tls=made) as sink:
        sink.answer = counts(1)
        with Sender(send_curl, url_of(sink), f"ca={made.authority}") as send:
            assert send(b"x").accepted == 1
            assert send(bytes(2 << 20)).accepted == 2
        for argument in (f"ca={foreign.authority}", "timeout_ms=9000", f"ca={tmp_path / 'absent.pem'}"):
            with Sender(send_curl, url_of(sink), argument) as send:
                outcome = send(b"x")
                assert (outcome.status, outcome.sent, outcome.again) == ("0", False, True)
                assert outcome.message.startswith("no answer: '")
        wrong_name = url_of(sink).replace(LOOPBACK, "127.0.0.2")
        with Sender(send_curl, wrong_name, f"ca={made.authority}") as send:
            assert not send(b"x").sent
        assert len(sink.received) == 2


def test_certificates_of_devices(send_curl: Path, tmp_path: Path) -> None:
    """A server that wants the device's certificate takes those of its authority, and no request without one."""
    made, foreign = make_certificates(tmp_path), make_certificates(tmp_path, name="foreign")
    with OtlpSink(tls=made, client_must_show=True) as sink:
        sink.answer = counts(1)
        shown = {
            True: (f"certificate={made.client}", f"key={made.client_key}"),
            False: (f"certificate={foreign.client}", f"key={foreign.client_key}"),
        }
        for taken, arguments in shown.items():
            with Sender(send_curl, url_of(sink), f"ca={made.authority}", *arguments) as send:
                assert send(b"x").sent is taken
        with Sender(send_curl, url_of(sink), f"ca={made.authority}") as send:
            outcome = send(b"x")
            assert (outcome.sent, outcome.again) == (False, True)
        assert len(sink.received) == 1


def test_a_server_that_is_slow(send_curl: Path) -> None:
    """When the time is over the call is, too."""
    with OtlpSink() as sink, Sender(send_curl, url_of(sink), "timeout_ms=2500") as send:
        sink.answers.append(Answer(delay_s=30))
        late = send(b"x")
        assert (late.status, late.sent, late.again) == ("0", False, True)
        assert send(b"x").sent


def test_a_server_that_goes_away(send_curl: Path) -> None:
    """While nobody listens requests are to be sent again; once the server is back on its port they arrive."""
    with OtlpSink() as sink, Sender(send_curl, url_of(sink)) as send:
        assert send(b"x").sent
        sink.go_away()
        gone = send(b"x")
        assert (gone.status, gone.sent, gone.again) == ("0", False, True)
        sink.come_back()
        assert send(b"x").sent


TAKEN = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 2\r\n\r\n\x08\x01"


def read_request(connection: RawConnection) -> None:
    """Read a request of HTTP/1.1 that has one byte of a body."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += connection.read(1)
    connection.read(1)


def take_all(connection: RawConnection) -> None:
    """Take every request."""
    while True:
        read_request(connection)
        connection.send_raw(TAKEN)


def take_one(connection: RawConnection) -> None:
    """Take one request and hang up on the next."""
    read_request(connection)
    connection.send_raw(TAKEN)
    read_request(connection)


@pytest.mark.parametrize(("scripts", "connections"), [((take_all,), 1), ((take_one, take_all), 2)], ids=["kept", "died"])
def test_connections_are_kept(send_curl: Path, scripts: tuple[Script, ...], connections: int) -> None:
    """One connection serves all requests; one that died while idle is replaced, unseen by the caller."""
    with RawPeer(*scripts) as peer, Sender(send_curl, f"http://{peer.target}/v1/events") as send:
        assert [send(b"x").accepted for _ in range(3)] == [1, 2, 3]
        assert peer.connections == connections


NO_HTTP = {
    "nothing": b"",
    "noise": b"\x00\x01\x02" * 99,
    "HTTP/2": b"\x00\x00\x00\x04\x00\x00\x00\x00\x00",
    "half an answer": TAKEN[:-1],
    "endless headers": b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 200_000,
}


@pytest.mark.parametrize("what", NO_HTTP)
def test_what_is_no_answer(send_curl: Path, what: str) -> None:
    """What is no whole answer of HTTP leaves the request to be sent again, and the program alive."""

    def script(connection: RawConnection) -> None:
        read_request(connection)
        connection.send_raw(NO_HTTP[what])

    with RawPeer(script) as peer, Sender(send_curl, f"http://{peer.target}/v1/events", "timeout_ms=9000") as send:
        outcome = send(b"x")
    assert (outcome.sent, outcome.again) == (False, True)


def test_a_server_that_dies_while_it_is_sent_to(send_curl: Path) -> None:
    """A peer that hangs up in the middle of a request gives an error and no SIGPIPE, which would end the program."""

    def script(connection: RawConnection) -> None:
        connection.read(1_000)

    with RawPeer(script) as peer, Sender(send_curl, f"http://{peer.target}/v1/events") as send:
        for _ in range(3):
            outcome = send(bytes(8 << 20))
            assert (outcome.sent, outcome.again) == (False, True)


@pytest.mark.parametrize(
    "arguments", [("",), ("bridge:4418",), ("ftp://bridge/",), ("http://x", "token="), ("http://x", "token=a\nb")]
)
def test_options_that_cannot_be(send_curl: Path, arguments: tuple[str, ...]) -> None:
    """What cannot be sent to, or be a header, is told at once, and no retry is asked for."""
    with Sender(send_curl, *arguments) as send:
        outcome = send(b"x")
    assert (outcome.sent, outcome.again) == (False, False)
    assert ("token" if len(arguments) > 1 else "https://") in outcome.message


def test_a_url_that_cannot_be(send_curl: Path) -> None:
    """A URL that libcurl cannot take apart is final."""
    with Sender(send_curl, "http://[::1/v1/events") as send:
        outcome = send(b"x")
    assert (outcome.sent, outcome.again) == (False, False)
