"""
Many clients at once, as raw as they need to be, so that a test has time and memory left for them.

Invariant: every connection that is opened is closed at the end of its `with` block.
"""

import asyncio
import contextlib
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import h2.connection
from h2.config import H2Configuration

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""An empty SETTINGS frame: with it a connection of HTTP/2 is complete, and idle."""
PATIENCE_S = 30.0
"""How long a busy machine may take over what is waited for."""


def address_of(where: str) -> tuple[str, int]:
    """Host and port of `host:port`."""
    host, _, port = where.rpartition(":")
    return host, int(port)


@contextlib.contextmanager
def connections(where: str, count: int, first: bytes = b"") -> Iterator[list[socket.socket]]:
    """So many connections, on each of which `first` was sent."""
    with contextlib.ExitStack() as stack:
        opened = []
        for _ in range(count):
            connection = stack.enter_context(socket.create_connection(address_of(where)))
            connection.sendall(first)
            connection.setblocking(False)
            opened.append(connection)
        yield opened


def is_closed(connection: socket.socket) -> bool:
    """Whether the other side has closed it. What it said before is read and forgotten."""
    try:
        while connection.recv(65_536):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
    return True


def post(path: str, body: bytes, **headers: object) -> bytes:
    """A request as bytes."""
    lines = [f"POST {path} HTTP/1.1", "host: bridge", f"content-length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def pipelined(where: str, requests: Sequence[bytes], lanes: int, depth: int = 8) -> "Counter[int]":
    """
    Send requests over HTTP, in so many connections, each of which has `depth` requests on its way; the statuses.

    Every answer must have a Content-Length.
    """
    statuses: Counter[int] = Counter()

    async def lane(own: Sequence[bytes]) -> None:
        reader, writer = await asyncio.open_connection(*address_of(where))
        for start in range(0, len(own), depth):
            some = own[start : start + depth]
            writer.write(b"".join(some))
            for _ in some:
                head = await reader.readuntil(b"\r\n\r\n")
                statuses[int(head[9:12])] += 1
                await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]))
        writer.close()

    await asyncio.gather(*(lane(requests[number::lanes]) for number in range(lanes)))
    return statuses


def half_a_message(path: str, size: int) -> bytes:
    """A call of gRPC whose message of `size` bytes begins, and does not end."""
    connection = h2.connection.H2Connection(H2Configuration(client_side=True))
    connection.initiate_connection()
    head = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "bridge"}
    connection.send_headers(1, [*head.items(), ("te", "trailers"), ("content-type", "application/grpc")])
    connection.send_data(1, b"\0" + size.to_bytes(4, "big") + bytes(1000))
    return connection.data_to_send()


async def ended(reader: asyncio.StreamReader) -> bytes:
    """What came until the other side closed the connection."""
    with contextlib.suppress(ConnectionError):
        return await asyncio.wait_for(reader.read(), PATIENCE_S)
    return b""


async def until(holds: Callable[[], object]) -> None:
    """Wait until something holds that nothing tells of. Raises `TimeoutError` where it does not come to hold."""
    async with asyncio.timeout(PATIENCE_S):
        while not holds():  # noqa: ASYNC110 - see above
            await asyncio.sleep(0.01)


async def trickle(writer: asyncio.StreamWriter, byte: bytes) -> None:
    """Write a byte now and then, until the connection is closed."""
    with contextlib.suppress(OSError, RuntimeError):  # as uvloop says it
        while not writer.is_closing():
            writer.write(byte)
            await asyncio.sleep(0.05)
