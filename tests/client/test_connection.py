"""A connection: addresses, credentials, and what an answer means."""

from pathlib import Path

import grpc
import pytest
from support.certificates import Certificates, make_certificates
from support.faulty_bridge import FaultyBridge
from support.otlp_answers import Answer

from otel_bridge.client.connection import NO_RETRY, TOO_LARGE, UNREACHABLE, Connection
from otel_bridge.errors import BridgeRefused, BridgeUnavailable, ConfigError, MalformedRequest
from otel_bridge.export.otlp_grpc import VERDICTS, Verdict
from otel_bridge.export.retry import RetryPolicy
from otel_bridge.v1 import mapping_pb2 as pb
from otel_bridge.wire.status import status_of

WORD = "s3cret"
QUICK = RetryPolicy(initial_s=0.01, max_s=0.01, max_elapsed_s=30.0)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """One authority for all tests."""
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def ask(connection: Connection, retry: RetryPolicy = NO_RETRY) -> pb.SetAliasResponse:
    return connection.call(connection.mappings.SetAlias, pb.SetAliasRequest(name="net"), retry=retry, timeout_s=10)


@pytest.mark.parametrize(
    "server", ["", "host", "host:0", "host:65536", "ftp://host:1", "host:1/x", "a b:1", "::1:4417", "http://"]
)
def test_addresses_that_are_none(server: str) -> None:
    """What is not an address is refused at once, with an example of one."""
    with pytest.raises(ConfigError, match="must be HOST:PORT"):
        Connection(server)


@pytest.mark.parametrize(
    ("server", "is_allowed"),
    [
        ("127.0.0.1:4417", True),
        ("127.8.9.1:4417", True),
        ("localhost:4417", True),
        ("[::1]:4417", True),
        ("https://bridge.example:4417", True),
        ("http://bridge.example:4417", False),
        ("localhost.example:4417", False),
        ("10.0.0.1:4417", False),
    ],
)
def test_a_token_does_not_travel_in_plain_text(server: str, *, is_allowed: bool) -> None:
    """Without TLS a token goes to this machine only, unless the user says so; the refusal does not show it."""
    if is_allowed:
        Connection(server, token=WORD)
        return
    with pytest.raises(ConfigError, match="in plain text") as caught:
        Connection(server, token=WORD)
    assert WORD not in str(caught.value)
    Connection(server, token=WORD, plain_token=True)


def test_what_does_not_fit(certificates: Certificates, tmp_path: Path) -> None:
    """A token that is none, half a pair, files that are no certificates, and TLS files for plain text are refused by name."""
    empty = tmp_path / "empty"
    empty.write_text("\n")
    for token in ("", "two words", "tök", "line\n", empty, tmp_path / "absent"):
        with pytest.raises(ConfigError, match="token"):
            Connection("localhost:1", token=token)
    for files in ({"cert": certificates.client}, {"key": certificates.client_key}, {"ca": empty}, {"ca": tmp_path / "absent"}):
        with pytest.raises(ConfigError, match=r"^(ca|cert) "):
            Connection("localhost:1", **files)
    with pytest.raises(ConfigError, match="http:// is plain text"):
        Connection("http://localhost:1", ca=certificates.authority)


def test_tls_and_token(certificates: Certificates) -> None:
    """Over TLS, with a certificate of its own, a call arrives with the bearer token and the time of sending beside it."""
    with FaultyBridge(tls=certificates, client_must_show=True) as bridge:
        own = {"cert": certificates.client, "key": certificates.client_key}
        with Connection(bridge.address, token=WORD, ca=certificates.authority, **own, gzip=True) as connection:
            ask(connection)
        with (
            Connection(f"https://{bridge.address}", ca=certificates.authority) as stranger,
            pytest.raises(BridgeUnavailable) as caught,
        ):
            ask(stranger)
    (call,) = bridge.received
    assert call.metadata["authorization"] == f"Bearer {WORD}"
    assert call.metadata["otel-bridge-sent-unix-ns"].isdecimal()
    assert pb.SetAliasRequest.FromString(call.body).name == "net"
    assert caught.value.reason == UNREACHABLE


def test_a_stranger_is_not_trusted(certificates: Certificates, tmp_path: Path) -> None:
    """A bridge whose certificate another authority signed gets no call, and no token."""
    other = make_certificates(tmp_path, name="other")
    with FaultyBridge(tls=certificates) as bridge, Connection(bridge.address, token=WORD, ca=other.authority) as connection:
        with pytest.raises(BridgeUnavailable):
            ask(connection)
        assert bridge.received == []


def test_a_token_in_a_file_is_read_again(bridge: FaultyBridge, tmp_path: Path) -> None:
    """The file's token as it is at each attempt; while the file is gone or empty, the last one."""
    path = tmp_path / "token"
    path.write_text("first\n")
    with Connection(bridge.address, token=path) as connection:
        ask(connection)
        path.write_text("second, no")
        ask(connection)
        path.write_text("third\n")
        ask(connection)
        path.unlink()
        ask(connection)
    assert [call.metadata["authorization"].split()[1] for call in bridge.received] == ["first", "first", "third", "third"]


@pytest.mark.parametrize("code", VERDICTS, ids=lambda code: code.name)
def test_what_a_code_means(bridge: FaultyBridge, code: grpc.StatusCode) -> None:
    """By the table of the OTLP specification; RESOURCE_EXHAUSTED without a time to wait means that the request is too large."""
    bridge.answer = Answer.grpc_failure(code, "no\nsuch")
    with Connection(bridge.address) as connection, pytest.raises((BridgeRefused, BridgeUnavailable)) as caught:
        ask(connection)
    error = caught.value
    assert isinstance(error, BridgeUnavailable) == (VERDICTS[code] is Verdict.RETRY)
    assert str(error) == f"the bridge at {bridge.address} answered {code.name}: no\\nsuch"
    assert (error.code, error.reason == TOO_LARGE) == (code.name, code is grpc.StatusCode.RESOURCE_EXHAUSTED)


def test_a_call_is_made_again(bridge: FaultyBridge) -> None:
    """As often as the policy allows, with a new time of sending, after the wait that the bridge names or one of our own."""
    exhausted, away = grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE
    bridge.answers += [Answer.grpc_failure(exhausted, retry_after_s=7.0), Answer.grpc_failure(away)]
    waits: list[float] = []
    with Connection(bridge.address) as connection:
        method, request = connection.mappings.SetAlias, pb.SetAliasRequest(name="net")
        connection.call(method, request, retry=QUICK, sleep=waits.append)
    assert waits[0] == 7.0
    assert 0 <= waits[1] <= QUICK.max_s
    assert len({call.metadata["otel-bridge-sent-unix-ns"] for call in bridge.received}) == 3
    assert len({call.body for call in bridge.received}) == 1


def test_a_policy_ends(bridge: FaultyBridge) -> None:
    """A wait that would pass the policy's end is not begun: the last error is raised."""
    bridge.answer = Answer.grpc_failure(grpc.StatusCode.UNAVAILABLE, "full", retry_after_s=60.0)
    with Connection(bridge.address) as connection, pytest.raises(BridgeUnavailable, match="full") as caught:
        ask(connection, QUICK)
    assert caught.value.retry_after_s == 60.0
    assert len(bridge.received) == 1


def test_the_bridges_own_reason(bridge: FaultyBridge) -> None:
    """The reason in the answer's `ErrorInfo` is the reason of the error."""
    details = status_of(MalformedRequest("stream: is not set")).SerializeToString()
    bridge.answer = Answer(code=grpc.StatusCode.INVALID_ARGUMENT, trailers=(("grpc-status-details-bin", details),))
    with Connection(bridge.address) as connection, pytest.raises(BridgeRefused) as caught:
        ask(connection)
    assert caught.value.reason == MalformedRequest.reason


def test_a_bridge_that_comes_back(bridge: FaultyBridge) -> None:
    """One connection lives through the absence of its bridge."""
    with Connection(bridge.address) as connection:
        bridge.go_away()
        with pytest.raises(BridgeUnavailable) as caught:
            ask(connection)
        assert caught.value.reason == UNREACHABLE
        bridge.come_back()
        ask(connection, RetryPolicy(initial_s=0.1, max_s=0.1, max_elapsed_s=30.0))
