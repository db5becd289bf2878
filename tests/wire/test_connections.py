"""Connections of both doors: how many there are, and how long each may take."""

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from support.certificates import make_certificates
from support.crowds import PATIENCE_S, PREFACE, ended, post, trickle, until
from support.http import sent
from support.requests import a_request
from support.scenes import delegated

from otel_bridge.v1.profiling_pb2_grpc import ProfilingServiceStub
from otel_bridge.wire.connections import ConnectionLimits
from otel_bridge.wire.http_protocol import MAX_HEAD_BYTES
from otel_bridge.wire.tls import DoorTls, TlsFiles

REQUEST = a_request(delegated("x", 0, 1, 2))
Opened, Run = Callable[..., Any], Callable[..., Any]


def test_a_body_byte_by_byte(opened: Opened, run: Run) -> None:
    """A body over HTTP that comes too slowly is refused although something comes all the time, and its connection ends."""

    async def main() -> None:
        async with opened(body_timeout_s=2.0, read_timeout_s=60.0) as doors:
            head = post("/v1/etdump", b"").replace(b"length: 0", b"length: 10000")
            reader, writer = await sent(doors.http.address, head)

            trickling = asyncio.ensure_future(trickle(writer, b"x"))
            answer = await ended(reader)
            trickling.cancel()
            assert answer.startswith(b"HTTP/1.1 503 ")
            assert b"(ingress.body_timeout_s)" in answer
            assert doors.tally.outcomes == {"body_stalled": 1}
            writer.close()

    run(main())


@pytest.mark.parametrize(
    "start",
    [b"G", b"POST /v1/etdump HTTP/1.1\r\nhost: a\r\nx", b"\r\n", b"GET /healthz HTTP/1.1\r\n\r\nGET /"],
    ids=["a letter", "a header", "an empty line", "the second request"],
)
def test_headers_that_do_not_end(start: bytes, opened: Opened, run: Run) -> None:
    """A connection whose next request does not begin in time is closed, whatever trickles in."""

    async def main() -> None:
        async with opened(connections=ConnectionLimits(handshake_s=0.4)) as doors:
            reader, writer = await sent(doors.http.address, start)

            trickling = asyncio.ensure_future(trickle(writer, start[-1:]))
            await ended(reader)
            trickling.cancel()
            await until(lambda: doors.http.connections <= 1)  # that of the client of the tests
            assert (await doors.client.get("/healthz")).status_code == 200
            writer.close()

    run(main())


def test_headers_without_end(opened: Opened, run: Run) -> None:
    """Headers that come fast and do not end are cut off too."""

    async def main() -> None:
        async with opened() as doors:
            reader, writer = await sent(doors.http.address, b"GET /healthz HTTP/1.1\r\n")
            written = 0
            with contextlib.suppress(ConnectionError):
                while not reader.at_eof() and written < 100 * MAX_HEAD_BYTES:
                    writer.write(b"x: " + b"y" * 1000 + b"\r\n")
                    written += 1005
                    await writer.drain()
                    await asyncio.sleep(0)
            assert await ended(reader) == b""
            assert MAX_HEAD_BYTES < written < 50 * MAX_HEAD_BYTES  # what the system's buffers take in is among it

    run(main())


def test_idle_connections_end(opened: Opened, run: Run) -> None:
    """A connection without a request ends by itself, before the first one, after one, and over gRPC."""

    async def main() -> None:
        async with opened(connections=ConnectionLimits(idle_s=2.0)) as doors:
            new, used = await sent(doors.http.address, b""), await sent(doors.http.address, b"GET /healthz HTTP/1.1\r\n\r\n")
            over_grpc = await sent(doors.grpc.address, PREFACE + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
            assert await ended(new[0]) == b""
            assert (await ended(used[0])).startswith(b"HTTP/1.1 200 ")
            assert await ended(over_grpc[0])
            for _, writer in (new, used, over_grpc):
                writer.close()

    run(main())


def test_too_many_connections(opened: Opened, run: Run) -> None:
    """Connections beyond the bound are closed at once, those within it work; where one ends there is room for another."""

    async def main() -> None:
        async with opened(connections=ConnectionLimits(connections=3)) as doors:
            for address in (doors.http.address, doors.grpc.address):
                kept = [await sent(address, b"") for _ in range(3)]
                await asyncio.sleep(0.1)  # over gRPC nothing tells that they were accepted
                reader, writer = await sent(address, b"")
                assert await ended(reader) == b""
                for _, each in (*kept, (reader, writer)):
                    each.close()
            assert doors.tally.outcomes == {"turned_away": 1}
            await until(lambda: not doors.http.connections)
            assert (await doors.client.get("/healthz")).status_code == 200
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    with contextlib.suppress(grpc.aio.AioRpcError):
                        await ProfilingServiceStub(doors.channel).ExportEvents(REQUEST, wait_for_ready=True, timeout=10)
                        break

    run(main())


def test_handshakes_that_do_not_end(opened: Opened, run: Run, tmp_path: Path) -> None:
    """Half a TLS hello, or half a preface of HTTP/2, is given up in time, and counts as a connection until then."""
    made = make_certificates(tmp_path)
    trusting = ssl.create_default_context(cafile=made.authority)
    tls = DoorTls(TlsFiles(made.server, made.server_key), http_needs_certificate=False)

    async def main() -> None:
        limits = ConnectionLimits(handshake_s=1.0)
        async with opened(connections=limits, tls=tls) as doors:
            stuck = [await sent(doors.http.address, b"\x16\x03\x01"), await sent(doors.grpc.address, b"\x16\x03\x01")]
            await until(lambda: doors.http.connections)
            for reader, writer in stuck:
                await ended(reader)
                writer.close()
            await until(lambda: not doors.http.connections)
            host, port = doors.http.address.split(":")
            reader, writer = await asyncio.open_connection(host, int(port), ssl=trusting)
            writer.write(b"GET /healthz HTTP/1.1\r\nconnection: close\r\n\r\n")
            assert (await ended(reader)).startswith(b"HTTP/1.1 200 ")
            writer.close()
        async with opened(connections=limits) as doors:
            reader, writer = await sent(doors.grpc.address, PREFACE[:10])
            await ended(reader)
            writer.close()

    run(main())
