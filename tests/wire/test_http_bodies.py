"""Bodies over HTTP: as they are, compressed, damaged, too large, slow, or not there."""

import asyncio
import gzip
import tracemalloc
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from support.batches import differences, timeless
from support.http import DUMP, GZIP, ZSTD, chunks, sent, status_of, the_fault, zstd

LIMIT = 100_000
PATH = "/v1/etdump"


def test_ways_to_write_a_body(opened: Callable[..., Any], run: Callable[..., Any]) -> None:
    """A body with a length or in chunks, as it is or as gzip, is the same upload."""

    async def main() -> None:
        async with opened(limit_bytes=LIMIT, duplicates=0) as doors:
            packed = gzip.compress(DUMP)
            bodies: list[tuple[Any, dict[str, str]]] = [
                (DUMP, {}),
                (DUMP, {"content-encoding": "identity"}),
                (packed, GZIP),
                (packed, {"content-encoding": "GZip"}),
                (chunks(DUMP[:7], DUMP[7:]), {}),
                (chunks(*(packed[index : index + 1] for index in range(len(packed)))), GZIP),
                (zstd.compress(DUMP), ZSTD),
                (chunks(*(bytes([byte]) for byte in zstd.compress(DUMP))), ZSTD),
            ]
            for body, headers in bodies:
                assert (await doors.client.post(PATH, content=body, headers=headers)).status_code == 200
            batches = [record.batch for record in await doors.outlet.read(1000)]
            assert len(batches) == len(bodies)
            assert [differences(timeless(batch), timeless(batches[0])) for batch in batches[1:]] == [[]] * (len(bodies) - 1)

    run(main())


WIDE_ZSTD = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 24})
WIDE = b"".join([WIDE_ZSTD.compress(DUMP), WIDE_ZSTD.flush()])
"""A zstd frame whose window is over 8 MiB."""

BODIES: list[tuple[str, bytes, dict[str, str], int, str, str]] = [
    ("nothing", b"", {}, 400, "not_an_etdump", "too short"),
    ("no ETDump", b"\x1b[31m" * 20, {}, 400, "not_an_etdump", "no ETDump (100 bytes)"),
    ("half an ETDump", DUMP[:-9], {}, 400, "truncated", "send the whole file"),
    ("an ETDump that is called gzip", DUMP, GZIP, 400, "malformed_request", "is not gzip, as its Content-Encoding says"),
    ("half a gzip", gzip.compress(DUMP)[:-9], GZIP, 400, "malformed_request", "the gzip body ends early, after"),
    ("no gzip at all", b"", GZIP, 400, "malformed_request", "the gzip body ends early, after 0 decompressed bytes"),
    ("a gzip with a wrong sum", gzip.compress(DUMP)[:-8] + bytes(8), GZIP, 400, "malformed_request", "is not gzip"),
    ("a gzip and more", gzip.compress(DUMP) + b"more", GZIP, 400, "malformed_request", "goes on after its gzip ended"),
    ("two gzips", gzip.compress(DUMP) * 2, GZIP, 400, "malformed_request", "goes on after its gzip ended"),
    ("an ETDump that is called zstd", DUMP, ZSTD, 400, "malformed_request", "is not zstd, as its Content-Encoding says"),
    ("half a zstd", zstd.compress(DUMP)[:-9], ZSTD, 400, "malformed_request", "the zstd body ends early, after"),
    ("no zstd at all", b"", ZSTD, 400, "malformed_request", "the zstd body ends early, after 0 decompressed bytes"),
    ("a zstd and more", zstd.compress(DUMP) + b"more", ZSTD, 400, "malformed_request", "goes on after its zstd ended"),
    ("two zstds", zstd.compress(DUMP) * 2, ZSTD, 400, "malformed_request", "send one zstd frame"),
    ("a zstd that wants much memory", WIDE, ZSTD, 400, "malformed_request", "is not zstd, as its Content-Encoding says"),
    ("another encoding", DUMP, {"content-encoding": "br"}, 400, "malformed_request", "is none of identity, gzip, zstd"),
    ("several encodings", DUMP, {"content-encoding": "gzip, br"}, 400, "malformed_request", "is none of identity, gzip, zstd"),
    ("gzip that is not said", gzip.compress(DUMP), {}, 400, "not_an_etdump", "no ETDump"),
    ("as much as is allowed", bytes(LIMIT), {}, 400, "not_an_etdump", f"no ETDump ({LIMIT} bytes)"),
    ("a byte too much", bytes(LIMIT + 1), {}, 413, "too_large", f"over {LIMIT} bytes; send less"),
    ("as much as is allowed, gzip", gzip.compress(bytes(LIMIT)), GZIP, 400, "not_an_etdump", f"no ETDump ({LIMIT} bytes)"),
    ("as much as is allowed, zstd", zstd.compress(bytes(LIMIT)), ZSTD, 400, "not_an_etdump", f"no ETDump ({LIMIT} bytes)"),
    ("a byte too much, zstd", zstd.compress(bytes(LIMIT + 1)), ZSTD, 413, "too_large", f"over {LIMIT} bytes; send less"),
    ("a byte too much, gzip", gzip.compress(bytes(LIMIT + 1)), GZIP, 413, "too_large", f"over {LIMIT} bytes; send less"),
]


def test_bad_bodies(opened: Callable[..., Any], run: Callable[..., Any]) -> None:
    """A body that cannot be an ETDump is refused with what was found; a good one between any two of them is taken."""

    async def main() -> None:
        async with opened(limit_bytes=LIMIT, duplicates=0) as doors:
            for what, body, headers, code, reason, told in BODIES:
                for content in (body, chunks(body)):
                    fault = the_fault(await doors.client.post(PATH, content=content, headers=headers), code)
                    assert (what, fault["reason"]) == (what, reason)
                    assert told in fault["message"], what
                    assert fault["code"] == ("INVALID_ARGUMENT" if code == 400 else "RESOURCE_EXHAUSTED")
                assert (await doors.client.post(PATH, content=DUMP)).status_code == 200
            assert doors.outlet.events == doors.tally.taken == doors.tally.outcomes["ok"] == len(BODIES)

    run(main())


@pytest.mark.parametrize("tail", [b"", bytes(8 << 20)], ids=["a bomb", "one that never ends"])
@pytest.mark.parametrize(("headers", "pack"), [(GZIP, gzip.compress), (ZSTD, zstd.compress)], ids=["gzip", "zstd"])
def test_a_bomb_takes_no_memory(
    tail: bytes,
    headers: dict[str, str],
    pack: Callable[[bytes], bytes],
    opened: Callable[..., Any],
    run: Callable[..., Any],
) -> None:
    """However much a body would become, and however much follows it, no more than the limit is held."""
    body = pack(b"" if tail else bytes(64 << 20)) + tail

    async def main() -> None:
        async with opened(limit_bytes=LIMIT) as doors:
            tracemalloc.start()
            try:
                response = await doors.client.post(PATH, content=chunks(body), headers=headers)
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            the_fault(response, 400 if tail else 413)
            assert peak - len(body) < 20 * LIMIT  # what the client and the server's buffers hold is in it, too

    run(main())


@pytest.mark.parametrize(("headers", "pack"), [(GZIP, gzip.compress), (ZSTD, zstd.compress)], ids=["gzip", "zstd"])
def test_a_large_body_is_inflated_whole(
    headers: dict[str, str], pack: Callable[[bytes], bytes], opened: Callable[..., Any], run: Callable[..., Any]
) -> None:
    """A body that becomes many times what is inflated in one step comes out whole, whatever its length is to the steps."""

    async def main() -> None:
        async with opened(limit_bytes=8 << 20) as doors:
            for size in ((3 << 20) - 1, 3 << 20, (3 << 20) + 1):
                response = await doors.client.post(PATH, content=pack(bytes(size)), headers=headers)
                assert f"no ETDump ({size} bytes)" in the_fault(response, 400)["message"]

    run(main())


def test_a_body_that_stops_coming(opened: Callable[..., Any], run: Callable[..., Any]) -> None:
    """Of a body that stops coming the wait is bounded: 503 and the connection closes; one that comes slowly is taken."""

    async def main() -> None:
        async with opened(read_timeout_s=0.5) as doors:
            head = b"POST /v1/etdump HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(DUMP)
            reader, writer = await sent(doors.http.address, head + DUMP[:-1])
            answer = await reader.read()  # to the end: the bridge closes
            writer.close()
            assert answer.startswith(b"HTTP/1.1 503 ")
            assert b"retry-after: 2\r\n" in answer
            assert b'"reason":"body_stalled"' in answer
            assert (doors.outlet.events, doors.tally.outcomes) == (0, {"body_stalled": 1})

        async with opened(read_timeout_s=3.0) as doors:

            async def slowly() -> AsyncIterator[bytes]:
                for part in (DUMP[:9], DUMP[9:99], DUMP[99:]):
                    await asyncio.sleep(1.05)  # three are longer than the patience; each leaves a busy machine some time
                    yield part

            assert (await doors.client.post(PATH, content=slowly())).status_code == 200

    run(main())


@pytest.mark.parametrize("path", [PATH, "/v1/events"])
def test_a_client_that_asks_first(path: str, opened: Callable[..., Any], run: Callable[..., Any]) -> None:
    """A client that waits for "100 Continue", as curl does before a large body, gets it, unless it is refused before."""

    async def main() -> None:
        async with opened(limit_bytes=LIMIT) as doors:
            head = b"POST %s HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 3\r\n\r\n"
            reader, writer = await sent(doors.http.address, head % path.encode())
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 Continue")
            writer.write(b"\xff\xff\xff")
            assert (await reader.readuntil(b"\r\n")) == b"HTTP/1.1 400 Bad Request\r\n"
            writer.close()
            assert await status_of(doors.http.address, head % f"{path}?unknown=1".encode()) == b"HTTP/1.1 400 Bad Request"

    run(main())
