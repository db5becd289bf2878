"""One connection over HTTP whose client does what no other does: it is bounded, or served all the same."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

import pytest
from support.crowds import PREFACE, ended, pipelined, post, trickle, until
from support.http import DUMP, sent
from support.requests import a_request
from support.scenes import delegated

from otel_bridge.wire.connections import ConnectionLimits
from otel_bridge.wire.exchange import IS_GONE
from otel_bridge.wire.http_door import HttpDoor
from otel_bridge.wire.http_protocol import MAX_HEAD_BYTES, MAX_HEADERS, MAX_PIPELINED
from otel_bridge.wire.transport import PARTING_BYTES

BODY = a_request(delegated("x", 0, 1, 2)).SerializeToString()
CHUNKED = b"POST /nowhere HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
Opened, Run = Callable[..., Any], Callable[..., Any]


async def written_until_closed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, piece: bytes) -> int:
    """Bytes that go into a connection until the other side closes it."""
    written = 0
    try:
        while not reader.at_eof() and written < 200 * MAX_HEAD_BYTES:
            writer.write(piece)
            written += len(piece)
            await writer.drain()
            await asyncio.sleep(0)
    except (ConnectionError, RuntimeError):  # as uvloop says it
        pass
    return written


@pytest.mark.parametrize("rest", [b"123456789", b"123456789G"], ids=["nothing", "a letter"])
def test_after_the_rest_of_a_body(rest: bytes, opened: Opened, run: Run) -> None:
    """A connection whose request was answered before its body was whole is as bounded after the body as any other."""

    async def main() -> None:
        async with opened(connections=ConnectionLimits(idle_s=1.0, handshake_s=1.0)) as doors:
            reader, writer = await sent(doors.http.address, post("/nowhere", b"").replace(b"length: 0", b"length: 9"))
            await reader.readuntil(b"\r\n\r\n")
            writer.write(rest)
            assert await ended(reader) == b"Not Found"
            writer.close()

    run(main())


@pytest.mark.parametrize("piece", [b"a: b\r\n" * 1000, b"x" * 6000], ids=["many", "one"])
def test_trailers_without_end(piece: bytes, opened: Opened, run: Run) -> None:
    """Trailers of a body that nobody reads are bounded in number and in bytes."""

    async def main() -> None:
        async with opened() as doors:
            reader, writer = await sent(doors.http.address, CHUNKED + b"0\r\na: ")
            assert await written_until_closed(reader, writer, piece) < 100 * MAX_HEAD_BYTES
            await until(lambda: not doors.http.connections)

    run(main())


def test_many_headers_at_once(opened: Opened, run: Run) -> None:
    """A request with so many headers is answered, one with more is refused, however few bytes they are, and says why."""

    async def main() -> None:
        async with opened() as doors:
            for count, status in ((MAX_HEADERS, b"HTTP/1.1 200 "), (MAX_HEADERS + 1, b"HTTP/1.1 400 ")):
                head = b"GET /healthz HTTP/1.1\r\nconnection: close\r\n" + b"a: b\r\n" * (count - 1) + b"\r\n"
                reader, writer = await sent(doors.http.address, head)
                answer = await ended(reader)
                assert answer.startswith(status)
                assert (f"at most {MAX_HEADERS} headers".encode() in answer) == (count > MAX_HEADERS)
                writer.close()

    run(main())


def test_requests_that_do_not_wait_for_answers(opened: Opened, run: Run) -> None:
    """However many requests come before the first is answered, all are, in turn: what is not asked for is not read."""

    async def main() -> None:
        async with opened() as doors:
            large = [post("/v1/etdump", bytes(1 << 17))] * (4 * MAX_PIPELINED)
            assert await pipelined(doors.http.address, large, 1, depth=len(large)) == {400: len(large)}
            small = [post("/v1/etdump", DUMP)] * (MAX_PIPELINED + 1)
            assert await pipelined(doors.http.address, small, 1, depth=len(small)) == {200: len(small)}

    run(main())


def test_too_many_requests_at_once(opened: Opened, run: Run) -> None:
    """A connection that brings more requests in one piece than may wait is closed, before they take any memory."""

    async def main() -> None:
        async with opened() as doors:
            reader, writer = await sent(doors.http.address, b"GET /healthz HTTP/1.1\r\n\r\n" * 10_000)
            assert (await ended(reader)).count(b"HTTP/1.1 200 ") <= MAX_PIPELINED
            await until(lambda: not doors.http.connections)
            writer.close()

    run(main())


@pytest.mark.parametrize("form", ["whole", "chunked"])
def test_an_offer_of_http_2(form: str, opened: Opened, run: Run) -> None:
    """A client that offers to go on in HTTP/2, as those of Java and curl do, is served in HTTP/1.1, its body included."""
    offer = {"connection": "Upgrade, HTTP2-Settings", "upgrade": "h2c", "http2_settings": "AAMAAABkAAQ"}

    async def main() -> None:
        async with opened() as doors:
            request = post("/v1/events", BODY, **offer)
            if form == "chunked":
                head = post("/v1/events", b"", **offer).replace(b"content-length: 0", b"transfer-encoding: chunked")
                request = head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
            reader, writer = await sent(doors.http.address, request[:-30])
            await until(lambda: doors.turnstile.requests)
            writer.write(request[-30:] + post("/v1/etdump", DUMP, connection="close, upgrade", upgrade="h2c"))
            answers = await ended(reader)
            assert answers.count(b"HTTP/1.1 200 ") == 2
            assert doors.tally.taken == 2
            writer.close()

    run(main())


@pytest.mark.parametrize("start", [PREFACE, b"CONNECT a:1 HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01"])
def test_another_protocol(start: bytes, opened: Opened, run: Run) -> None:
    """Who speaks another protocol to the door is told which one it speaks, and where gRPC is."""

    async def main() -> None:
        async with opened() as doors:
            reader, writer = await sent(doors.http.address, start)
            answer = await ended(reader)
            assert answer.startswith(b"HTTP/1.1 400 ")
            assert b"server.grpc_address" in answer
            writer.close()

    run(main())


def test_a_fault_after_a_request(opened: Opened, run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """What follows a request and is none does not answer it: it would take the refusal for its own. The log has no error."""

    async def main() -> None:
        async with opened() as doors:
            reader, writer = await sent(doors.http.address, post("/v1/etdump", DUMP) + b"\x00\r\n\r\n")
            assert not (await ended(reader)).startswith(b"HTTP/1.1 400 ")
            await until(lambda: doors.tally.outcomes)
            writer.close()
        assert [record.levelname for record in caplog.records if record.levelno > logging.INFO] == ["WARNING"]

    run(main())


def test_a_body_that_was_not_asked_for(opened: Opened, run: Run) -> None:
    """Who asks before it sends its body, and is refused, has its connection closed: the next request would be taken for it."""

    async def main() -> None:
        async with opened() as doors:
            head = post("/nowhere", b"", expect="100-continue").replace(b"length: 0", b"length: 9")
            reader, writer = await sent(doors.http.address, head)
            assert (await ended(reader)).startswith(b"HTTP/1.1 404 ")
            writer.close()

    run(main())


@pytest.mark.parametrize("head", [b"connection: close", b"a: b\r\n" * MAX_HEADERS + b"a: b"], ids=["asked for", "no request"])
def test_an_answer_before_the_rest(head: bytes, opened: Opened, run: Run) -> None:
    """Who sends on after its last answer, read or not, gets it whole, and has its time: no reset takes it away."""

    async def main() -> None:
        async with opened() as doors:
            request = b"POST /nowhere HTTP/1.1\r\nhost: a\r\ncontent-length: 100000000\r\n" + head + b"\r\n\r\n"
            reader, writer = await sent(doors.http.address, request)
            await until(lambda: reader._buffer)  # type: ignore[attr-defined]  # what has come and nobody has read
            for _ in range(20):
                writer.write(bytes(50_000))
                await writer.drain()
                await asyncio.sleep(0.01)
            answer = await ended(reader)
            assert answer.partition(b" ")[2].startswith((b"404 ", b"400 "))
            assert answer.endswith((b"Not Found", b"is set"))
            assert doors.http.connections == 1
            writer.close()
            await until(lambda: not doors.http.connections)

    run(main())


def test_a_client_that_never_ends(opened: Opened, run: Run) -> None:
    """After its last answer it may send on for a time and so many bytes; then the connection ends."""
    head = post("/nowhere", b"", connection="close").replace(b"length: 0", b"length: 100000000000")

    async def main() -> None:
        async with opened(connections=ConnectionLimits(body_s=0.5)) as doors:
            reader, writer = await sent(doors.http.address, head)
            trickling = asyncio.ensure_future(trickle(writer, b"x"))
            assert await ended(reader)
            await until(lambda: not doors.http.connections)
            trickling.cancel()
            writer.close()
        async with opened() as doors:
            reader, writer = await sent(doors.http.address, head)
            written = 0
            with contextlib.suppress(ConnectionError, RuntimeError):  # as uvloop says it
                while written < 4 * PARTING_BYTES:
                    writer.write(bytes(1 << 16))
                    written += 1 << 16
                    await writer.drain()
                    await asyncio.sleep(0)
            assert PARTING_BYTES < written < 2 * PARTING_BYTES  # what the system's buffers take in is among it
            await until(lambda: not doors.http.connections)
            writer.close()

    run(main())


@pytest.mark.parametrize(("kept_back", "closing"), [(1 << 16, ""), (1 << 30, ""), (1 << 30, "close")])
def test_an_answer_that_nobody_reads(kept_back: int, closing: str, run: Run) -> None:
    """A connection whose client does not read its answer is closed, whoever holds it back; who reads it gets all of it."""
    size = 32 << 20

    async def app(scope: dict[str, Any], _receive: object, send: Callable[..., Any]) -> None:
        transport = scope["state"][IS_GONE].__self__
        transport.set_write_buffer_limits(kept_back)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % size)]})
        await send({"type": "http.response.body", "body": bytes(size)})

    async def main() -> None:
        hasty, patient = (HttpDoor(app, 5, ConnectionLimits(body_s=each, idle_s=each), lambda: None) for each in (1.0, 20.0))
        for door in (hasty, patient):
            door.bind("127.0.0.1:0")
            await door.start()
        _, writer = await sent(hasty.address, b"GET / HTTP/1.1\r\nconnection: %b\r\n\r\n" % closing.encode())
        await until(lambda: hasty.connections)
        await until(lambda: not hasty.connections)
        writer.close()
        reader, writer = await sent(patient.address, b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n")
        assert len(await ended(reader)) > size
        writer.close()
        for door in (hasty, patient):
            await door.stop()

    run(main())
