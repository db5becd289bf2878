"""How answers over HTTP are written: what one connection is given, piece by piece."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import uvicorn
from starlette import types as asgi
from support.crowds import post, until
from uvicorn.server import ServerState

from otel_bridge.wire.connections import ConnectionLimits, Protocol

Run = Callable[..., Any]


class Recorder(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.closed = False

    def write(self, data: Any) -> None:
        """Keep it."""
        self.writes.append(bytes(data))

    def close(self) -> None:
        """Note it."""
        self.closed = True

    def is_closing(self) -> bool:
        """Whether it was closed."""
        return self.closed

    def pause_reading(self) -> None:
        """Nothing is read."""

    def resume_reading(self) -> None:
        """Nothing is read."""


def answering(*pieces: bytes, length: int | None = None, reads: bool = False) -> asgi.ASGIApp:
    """An application that answers with these pieces; `reads`: it wants the body first."""

    async def app(_scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        if reads:
            await receive()
        size = sum(map(len, pieces)) if length is None else length
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % size)]})
        for number, piece in enumerate(pieces, 1):
            await send({"type": "http.response.body", "body": piece, "more_body": number < len(pieces)})

    return app


async def written(app: asgi.ASGIApp, request: bytes) -> Recorder:
    """What a connection is given on which this request came, once all is done."""
    config = uvicorn.Config(app, ws="none", lifespan="off", log_config=None, access_log=False, server_header=False)
    state, transport = ServerState(), Recorder()
    protocol = Protocol(ConnectionLimits(), lambda: None, config=config, server_state=state, app_state={})
    protocol.connection_made(transport)
    protocol.data_received(request)
    await until(lambda: transport.writes or state.tasks)
    await asyncio.gather(*state.tasks)
    protocol.connection_lost(ConnectionResetError())  # else it closes what is closed
    return transport


@pytest.mark.parametrize(
    ("app", "request_", "ends"),
    [
        (answering(b"body"), post("/", b""), [b"\r\n\r\nbody"]),
        (answering(b"bo", b"dy"), post("/", b""), [b"\r\n\r\nbo", b"dy"]),
        (answering(b"b", b"o", b"dy"), post("/", b""), [b"\r\n\r\nb", b"ody"]),
        (answering(b""), post("/", b""), [b"\r\n\r\n", b""]),
        (answering(b"body"), post("/", b"", connection="close"), [b"\r\n\r\nbody"]),
        (answering(b"body"), b"HEAD / HTTP/1.1\r\nhost: a\r\n\r\n", [b"\r\n\r\n"]),
        (answering(b"body", reads=True), post("/", b"", expect="100-continue"), [b" 100 Continue\r\n\r\n", b"\r\n\r\nbody"]),
    ],
    ids=["one piece", "two", "three", "none", "close", "HEAD", "asked first"],
)
def test_the_head_goes_out_with_the_body(app: asgi.ASGIApp, request_: bytes, ends: list[bytes], run: Run) -> None:
    """The head of an answer, and what is held of its body, goes out with what follows; nothing that was written is left."""

    async def main() -> None:
        transport = await written(app, request_)
        assert len(transport.writes) == len(ends)
        for write, end in zip(transport.writes, ends, strict=True):
            assert write.endswith(end)
        assert transport.writes[-len(ends)].startswith(b"HTTP/1.1 ")
        assert transport.closed is (b"connection: close" in request_)

    run(main())


def test_an_answer_that_breaks_off(run: Run) -> None:
    """Where the body does not come the head goes out before the connection is closed."""

    async def main() -> None:
        transport = await written(answering(length=4), post("/", b""))
        assert b"".join(transport.writes).endswith(b"content-length: 4\r\n\r\n")
        assert transport.closed

    run(main())
