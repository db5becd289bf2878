"""Both doors with more asked of them than they bear: what is told, and that the next request is taken."""

import asyncio
import contextlib
import ssl
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_status import rpc_status
from support.certificates import make_certificates
from support.crowds import PREFACE, half_a_message, post
from support.http import DUMP, sent, the_fault
from support.requests import a_request
from support.scenes import delegated

from otel_bridge.v1 import profiling_pb2 as pb
from otel_bridge.v1.profiling_pb2_grpc import ProfilingServiceStub
from otel_bridge.wire import lookers
from otel_bridge.wire.connections import MAX_HEAD_BYTES, ConnectionLimits
from otel_bridge.wire.servicers import PROFILING
from otel_bridge.wire.tls import DoorTls, TlsFiles
from otel_bridge.wire.turnstile import Limits, Memory

EXPORT = f"/{PROFILING}/ExportEvents"
REQUEST = a_request(delegated("x", 0, 1, 2))
BODY = REQUEST.SerializeToString()
Opened, Run = Callable[..., Any], Callable[..., Any]


def told(error: grpc.aio.AioRpcError) -> tuple[str, float]:
    """The reason, and how long to wait."""
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    info, retry = ErrorInfo(), RetryInfo()
    status = rpc_status.from_call(error)  # type: ignore[arg-type]  # the stubs know synchronous calls only
    assert status is not None
    status.details[0].Unpack(info)
    status.details[1].Unpack(retry)
    return info.reason, retry.retry_delay.ToNanoseconds() / 1e9


async def refused(call: Any) -> grpc.aio.AioRpcError:
    """The error of a call that fails."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value


async def raw_call(address: str, size: int = 1000) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A call of gRPC whose message does not end."""
    return await sent(address, half_a_message(EXPORT, size + 1000))


async def ended(reader: asyncio.StreamReader) -> bytes:
    """What came until the other side closed the connection."""
    with contextlib.suppress(ConnectionError):
        return await asyncio.wait_for(reader.read(), 20)
    return b""


async def until(holds: Callable[[], object]) -> None:
    """Wait until something holds that nothing tells of."""
    while not holds():  # noqa: ASYNC110 - see above
        await asyncio.sleep(0.01)


async def trickle(writer: asyncio.StreamWriter, byte: bytes) -> None:
    """Write a byte now and then, until the connection is closed."""
    with contextlib.suppress(OSError, RuntimeError):  # as uvloop says it
        while not writer.is_closing():
            writer.write(byte)
            await asyncio.sleep(0.05)


def test_a_full_bridge(opened: Opened, run: Run) -> None:
    """With as many requests inside and waiting as may be, the next is told to come again, by either door; health answers."""

    async def main() -> None:
        async with opened(limits=Limits(requests=1, waiting=0)) as doors:
            with await doors.turnstile.enter():
                waits = []
                for _ in range(20):
                    reason, wait_s = told(await refused(ProfilingServiceStub(doors.channel).ExportEvents(REQUEST)))
                    assert reason == "OVERLOADED"
                    waits.append(wait_s)
                assert 5.0 <= min(waits) < max(waits) <= 7.5
                answer = await doors.client.post("/v1/etdump", content=DUMP)
                assert the_fault(answer, 503)["reason"] == "overloaded"
                assert answer.headers["retry-after"] in {"6", "7", "8"}
                assert (await doors.client.get("/v1/mappings")).status_code == 503
                assert [(await doors.client.get(path)).status_code for path in ("/healthz", "/readyz", "/metrics")] == [200] * 3
                await health_pb2_grpc.HealthStub(doors.channel).Check(health_pb2.HealthCheckRequest())
            assert (await doors.client.post("/v1/etdump", content=DUMP)).status_code == 200
            assert (await ProfilingServiceStub(doors.channel).ExportEvents(REQUEST)).accepted == 1
            assert doors.tally.outcomes == {"overloaded": 22, "ok": 2}
            assert doors.turnstile.requests == 0

    run(main())


def test_a_refused_message_is_not_read(opened: Opened, run: Run) -> None:
    """Who is turned away is told before the message is there."""

    async def main() -> None:
        async with opened(limits=Limits(requests=1, waiting=0)) as doors:
            with await doors.turnstile.enter():
                _, writer = await raw_call(doors.grpc.address, 1 << 19)
                await doors.tally.heard("overloaded")
                _, other = await sent(doors.http.address, post("/v1/events", b"")[:-2].replace(b"length: 0", b"length: 9"))
                other.write(b"\r\n")
                writer.close()
                other.close()

    run(main())


def test_memory_runs_short(opened: Opened, run: Run) -> None:
    """Where memory runs short, messages on their way are turned away, and new requests too; once it fell all are taken."""
    used = [0]

    async def main() -> None:
        async with opened(memory=Memory(100, lambda: used[0])) as doors:
            _, writer = await raw_call(doors.grpc.address)
            await until(lambda: doors.turnstile.requests)
            used[0] = 101
            await doors.tally.heard("memory_limit")
            await until(lambda: not doors.turnstile.requests)
            reason, _ = told(await refused(ProfilingServiceStub(doors.channel).ExportEvents(REQUEST)))
            assert reason == "MEMORY_LIMIT"
            assert the_fault(await doors.client.post("/v1/etdump", content=DUMP), 503)["reason"] == "memory_limit"
            await health_pb2_grpc.HealthStub(doors.channel).Check(health_pb2.HealthCheckRequest())
            used[0] = 0
            while (await doors.client.post("/v1/events", content=BODY)).status_code != 200:  # noqa: ASYNC110 - asks the bridge
                await asyncio.sleep(0.01)
            writer.close()

    run(main())


def test_a_message_that_does_not_end(opened: Opened, run: Run) -> None:
    """A message over gRPC that is not there in time is turned away, counted, and leaves the turnstile."""

    async def main() -> None:
        async with opened(body_timeout_s=0.2) as doors:
            calls = [await raw_call(doors.grpc.address) for _ in range(5)]
            await until(lambda: doors.tally.outcomes["body_stalled"] == 5)
            await until(lambda: not doors.turnstile.requests)
            assert (await ProfilingServiceStub(doors.channel).ExportEvents(REQUEST)).accepted == 1
            for _, writer in calls:
                writer.close()

    run(main())


def test_a_body_byte_by_byte(opened: Opened, run: Run) -> None:
    """A body over HTTP that comes too slowly is refused although something comes all the time, and its connection ends."""

    async def main() -> None:
        async with opened(body_timeout_s=0.5, read_timeout_s=0.4) as doors:
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
        async with opened(connections=ConnectionLimits(idle_s=1.0)) as doors:
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
        limits = ConnectionLimits(handshake_s=0.5)
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


def test_a_bomb_over_grpc(opened: Opened, run: Run) -> None:
    """A message that gzip makes small is bounded by what it becomes; nothing of it is kept, and the connection goes on."""

    async def main() -> None:
        async with opened(limit_bytes=1 << 20) as doors:
            stub = ProfilingServiceStub(doors.channel)
            bomb = pb.ExportEventsRequest(metadata=[bytes(32 << 20)])
            assert len(zlib.compress(bomb.SerializeToString())) < 1 << 16
            error = await refused(stub.ExportEvents(bomb, compression=grpc.Compression.Gzip))
            assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert (await stub.ExportEvents(REQUEST, compression=grpc.Compression.Gzip)).accepted == 1
            assert doors.turnstile.size_bytes == doors.turnstile.requests == 0

    run(main())


def test_bodies_together(opened: Opened, run: Run) -> None:
    """Bodies that are small each, and too large together, are taken as far as there is room: the others are told to wait."""

    async def main() -> None:
        async with opened(limit_bytes=8 << 20, spool_bytes=100 << 20, limits=Limits(size_bytes=1 << 20)) as doors:
            request = a_request(delegated("x", 0, 1, 2))
            request.metadata.append(bytes(600_000))
            stub = ProfilingServiceStub(doors.channel)
            with await doors.turnstile.enter() as other:
                other.resize(600_000)
                assert told(await refused(stub.ExportEvents(request)))[0] == "OVERLOADED"
                answer = await doors.client.post("/v1/events", content=request.SerializeToString())
                assert answer.status_code == 503
            assert (await stub.ExportEvents(request)).accepted == 1
            assert (await doors.client.post("/v1/events", content=request.SerializeToString())).status_code == 200

    run(main())


def test_a_length_that_is_too_much(opened: Opened, run: Run) -> None:
    """A body whose header says that it is over the limit is refused before it comes."""

    async def main() -> None:
        async with opened(limit_bytes=1 << 20) as doors:
            head = post("/v1/etdump", b"").replace(b"content-length: 0", b"content-length: 1048577")
            reader, writer = await sent(doors.http.address, head)
            assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 413 ")
            writer.close()

    run(main())


def test_nobody_waits(opened: Opened, run: Run) -> None:
    """A request whose deadline passes while it waits to be let in, or whose client goes, is not kept, and is counted once."""

    async def main() -> None:
        async with opened(limits=Limits(requests=1, wait_s=60)) as doors:
            stub = ProfilingServiceStub(doors.channel)
            with await doors.turnstile.enter():
                error = await refused(stub.ExportEvents(REQUEST, timeout=0.2))
                assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
                await doors.tally.heard("disconnected")
                _, writer = await sent(doors.http.address, post("/v1/events", BODY))
                await until(lambda: doors.turnstile.waiting)
                writer.close()
                await until(lambda: not doors.http.connections)
            await until(lambda: doors.tally.outcomes["disconnected"] == 2)
            assert (doors.outlet.events, doors.tally.taken) == (0, 0)
            assert (await stub.ExportEvents(REQUEST)).accepted == 1

    run(main())


def test_lookers_are_bounded(opened: Opened, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many watch health; the next is told to come again, and events are taken all the same."""
    monkeypatch.setattr(lookers, "MAX_OPEN", 3)

    async def main() -> None:
        async with opened() as doors:
            health = health_pb2_grpc.HealthStub(doors.channel)
            watching = [health.Watch(health_pb2.HealthCheckRequest()) for _ in range(3)]
            for each in watching:
                await each.read()
            assert told(await refused(health.Watch(health_pb2.HealthCheckRequest()).read()))[0] == "OVERLOADED"
            assert (await ProfilingServiceStub(doors.channel).ExportEvents(REQUEST)).accepted == 1
            for each in watching:
                each.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching[0].read()
            while True:
                with contextlib.suppress(grpc.aio.AioRpcError):
                    await health.Check(health_pb2.HealthCheckRequest())
                    break

    run(main())
