"""The HTTP door, over real connections."""

import logging
from collections.abc import Callable
from typing import Any

import pytest
from support.http import DUMP, sent, status_of, the_fault

from otel_bridge.wire.intake import SENT_KEY

LIMIT = 100_000
PATH = "/v1/etdump"


def test_an_upload(opened: Callable[..., Any], run: Callable[..., Any]) -> None:
    """An upload is answered with the counts of its events; query and header say what the file does not."""

    async def main() -> None:
        async with opened(limit_bytes=LIMIT) as doors:
            query = "model=net@1&method=forward&stream=" + "0f" * 16 + "&resource.service.name=app"
            response = await doors.client.post(f"{PATH}?{query}", content=DUMP, headers={SENT_KEY: "1"})
            assert (response.status_code, response.headers["content-type"]) == (200, "application/json")
            answer = response.json()
            assert answer.pop("first_rejection").startswith("block 0, event 2: ")
            assert answer == {"accepted": 1, "rejected": {"debug_event": 1, "unnamed": 1}, "blocks": 1}
            batch = await doors.batch()
            stream = batch.streams[0]
            assert (stream.stream_id, stream.model.name, stream.model.version) == (b"\x0f" * 16, "net", "1")
            assert (stream.resource, batch.blocks[0].method) == ((("service.name", "app"),), "forward")
            assert stream.correction_ns == stream.received_ns - 1
            assert (doors.tally.taken, doors.tally.rejected, doors.tally.outcomes) == (1, answer["rejected"], {"ok": 1})

    run(main())


def test_bad_queries(opened: Callable[..., Any], run: Callable[..., Any]) -> None:
    """A query that cannot be obeyed is refused; bytes that are no UTF-8 arrive if they are written as a URL has them."""

    async def main() -> None:
        async with opened(limit_bytes=LIMIT) as doors:
            for query in ("modell=x", "counter_bits=65", "stream=" + "00" * 16, "build_id=" + "x" * 129, "model=a&model=a"):
                fault = the_fault(await doors.client.post(f"{PATH}?{query}", content=DUMP), 400)
                assert (fault["code"], fault["reason"]) == ("INVALID_ARGUMENT", "malformed_request")
            line = b"POST /v1/etdump?model=\xff HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n"
            assert await status_of(doors.http.address, line) == b"HTTP/1.1 400 Bad Request"
            assert (await doors.client.post(f"{PATH}?model=%e9&method=%zz", content=DUMP)).status_code == 200
            batch = await doors.batch()
            assert (batch.streams[0].model.name, batch.blocks[0].method) == ("\\xe9", "%zz")

    run(main())


def test_a_client_that_goes_away(opened: Callable[..., Any], run: Callable[..., Any]) -> None:
    """Of a client that breaks off within its body nothing is kept, and the next one is served."""

    async def main() -> None:
        async with opened(limit_bytes=LIMIT) as doors:
            head = b"POST /v1/etdump HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(DUMP)
            _, writer = await sent(doors.http.address, head + DUMP[:-1])
            writer.transport.abort()
            await doors.tally.heard("disconnected")
            assert (doors.outlet.events, doors.tally.taken) == (0, 0)
            assert (await doors.client.post(PATH, content=DUMP)).json()["accepted"] == 1

    run(main())


def test_no_room(opened: Callable[..., Any], run: Callable[..., Any]) -> None:
    """When the spool is full, or closed, the answer is 503 with a whole number of seconds to wait; once there is room, 200."""

    async def main() -> None:
        async with opened(limit_bytes=LIMIT, spool_bytes=1, duplicates=0) as doors:
            assert (await doors.client.post(PATH, content=DUMP)).status_code == 200
            response = await doors.client.post(PATH, content=DUMP)
            assert the_fault(response, 503)["reason"] == "spool_full"
            assert response.headers["retry-after"] == "2"  # 1 s and up to half as much again, rounded up
            await doors.take()
            assert (await doors.client.post(PATH, content=DUMP)).status_code == 200
            doors.spool.close()
            response = await doors.client.post(PATH, content=DUMP)
            assert the_fault(response, 503)["reason"] == "draining"
            assert "retry-after" in response.headers

    run(main())


def test_a_fault_inside(opened: Callable[..., Any], run: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    """A fault of the bridge is 500 without its particulars, which go to the log; the next request is served."""

    def build_of(_tenant: str, name: str, _version: str) -> str | None:
        if name == "bad":
            raise RuntimeError("secret")
        return None

    async def main() -> None:
        async with opened(limit_bytes=LIMIT, build_of=build_of) as doors:
            response = await doors.client.post(f"{PATH}?model=bad", content=DUMP)
            assert the_fault(response, 500)["reason"] == "internal"
            assert "secret" not in response.text
            assert (await doors.client.post(f"{PATH}?model=good", content=DUMP)).status_code == 200
            assert doors.tally.outcomes == {"internal": 1, "ok": 1}

    run(main())
    assert [(record.levelno, record.name) for record in caplog.records] == [(logging.ERROR, "otel_bridge.wire.exchange")]
    assert "secret" in caplog.text


def test_what_operators_ask(opened: Callable[..., Any], run: Callable[..., Any]) -> None:
    """Alive, ready and metrics answer GET and HEAD; not ready is 503 while alive stays 200; else it is 404 or 405."""

    async def main() -> None:
        async with opened() as doors:
            client = doors.client
            assert (await client.get("/healthz")).text == "ok\n"
            assert (await client.get("/readyz")).text == "ready\nspool: ok\n"
            metrics = await client.get("/metrics")
            assert metrics.text == "a_metric 1\n"
            assert metrics.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
            doors.ready = False
            assert [(await client.get(path)).status_code for path in ("/readyz", "/healthz")] == [503, 200]
            assert [(await client.head(path)).status_code for path in ("/healthz", "/metrics")] == [200, 200]
            assert [(await client.get(path)).status_code for path in ("/", "/v1", "/v1/etdump/x", "/v1/traces")] == [404] * 4
            assert [(await client.post(path)).status_code for path in ("/healthz", "/metrics")] == [405, 405]
            refused = await client.get(PATH)
            assert (refused.status_code, refused.headers["allow"]) == (405, "POST")
            assert doors.tally.outcomes == {}

    run(main())
