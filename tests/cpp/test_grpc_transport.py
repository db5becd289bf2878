"""The gRPC transport of the C++ client with the servers that users have: grpcio's, and the bridge itself."""

import signal
import socket
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest
from google.rpc.error_details_pb2 import BadRequest, RetryInfo
from google.rpc.status_pb2 import Status
from support.events_peer import EventsPeer, counts
from support.otlp_answers import Answer, duration, packed
from support.otlp_sink import OtlpSink
from support.processes import LOOPBACK, free_port
from support.requests import a_request
from support.scenes import call, delegated, runtime
from support.senders import Sender
from support.service import running

from otel_bridge.export.otlp_grpc import VERDICTS, Verdict
from otel_bridge.wire.intake import SENT_KEY

CODES = sorted(VERDICTS, key=lambda code: code.value[0])

EVENTS = (
    delegated("conv", 0, 1_000, 2_000),
    call("DELEGATE_CALL", 0, 900, 2_100),
    runtime("Method::execute", 800, 2_200),
)


def test_a_bridge_takes_events(send_grpc: Path, tmp_path: Path) -> None:
    """A real bridge takes what the transport carries, its counts come back, and the spans reach the back end."""
    request = a_request(*EVENTS)
    with OtlpSink() as sink, running(tmp_path, sink) as service, Sender(send_grpc, service.grpc) as send:
        first = send(request.SerializeToString())
        assert (first.status, first.sent, first.accepted, first.rejected, first.message) == ("OK", True, len(EVENTS), 0, "")
        request.stream.sequence += 1
        request.events.kind[0] = 0
        second = send(request.SerializeToString())
        assert (second.accepted, second.rejected) == (2 * len(EVENTS) - 1, 1)
        assert second.message.startswith("1 rejected, the first: 'events.kind[0]")
        refused = send(b"\xff\xff")
        assert (refused.status, refused.sent, refused.again) == ("INVALID_ARGUMENT", False, False)
        service.settle()
        assert len(sink.spans) == 2 * len(EVENTS) - 1


def test_a_bridge_that_is_started_again(send_grpc: Path, tmp_path: Path) -> None:
    """Whatever a bridge does not take while it stops is to be sent again; once it is back, the same transport reaches it."""
    request = a_request(*EVENTS)
    port = ("--grpc", f"{LOOPBACK}:{free_port()}")
    with OtlpSink() as sink, running(tmp_path, sink, *port) as service, Sender(send_grpc, service.grpc) as send:
        for number in range(30):
            request.stream.sequence = number
            if number in {10, 20}:
                service.process.signal(signal.SIGTERM)
            while not (outcome := send(request.SerializeToString())).sent:
                assert outcome.again, outcome
                if service.process.returncode is not None:
                    service.channel.close()
                    service.start()
        assert outcome.accepted >= 30 * len(EVENTS)
        service.settle()
        assert len({(span.trace_id, span.span_id) for span in sink.spans}) == 30 * len(EVENTS)


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
def test_statuses(send_grpc: Path, code: grpc.StatusCode) -> None:
    """Each status of gRPC, with and without RetryInfo, is final or not by the same table as the bridge's own exporter."""
    with EventsPeer() as peer, Sender(send_grpc, peer.target) as send:
        peer.answers += [Answer.grpc_failure(code, "no\nsuch"), Answer.grpc_failure(code, retry_after_s=1.2501)]
        plain, told = send(b"x"), send(b"x")
        assert plain.status == told.status == code.name
        assert not plain.sent
        assert not told.sent
        assert plain.again == (VERDICTS[code] is Verdict.RETRY)
        assert told.again == (VERDICTS[code] is not Verdict.REJECT)
        assert plain.wait_ms == 0
        assert told.wait_ms == (1251 if told.again else 0)
        assert plain.message == f"{peer.target} answered {code.name}: 'no\\x0asuch'"


def test_retry_info_among_other_details(send_grpc: Path) -> None:
    """RetryInfo is found behind other details and behind one that claims its type and is none; without a time it says 0."""
    broken = packed(RetryInfo())
    broken.value = b"\xff"
    other = packed(BadRequest(field_violations=[BadRequest.FieldViolation(field="f", description="d" * 900)]))

    def answer(*details: object) -> Answer:
        status = Status(code=8, message="m" * 500, details=details)
        return Answer(
            code=grpc.StatusCode.RESOURCE_EXHAUSTED, trailers=(("grpc-status-details-bin", status.SerializeToString()),)
        )

    with EventsPeer() as peer, Sender(send_grpc, peer.target) as send:
        peer.answers += [
            answer(other, broken, packed(RetryInfo(retry_delay=duration(2)))),
            answer(packed(RetryInfo())),
            answer(other, broken),
            answer(packed(RetryInfo(retry_delay=duration(10**9)))),
            Answer(code=grpc.StatusCode.RESOURCE_EXHAUSTED, trailers=(("grpc-status-details-bin", b"\xff\xff"),)),
        ]
        told = [send(b"x") for _ in range(5)]
    day_ms = 24 * 60 * 60 * 1000
    assert [(one.again, one.wait_ms) for one in told] == [(True, 2000), (True, 0), (False, 0), (True, day_ms), (False, 0)]


def test_what_goes_beside_the_body(send_grpc: Path) -> None:
    """Each attempt says when it is sent and how long it will wait; the token goes along; connections are kept."""
    with EventsPeer() as peer, Sender(send_grpc, peer.target, "timeout_ms=9000", "token=s3cret") as send:
        peer.answers.append(Answer.grpc_failure(grpc.StatusCode.UNAVAILABLE))
        assert not send(b"x").sent
        assert send(b"x").sent
    first, second = peer.calls
    assert int(first.metadata[SENT_KEY]) < int(second.metadata[SENT_KEY])
    assert first.metadata["authorization"] == "Bearer s3cret"
    assert first.metadata["user-agent"] == "otel-bridge-cpp"
    assert 0 < first.time_left_s <= 9
    assert first.peer == second.peer


def test_counts_are_totals(send_grpc: Path) -> None:
    """Accepted and rejected events add up over requests, and what was rejected is said in a line that a terminal can show."""
    with EventsPeer() as peer, Sender(send_grpc, peer.target) as send:
        peer.answers += [counts(3), counts(2**40, "bad \x1b[2J", unnamed=2, not_utf8=5), Answer(body=b"\x08")]
        assert send(b"x").message == ""
        some = send(b"x")
        assert (some.accepted, some.rejected) == (3 + 2**40, 7)
        assert some.message == "7 rejected, the first: 'bad \\x1b[2J'"
        unread = send(b"x")
        assert (unread.sent, unread.accepted, unread.rejected) == (True, 3 + 2**40, 7)
        assert "cannot be read" in unread.message


def test_large_requests(send_grpc: Path) -> None:
    """A request beyond every window arrives whole; one that the server finds too large is refused while it is being sent."""
    limit = 20 << 20
    bodies = [bytes([number]) * size for number, size in enumerate((0, 1, 65_530, 65_531, 5 << 20))]
    with EventsPeer(options=[("grpc.max_receive_message_length", limit)]) as peer, Sender(send_grpc, peer.target) as send:
        assert [send(body).status for body in bodies] == ["OK"] * len(bodies)
        large = send(bytes(3 * limit))
        assert (large.status, large.again) == ("RESOURCE_EXHAUSTED", False)
        assert send(b"after").status == "OK"
    assert [one.payload for one in peer.calls] == [*bodies, b"after"]


def test_a_server_that_is_slow(send_grpc: Path) -> None:
    """When the time is over the call is, too, whichever end sees it first, and the next one is answered."""
    with EventsPeer() as peer, Sender(send_grpc, peer.target, "timeout_ms=2500") as send:
        peer.answers.append(Answer(delay_s=30))
        late = send(b"x")
        assert (late.status, late.again) == ("DEADLINE_EXCEEDED", True)
        assert send(b"y").sent


def test_a_server_that_goes_away_during_a_call(send_grpc: Path) -> None:
    """A call that loses its server is to be sent again, and arrives once the server is back on its port."""
    with EventsPeer() as peer, Sender(send_grpc, peer.target, "timeout_ms=20000") as send:
        peer.answers.append(Answer(delay_s=30))
        send.begin(b"x")
        peer.wait_for_calls(1)
        peer.go_away()
        lost = send.outcome()
        assert (lost.status, lost.again) in {("UNAVAILABLE", True), ("CANCELLED", True)}
        assert (send(b"x").status, send(b"x").status) == ("UNAVAILABLE", "UNAVAILABLE")
        peer.come_back()
        assert send(b"x").sent


def test_a_server_that_ends_connections_by_age(send_grpc: Path) -> None:
    """The GOAWAY of grpcio for old connections loses no request: every one is taken, at the first attempt of the caller."""
    options = [("grpc.max_connection_age_ms", 50), ("grpc.max_connection_age_grace_ms", 5_000)]
    with EventsPeer(options=options) as peer, Sender(send_grpc, peer.target) as send:
        sent = 0
        while len({one.peer for one in peer.calls}) < 4:
            assert send(b"%d" % sent).sent
            sent += 1
    assert [one.payload for one in peer.calls] == [b"%d" % number for number in range(sent)]


def test_a_connection_that_was_idle_for_long(send_grpc: Path) -> None:
    """A connection that was not used for longer than `idle_ms` is left for a new one."""
    with EventsPeer() as peer, Sender(send_grpc, peer.target, "idle_ms=0") as send:
        assert send(b"x").sent
        assert send(b"x").sent
    assert peer.calls[0].peer != peer.calls[1].peer


@pytest.mark.parametrize(
    ("address", "host"), [("[::1]:0", "[::1]"), ("localhost:0", "localhost"), (f"{LOOPBACK}:0", "localhost")]
)
def test_addresses(send_grpc: Path, address: str, host: str) -> None:
    """IPv6 addresses and host names lead to a server, also where only the last of a name's addresses does."""
    if address.startswith("[") and not _has_ipv6():
        pytest.skip("this machine has no IPv6 on loopback")
    with EventsPeer(address=address) as peer:
        _, _, port = peer.target.rpartition(":")
        with Sender(send_grpc, f"{host}:{port}") as send:
            assert send(b"x").sent


def _has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize(
    "target",
    [
        "",
        "localhost",
        ":4417",
        "localhost:",
        "localhost:http",
        "::1:4417",
        "[]:1",
        "localhost:65536",
        "localhost:0",
        "x" * 300 + ":1",
    ],
)
def test_targets_that_cannot_be(send_grpc: Path, target: str) -> None:
    """A target that leads nowhere is told at once, and no retry is asked for."""
    with Sender(send_grpc, target) as send:
        outcome = send(b"x")
    assert (outcome.status, outcome.sent, outcome.again) == ("INVALID_ARGUMENT", False, False)
    assert "HOST:PORT" in outcome.message


@pytest.mark.parametrize(("option", "word"), [("token=", "token"), ("token=a\nb", "token"), ("authority=a b", "authority")])
def test_options_that_cannot_be(send_grpc: Path, option: str, word: str) -> None:
    """What would not be a header is refused, not sent."""
    with Sender(send_grpc, f"{LOOPBACK}:1", option) as send:
        outcome = send(b"x")
    assert (outcome.status, outcome.again) == ("INVALID_ARGUMENT", False)
    assert word in outcome.message


def test_nobody_there(send_grpc: Path) -> None:
    """A refused connection and an unknown name may change: both are to be tried again."""
    for target, said in ((f"{LOOPBACK}:1", "refused"), ("no-such-host.invalid:4417", "looked up")):
        with Sender(send_grpc, target) as send:
            outcome = send(b"x")
        assert (outcome.status, outcome.again) == ("UNAVAILABLE", True)
        assert said in outcome.message


def test_a_port_that_does_not_answer(send_grpc: Path) -> None:
    """Connecting ends with the deadline: here a queue of connections that nobody accepts is full."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind((LOOPBACK, 0))
        listener.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        send = stack.enter_context(Sender(send_grpc, f"{LOOPBACK}:{listener.getsockname()[1]}", "timeout_ms=200"))
        outcome = send(b"x")
    assert (outcome.status, outcome.again) == ("DEADLINE_EXCEEDED", True)
