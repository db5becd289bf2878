"""
The floor: the bytes that the bridge moves, moved by the same libraries without any of its work.

    floor_app.py PORT SINK   takes events over gRPC and looks at none; for each request it sends the spans that it was given for
                             one, gathered to about a megabyte. What a request stands for is told by the method /floor/Use
"""

import asyncio
import sys
from typing import TYPE_CHECKING

import grpc
import uvloop

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
_MOST_BYTES = 1 << 20
_OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class Floor(grpc.GenericRpcHandler):
    """Requests that came, and what is sent for each."""

    def __init__(self) -> None:
        self.payload = b""
        self.waiting = 0
        self.came = asyncio.Event()

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        """`Use`, and for all else the same."""
        method: Callable[[bytes, object], Awaitable[bytes]] = self.use if details.method.endswith("/Use") else self.take
        return grpc.unary_unary_rpc_method_handler(method)

    async def use(self, body: bytes, _context: object) -> bytes:
        """Send this for each request from now on."""
        self.payload = body
        return b""

    async def take(self, _body: bytes, _context: object) -> bytes:
        """A request."""
        self.waiting += 1
        self.came.set()
        return b""

    async def send_all(self, sink: str) -> None:
        """Send what stands for the requests that came; several messages in a row are one message."""
        async with grpc.aio.insecure_channel(sink, options=_OPTIONS) as channel:
            export = channel.unary_unary(_EXPORT)
            while await self.came.wait():
                count = min(self.waiting, max(_MOST_BYTES // len(self.payload), 1))
                self.waiting -= count
                if not self.waiting:
                    self.came.clear()
                await export(self.payload * count)


async def main() -> None:
    """Serve until somebody ends it."""
    floor = Floor()
    server = grpc.aio.server(options=_OPTIONS)
    server.add_generic_rpc_handlers((floor,))
    server.add_insecure_port(f"127.0.0.1:{sys.argv[1]}")
    await server.start()
    await floor.send_all(sys.argv[2])


if __name__ == "__main__":
    uvloop.run(main())
