"""What holds for OTLP over gRPC and over HTTP alike, against a real back end."""

import asyncio
import gzip
import socket
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from support.certificates import Certificates
from support.otlp_answers import Answer
from support.otlp_payloads import a_payload
from support.otlp_sink import OtlpSink
from support.processes import LOOPBACK
from support.proxy import Proxy

from otel_bridge import __version__
from otel_bridge.errors import BackEndUnavailable, ConfigError
from otel_bridge.export.protocol import Exporter, Sent

Build = Callable[..., Exporter]
Send = Callable[..., Sent]
Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_bytes_arrive_as_they_are(send: Send, compression: str) -> None:
    """The payload arrives byte for byte, compressed or not, fields unknown to any schema included."""
    payload = a_payload(3, 2, attribute_bytes=500_000) + b"\xa2\x06\x03abc"  # more than a MiB
    with OtlpSink() as sink:
        assert send(sink, payload, compression=compression) == Sent()
        assert [one.payload for one in sink.received] == [payload]
        assert [span.name for span in sink.spans] == [f"span {number}" for number in range(1, 6)]


@pytest.mark.parametrize("protocol", ["http/protobuf"])
def test_zstd(send: Send) -> None:
    """Over HTTP the payload may be zstd, and arrives byte for byte."""
    payload = a_payload(200, attribute_bytes=500)
    with OtlpSink() as sink:
        assert send(sink, payload, compression="zstd") == Sent()
        (received,) = sink.received
    assert (received.payload, received.headers["content-encoding"]) == (payload, "zstd")
    assert int(received.headers["content-length"]) < len(gzip.compress(payload, 1)) < len(payload) // 10


def test_gzip_makes_less_traffic(build: Build, protocol: str, run: Run) -> None:
    """With gzip far fewer bytes cross the network than the payload has; without it, all of them do."""
    payload = a_payload(200, attribute_bytes=500)

    async def traffic(sink: OtlpSink, compression: str) -> int:
        endpoint = sink.grpc_endpoint if protocol == "grpc" else sink.http_endpoint
        proxy = Proxy(int(urlsplit(endpoint).port or 0))
        exporter = build(sink, endpoint=f"http://{await proxy.start()}", compression=compression)
        await exporter.send(payload)
        await exporter.close()
        await proxy.finish()
        return proxy.sent_bytes

    with OtlpSink() as sink:
        assert run(traffic(sink, "none")) > len(payload)
        assert run(traffic(sink, "gzip")) < len(payload) // 10
        assert [one.payload for one in sink.received] == [payload, payload]


def test_headers(send: Send) -> None:
    """Configured headers go with every request, and so does the name of this program."""
    with OtlpSink() as sink:
        send(sink, headers={"X-Api-Key": "k 1", "tenant": ""})
        headers = sink.received[0].headers
    assert (headers["x-api-key"], headers["tenant"]) == ("k 1", "")
    assert headers["user-agent"].startswith(f"otel-bridge/{__version__}")


def test_partial_success(send: Send) -> None:
    """Spans that the back end refused are counted, with its words escaped and bounded; zero with words is a warning."""
    with OtlpSink() as sink:
        sink.answers += [Answer.partial(2, "bad\nid \x1b[31m"), Answer.partial(0, "slow down"), Answer.partial(1, "x" * 5000)]
        assert send(sink) == Sent(2, r"'bad\nid \x1b[31m'")
        assert send(sink) == Sent(0, "'slow down'")
        assert len(send(sink).message) < 400
        assert send(sink) == Sent()


def test_an_answer_that_makes_no_sense(send: Send) -> None:
    """A request that was answered OK was taken, whatever the body says."""
    with OtlpSink() as sink:
        sink.answers += [Answer(body=b"\xff\xff"), Answer.partial(-5, "")]
        assert send(sink) == Sent(0, "the answer is no ExportTraceServiceResponse (2 bytes)")
        assert send(sink) == Sent()


def test_no_answer_in_time(send: Send) -> None:
    """A back end that does not answer within the timeout is unavailable."""
    with OtlpSink() as sink:
        sink.answer = Answer(delay_s=30)
        with pytest.raises(BackEndUnavailable):
            send(sink, timeout_ms=100)


@pytest.mark.parametrize("protocol", ["http/protobuf"])
def test_an_answer_that_drips(send: Send) -> None:
    """A back end that answers byte by byte, and is never done, is unavailable after the timeout as one that says nothing."""

    def drip(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):  # until nobody reads any more
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
            while True:
                connection.sendall(b"x")
                time.sleep(0.01)

    with socket.create_server((LOOPBACK, 0)) as listener, OtlpSink() as sink:
        dripping = threading.Thread(target=drip, args=(listener,))
        dripping.start()
        with pytest.raises(BackEndUnavailable, match="did not answer within"):
            send(sink, a_payload(1), endpoint=f"http://{LOOPBACK}:{listener.getsockname()[1]}", timeout_ms=300)
        dripping.join()


def test_restart(build: Build, run: Run) -> None:
    """An exporter outlives its back end: unavailable while that is away, and the same exporter sends again once it is back."""

    async def scene(sink: OtlpSink) -> None:
        exporter = build(sink)
        await exporter.send(a_payload(1))
        await asyncio.to_thread(sink.go_away)
        with pytest.raises(BackEndUnavailable):
            await exporter.send(a_payload(1))
        await asyncio.to_thread(sink.come_back)
        while len(sink.spans) < 2:  # gRPC waits before it connects again
            with suppress(BackEndUnavailable):
                await exporter.send(a_payload(1))
            await asyncio.sleep(0.05)
        await exporter.close()

    with OtlpSink() as sink:
        run(scene(sink))
        assert len(sink.spans) == 2


def test_retries_bridge_a_restart(build: Build, run: Run) -> None:
    """With retries a send that starts while the back end is away succeeds once it is back."""

    async def scene(sink: OtlpSink) -> Sent:
        await asyncio.to_thread(sink.go_away)
        exporter = build(sink, retry_max_elapsed_s=30.0, retry_initial_s=0.05, retry_max_s=0.2)
        sending = asyncio.create_task(exporter.send(a_payload(4)))
        await asyncio.sleep(0.1)
        assert not sending.done()
        await asyncio.to_thread(sink.come_back)
        sent = await sending
        await exporter.close()
        return sent

    with OtlpSink() as sink:
        assert run(scene(sink)) == Sent()
        assert len(sink.spans) == 4


def test_close_ends_a_request(build: Build, run: Run) -> None:
    """A request under way when the exporter is closed fails as unavailable; its task is not taken for cancelled."""

    async def scene(sink: OtlpSink) -> None:
        exporter = build(sink)
        sending = asyncio.create_task(exporter.send(a_payload(1)))
        await asyncio.to_thread(sink.wait_for_requests, 1)
        await exporter.close()
        with pytest.raises(BackEndUnavailable):
            await sending

    with OtlpSink() as sink:
        sink.answer = Answer(delay_s=30)
        run(scene(sink))


def test_cancellation_ends_a_request(build: Build, run: Run) -> None:
    """A cancelled send ends at once as cancelled, and the exporter still works."""

    async def scene(sink: OtlpSink) -> None:
        exporter = build(sink)
        sending = asyncio.create_task(exporter.send(a_payload(1)))
        await asyncio.to_thread(sink.wait_for_requests, 1)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        assert await exporter.send(a_payload(1)) == Sent()
        await exporter.close()

    with OtlpSink() as sink:
        sink.answers += [Answer(delay_s=30)]
        run(scene(sink))


def test_tls(send: Send, certificates: Certificates) -> None:
    """A server that the configured authority vouches for is trusted."""
    with OtlpSink(tls=certificates) as sink:
        assert send(sink, a_payload(1), certificate=certificates.authority) == Sent()
        assert len(sink.spans) == 1


def test_mutual_tls(send: Send, certificates: Certificates) -> None:
    """A server that asks for a certificate gets the client's; without one there is no connection."""
    with OtlpSink(tls=certificates, client_must_show=True) as sink:
        shown = {"client_key": certificates.client_key, "client_certificate": certificates.client}
        assert send(sink, a_payload(1), certificate=certificates.authority, **shown) == Sent()
        with pytest.raises(BackEndUnavailable):
            send(sink, a_payload(1), certificate=certificates.authority)
        assert len(sink.spans) == 1


def test_wrong_authority(send: Send, certificates: Certificates, foreign_authority: Path) -> None:
    """A server that another authority vouches for gets nothing."""
    with OtlpSink(tls=certificates) as sink:
        for settings in ({"certificate": foreign_authority}, {}):
            with pytest.raises(BackEndUnavailable, match=r"(?i)certificate"):
                send(sink, a_payload(1), **settings)
        assert sink.received == []


def test_certificates_are_checked_at_start(send: Send, certificates: Certificates, tmp_path: Path) -> None:
    """A file without a certificate, a key that belongs to another and an encrypted key are refused before anything is sent."""
    rubbish = tmp_path / "rubbish.pem"
    rubbish.write_text("-----BEGIN CERTIFICATE-----\n")
    encrypted = tmp_path / "encrypted.pem"
    encrypted.write_text("-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n")
    with OtlpSink(tls=certificates) as sink:
        with pytest.raises(ConfigError, match=r"export.certificate .* holds no certificate in PEM form"):
            send(sink, certificate=rubbish)
        for key in (certificates.server_key, encrypted):
            with pytest.raises(ConfigError, match="must be a certificate and its private key"):
                send(sink, client_key=key, client_certificate=certificates.client)


def test_too_large_is_halved(send: Send) -> None:
    """What is over the back end's limit arrives in parts; a span that alone is over it is rejected, its neighbours are not."""
    payload = a_payload(5, 6, attribute_bytes=20_000) + a_payload(1, attribute_bytes=150_000)
    with OtlpSink(max_request_bytes=100_000) as sink:
        sent = send(sink, payload, max_request_bytes=1 << 20)
        assert sent.rejected_spans == 1
        assert "too large" in sent.message or "larger than max" in sent.message
        assert [span.name for span in sink.spans] == [f"span {number}" for number in range(1, 12)]
