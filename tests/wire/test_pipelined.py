"""Requests over HTTP that come before earlier ones are answered: each is a request of its own."""

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest
from support.crowds import PATIENCE_S, ended, post
from support.http import sent
from support.requests import a_request
from support.scenes import delegated

from otel_bridge.wire import http_protocol
from otel_bridge.wire.connections import ConnectionLimits
from otel_bridge.wire.http_door import HttpDoor

BODY = a_request(delegated("x", 0, 1, 2)).SerializeToString()
SENDER: ContextVar[str] = ContextVar("sender", default="nobody")

Opened = Callable[..., Any]
Run = Callable[..., Any]


def test_the_rest_of_a_body(opened: Opened, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest of a request that came in part behind another is read at once, and not only when it is asked for."""
    monkeypatch.setattr(http_protocol, "_AHEAD_S", 10 * PATIENCE_S)

    async def main() -> None:
        async with opened() as doors:
            request = post("/v1/events", BODY)
            reader, writer = await sent(doors.http.address, request + request[:-5])
            async with asyncio.timeout(PATIENCE_S):
                assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
                writer.write(request[-5:])
                assert b"HTTP/1.1 200 " in await reader.readuntil(b"\r\n\r\n")
            writer.close()

    run(main())


def test_none_begins_within_another(run: Run) -> None:
    """A request that was waited for ends before the next begins, which sees nothing of what it has noted."""
    told: list[str] = []

    async def app(scope: Any, _receive: Any, send: Any) -> None:
        told.append(SENDER.get())
        SENDER.set(scope["path"])
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})
        told.append(scope["path"])

    async def main() -> None:
        door = HttpDoor(app, 5, ConnectionLimits(), lambda: None)
        door.bind("127.0.0.1:0")
        await door.start()
        last = b"GET /c HTTP/1.1\r\nconnection: close\r\n\r\n"
        reader, writer = await sent(door.address, b"GET /a HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\n\r\n" + last)
        assert (await ended(reader)).count(b"HTTP/1.1 200 ") == 3
        writer.close()
        await door.stop()

    run(main())
    assert told == ["nobody", "/a", "nobody", "/b", "nobody", "/c"]
