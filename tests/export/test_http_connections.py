"""What the way out over HTTP makes of its connections."""

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest
from support.certificates import Certificates
from support.otlp_payloads import a_payload
from support.otlp_sink import OtlpSink
from support.processes import LOOPBACK
from support.proxy import Proxy

from otel_bridge.errors import BackEndUnavailable, ConfigError, ExportRejected
from otel_bridge.export import otlp_http
from otel_bridge.export.otlp_http import OtlpHttp
from otel_bridge.export.protocol import TOO_LARGE, Sent
from otel_bridge.export.tls import TlsFiles, watch_context

Run = Callable[[Coroutine[Any, Any, Any]], Any]

LARGE = 64 << 20
"""Bytes of a request that no kernel takes as a whole from a client whose server does not read."""


def test_an_answer_before_the_body(run: Run) -> None:
    """A back end that refuses by the headers, and reads no more, is heard: what it refuses it need not take first."""
    done = threading.Event()

    def refuse(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            while b"\r\n\r\n" not in connection.recv(65_536, socket.MSG_PEEK):
                pass
            connection.sendall(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n")
            done.wait(30)

    async def scene(endpoint: str) -> None:
        exporter = OtlpHttp(endpoint)
        with pytest.raises(ExportRejected, match="answered HTTP 413") as caught:
            await exporter.send(bytes(LARGE))
        await exporter.close()
        assert caught.value.reason == TOO_LARGE

    with socket.create_server((LOOPBACK, 0)) as listener:
        refusing = threading.Thread(target=refuse, args=(listener,))
        refusing.start()
        try:
            run(scene(f"http://{LOOPBACK}:{listener.getsockname()[1]}"))
        finally:
            done.set()
            refusing.join()


def test_a_back_end_that_hangs_up_between_requests(run: Run) -> None:
    """The next request goes by a new connection, and nothing of it is told."""

    async def scene(sink: OtlpSink) -> None:
        exporter = OtlpHttp(sink.http_endpoint)
        for _ in range(3):
            assert await exporter.send(a_payload(1)) == Sent()
            await asyncio.to_thread(sink.go_away)
            await asyncio.to_thread(sink.come_back)
        await exporter.close()

    with OtlpSink() as sink:
        run(scene(sink))
        assert len(sink.spans) == 3


def test_a_connection_that_was_idle_for_long(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection serves one request after the other, and none once it was idle for longer than a server may wait."""

    async def connections(sink: OtlpSink) -> int:
        proxy = Proxy(sink.ports[1])
        exporter = OtlpHttp(f"http://{await proxy.start()}")
        for _ in range(3):
            await exporter.send(a_payload(1))
        await exporter.close()
        await proxy.finish()
        return len(proxy._connections)

    with OtlpSink() as sink:
        assert run(connections(sink)) == 1
        monkeypatch.setattr(otlp_http, "_IDLE_S", 0.0)
        assert run(connections(sink)) == 3


def test_what_is_not_taken_is_let_go(run: Run) -> None:
    """A back end that stops reading, and later goes on, gets no more of a request that was given up: none of it was kept."""

    async def scene(listener: socket.socket) -> int:
        exporter = OtlpHttp(f"http://{LOOPBACK}:{listener.getsockname()[1]}", timeout_s=0.5)
        with pytest.raises(BackEndUnavailable, match="did not answer within"):
            await exporter.send(bytes(LARGE))
        taken = await asyncio.to_thread(read_to_the_end, listener)
        await exporter.close()
        return taken

    def read_to_the_end(listener: socket.socket) -> int:
        connection, _ = listener.accept()
        connection.settimeout(20)
        taken = 0
        with connection, suppress(ConnectionResetError):
            while chunk := connection.recv(1 << 20):
                taken += len(chunk)
        return taken

    with socket.create_server((LOOPBACK, 0)) as listener:
        assert run(scene(listener)) < LARGE


def test_close_waits_for_nobody(run: Run) -> None:
    """The exporter is closed at once, and requests under way fail, even where the back end does not read what it is sent."""

    async def scene(listener: socket.socket) -> None:
        exporter = OtlpHttp(f"http://{LOOPBACK}:{listener.getsockname()[1]}", timeout_s=600.0)
        sending = asyncio.create_task(exporter.send(bytes(LARGE)))
        connection, _ = await asyncio.to_thread(listener.accept)
        with connection:
            await asyncio.to_thread(connection.recv, 1)
            async with asyncio.timeout(20):
                await exporter.close()
                with pytest.raises(BackEndUnavailable):
                    await sending

    with socket.create_server((LOOPBACK, 0)) as listener:
        run(scene(listener))


def test_many_requests_at_once(run: Run) -> None:
    """As many are under way as are sent: none waits for the connection of another."""
    count, arrived = 150, []

    async def scene() -> None:
        all_there = asyncio.Event()

        async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            arrived.append(await reader.readuntil(b"\r\n\r\n"))
            if len(arrived) == count:
                all_there.set()
            await reader.read()  # until the client goes
            writer.close()

        server = await asyncio.start_server(hold, LOOPBACK, 0, backlog=count)
        exporter = OtlpHttp(f"http://{LOOPBACK}:{server.sockets[0].getsockname()[1]}", timeout_s=60.0)
        sending = [asyncio.create_task(exporter.send(a_payload(1))) for _ in range(count)]
        try:
            async with asyncio.timeout(30):
                await all_there.wait()
        finally:
            await exporter.close()
            answers = await asyncio.gather(*sending, return_exceptions=True)
            server.close()
        assert all(isinstance(each, BackEndUnavailable) for each in answers)

    run(scene())
    assert len(arrived) == count


def test_what_is_spoken_is_said(run: Run, certificates: Certificates) -> None:
    """On a port that has several protocols TLS says which one is meant."""
    spoken: list[str | None] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server, certificates.server_key)
    context.set_alpn_protocols(["h2", "http/1.1"])

    def note(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        connection.settimeout(20)
        with context.wrap_socket(connection, server_side=True) as secured:
            spoken.append(secured.selected_alpn_protocol())

    tls = watch_context(TlsFiles(certificates.authority))

    async def scene(endpoint: str) -> None:
        exporter = OtlpHttp(endpoint, tls=tls)
        with pytest.raises(BackEndUnavailable):
            await exporter.send(a_payload(1))
        await exporter.close()

    with socket.create_server((LOOPBACK, 0)) as listener:
        noting = threading.Thread(target=note, args=(listener,))
        noting.start()
        run(scene(f"https://{LOOPBACK}:{listener.getsockname()[1]}"))
        noting.join()
    assert spoken == ["http/1.1"]


@pytest.mark.parametrize("host", ["a..b", "a" * 64 + ".example.com"])
def test_a_host_that_is_no_name(host: str) -> None:
    """It is told at the start: no look-up would ever find it."""
    with pytest.raises(ConfigError, match="is no URL"):
        OtlpHttp(f"http://{host}:4318/v1/traces")
