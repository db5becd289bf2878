"""What the way out over HTTP makes of its connections."""

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from support.otlp_payloads import a_payload
from support.otlp_sink import OtlpSink
from support.processes import LOOPBACK
from support.proxy import Proxy

from otel_bridge.errors import BackEndUnavailable, ExportRejected
from otel_bridge.export import otlp_http
from otel_bridge.export.otlp_http import OtlpHttp
from otel_bridge.export.protocol import TOO_LARGE, Sent

Run = Callable[[Coroutine[Any, Any, Any]], Any]


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
            await exporter.send(bytes(32 << 20))
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
