"""
The floor: the bytes that the bridge moves, moved by the same libraries without any of its work.

    floor_app.py PORT HTTP_PORT SINK

Takes events by calls and by streams of gRPC, and over HTTP/1.1, and looks at none; for each request it sends the spans that it
was given for one, gathered to about a megabyte, over gRPC or, where SINK is a URL, over HTTP/1.1. What a request stands for is
told by the method /floor/Use.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import grpc
import uvicorn
import uvloop

from otel_bridge.cli.scheduling import let_the_loop_run_on
from otel_bridge.export.http_body import HttpBody

_EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
_MOST_BYTES = 1 << 20
_OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
_PROTOBUF = "application/x-protobuf"
_ANSWERED = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]}


class Floor(grpc.GenericRpcHandler):
    """Requests that came, and what is sent for each."""

    def __init__(self) -> None:
        self.payload = b""
        self.waiting = 0
        self.came = asyncio.Event()

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        """`Use`, a stream, and for all else a call."""
        match details.method.rpartition("/")[2]:
            case "Use":
                return grpc.unary_unary_rpc_method_handler(self.use)
            case "StreamEvents":
                return grpc.stream_stream_rpc_method_handler(self.take_each)
            case _:
                return grpc.unary_unary_rpc_method_handler(self.take)

    async def use(self, body: bytes, _context: object) -> bytes:
        """Send this for each request from now on."""
        self.payload = body
        return b""

    async def take(self, _body: bytes, _context: object) -> bytes:
        """A request."""
        self.count()
        return b""

    async def take_each(self, bodies: AsyncIterator[bytes], _context: object) -> AsyncIterator[bytes]:
        """Requests of a stream, each with an answer."""
        async for _ in bodies:
            self.count()
            yield b""

    async def __call__(self, _scope: object, receive: Any, send: Any) -> None:
        """A request over HTTP, as ASGI gives it."""
        while (await receive())["more_body"]:
            pass
        self.count()
        await send(_ANSWERED)
        await send({"type": "http.response.body", "body": b""})

    def count(self) -> None:
        """One more has come."""
        self.waiting += 1
        self.came.set()

    async def send_all(self, export: Callable[[bytes], Awaitable[object]]) -> None:
        """Send what stands for the requests that came; several messages in a row are one message."""
        while await self.came.wait():
            count = min(self.waiting, max(_MOST_BYTES // len(self.payload), 1))
            self.waiting -= count
            if not self.waiting:
                self.came.clear()
            await export(self.payload * count)


@asynccontextmanager
async def way_to(sink: str) -> AsyncIterator[Callable[[bytes], Awaitable[object]]]:
    """What sends a request to the sink and waits for its answer."""
    if not sink.startswith("http://"):
        async with grpc.aio.insecure_channel(sink, options=_OPTIONS) as channel:
            yield channel.unary_unary(_EXPORT)
        return
    async with aiohttp.ClientSession() as session:

        async def post(body: bytes) -> None:
            async with session.post(f"{sink}/v1/traces", data=HttpBody(body, _PROTOBUF)) as answer:
                answer.raise_for_status()
                await answer.read()

        yield post


async def main() -> None:
    """Serve until somebody ends it."""
    floor = Floor()
    port, http_port, sink = sys.argv[1:]
    http = uvicorn.Config(floor, port=int(http_port), http="httptools", lifespan="off", log_config=None, access_log=False)
    serving = asyncio.create_task(uvicorn.Server(http).serve())
    server = grpc.aio.server(options=_OPTIONS)
    server.add_generic_rpc_handlers((floor,))
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    let_the_loop_run_on()  # as the bridge does
    async with way_to(sink) as export:
        sending = asyncio.create_task(floor.send_all(export))
        await asyncio.wait((serving, sending), return_when=asyncio.FIRST_COMPLETED)


if __name__ == "__main__":
    uvloop.run(main())
