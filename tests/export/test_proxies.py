"""The way through a proxy, as the environment has it."""

import base64
from collections.abc import Callable, Iterator

import pytest
from support.certificates import Certificates
from support.forward_proxy import ForwardProxy
from support.otlp_payloads import a_payload
from support.otlp_sink import OtlpSink

from otel_bridge.errors import BackEndUnavailable, ConfigError
from otel_bridge.export.protocol import Sent
from otel_bridge.export.proxies import find_proxy

Send = Callable[..., Sent]

over_http = pytest.mark.parametrize("protocol", ["http/protobuf"])


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """That of the test, without the proxies that this machine may have."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    return monkeypatch


@pytest.fixture
def proxy() -> Iterator[ForwardProxy]:
    with ForwardProxy() as running:
        yield running


@over_http
def test_plain_text(send: Send, proxy: ForwardProxy, environment: pytest.MonkeyPatch) -> None:
    """A request to `http://` is passed on by the proxy. The credentials in its URL are shown to it, and not to the back end."""
    environment.setenv("http_proxy", f"http://user:secret@{proxy.address}")
    with OtlpSink() as sink:
        assert send(sink, a_payload(1)) == Sent()
        (received,) = sink.received
    (head,) = proxy.heads
    assert head.startswith(f"POST {sink.http_endpoint} HTTP/1.1\r\n".encode())
    assert f"Basic {base64.b64encode(b'user:secret').decode()}".encode() in head
    assert "authorization" not in received.headers


@over_http
def test_tls(send: Send, proxy: ForwardProxy, environment: pytest.MonkeyPatch, certificates: Certificates) -> None:
    """A request to `https://` goes through a tunnel: the proxy learns where to, and neither keys nor spans."""
    environment.setenv("HTTPS_PROXY", proxy.address)
    with OtlpSink(tls=certificates) as sink:
        assert send(sink, a_payload(1), certificate=certificates.authority, headers={"x-key": "secret"}) == Sent()
        assert sink.received[0].headers["x-key"] == "secret"
    (head,) = proxy.heads
    assert head.startswith(f"CONNECT 127.0.0.1:{sink.ports[1]} HTTP/1.1\r\n".encode())
    assert b"secret" not in head


@over_http
def test_no_proxy(send: Send, proxy: ForwardProxy, environment: pytest.MonkeyPatch) -> None:
    """A host that `no_proxy` names is asked directly."""
    environment.setenv("http_proxy", f"http://{proxy.address}")
    environment.setenv("no_proxy", "localhost,127.0.0.1")
    with OtlpSink() as sink:
        assert send(sink, a_payload(1)) == Sent()
    assert proxy.heads == []


REFUSALS = {
    b"HTTP/1.1 407 Say who you are\r\ncontent-length: 0\r\n\r\n": "the proxy answered HTTP 407; set its name and password",
    b"HTTP/1.1 403 No\r\ncontent-length: 0\r\n\r\n": "the proxy answered HTTP 403",
    b"SSH-2.0\r\n\r\n": "the answer is not HTTP",
    b"": "Server disconnected",
}


@over_http
@pytest.mark.parametrize("answer", REFUSALS)
def test_a_proxy_that_refuses_a_tunnel(
    send: Send, environment: pytest.MonkeyPatch, certificates: Certificates, answer: bytes
) -> None:
    """A retry may help. The error tells which proxy it is and what it said, and not the password."""
    with ForwardProxy(answer) as refusing, OtlpSink(tls=certificates) as sink:
        environment.setenv("https_proxy", f"http://user:secret@{refusing.address}")
        with pytest.raises(BackEndUnavailable, match=f"through the proxy {refusing.address}: .*{REFUSALS[answer]}") as caught:
            send(sink, a_payload(1), certificate=certificates.authority)
    assert "secret" not in str(caught.value)


@over_http
def test_a_proxy_that_asks_who_it_is(send: Send, environment: pytest.MonkeyPatch) -> None:
    """It speaks for itself, not for the back end, which has refused nothing: a retry may help, as with a tunnel."""
    answer = next(iter(REFUSALS))
    with ForwardProxy(answer) as refusing, OtlpSink() as sink:
        environment.setenv("http_proxy", f"http://user:secret@{refusing.address}")
        with pytest.raises(BackEndUnavailable, match=f"through the proxy {refusing.address}: {REFUSALS[answer]}") as caught:
            send(sink, a_payload(1))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("variables", "url", "proxy"),
    [
        ({}, "http://tempo:4318/v1/traces", None),
        ({"http_proxy": "http://p:1"}, "http://tempo:4318/v1/traces", "http://p:1"),
        ({"http_proxy": "http://p:1"}, "https://tempo/v1/traces", None),
        ({"https_proxy": "p:1"}, "https://tempo/v1/traces", "http://p:1"),
        ({"all_proxy": "https://p:1"}, "http://tempo:4318/v1/traces", "https://p:1"),
        ({"all_proxy": "http://p:1", "http_proxy": "http://q:2"}, "http://tempo:4318/v1/traces", "http://q:2"),
        ({"http_proxy": ""}, "http://tempo:4318/v1/traces", None),
        ({"http_proxy": "http://p:1", "no_proxy": "*"}, "http://tempo:4318/v1/traces", None),
        ({"http_proxy": "http://p:1", "no_proxy": ".example.com"}, "http://tempo.example.com/v1/traces", None),
        ({"http_proxy": "http://p:1", "no_proxy": "tempo:4318"}, "http://tempo:4318/v1/traces", None),
        ({"http_proxy": "http://p:1", "no_proxy": "tempo:4318"}, "http://tempo:80/v1/traces", "http://p:1"),
        ({"http_proxy": "http://p:1", "no_proxy": "localhost,::1"}, "http://[::1]:4318/v1/traces", None),
        ({"http_proxy": "http://p:1", "no_proxy": "[::1]"}, "http://[::1]:4318/v1/traces", None),
        ({"http_proxy": "http://p:1", "no_proxy": "::1"}, "http://[::2]:4318/v1/traces", "http://p:1"),
        ({"all_proxy": "socks5://p:1", "no_proxy": "tempo"}, "http://tempo/v1/traces", None),
    ],
)
def test_which_one(environment: pytest.MonkeyPatch, variables: dict[str, str], url: str, proxy: str | None) -> None:
    """The variable of the scheme counts, else that for all; what `no_proxy` names is asked directly."""
    for name, value in variables.items():
        environment.setenv(name, value)
    assert find_proxy(url) == proxy


@over_http
@pytest.mark.parametrize(
    "value",
    ["socks5://u:secret@p:1", "http://u:secret@p:0", "http://u:secret@p:x", "http://u:secret@", "http://u:secret@p..q:1"],
)
def test_a_proxy_that_is_not_spoken(send: Send, environment: pytest.MonkeyPatch, value: str) -> None:
    """It is told at the start, by the name of the variable, and not shown: it may hold a password."""
    environment.setenv("all_proxy", value)
    with (
        OtlpSink() as sink,
        pytest.raises(ConfigError, match=r"^all_proxy in the environment, used for 127\.0\.0\.1") as caught,
    ):
        send(sink)
    assert "secret" not in str(caught.value)
