"""A way to a port of loopback that a test can look into, and block."""

import asyncio
from contextlib import suppress
from typing import Any

from support.processes import LOOPBACK


class Proxy:
    """
    Forwards connections to a port, on the event loop of the test.

    sent_bytes   that clients sent
    """

    def __init__(self, port: int) -> None:
        self.sent_bytes = 0
        self._port = port
        self._connections: list[asyncio.Task[Any]] = []
        self._frozen: set[asyncio.Task[Any]] = set()

    async def start(self) -> str:
        """Listen on the `host:port` that is returned."""
        self._server = await asyncio.start_server(self._join, LOOPBACK, 0)
        return f"{LOOPBACK}:{self._server.sockets[0].getsockname()[1]}"

    def freeze(self) -> None:
        """Let nothing through any more on the connections that there are, as where a host is gone; new ones work."""
        self._frozen |= set(self._connections)

    async def finish(self) -> None:
        """Wait for clients to go, then stop."""
        for task in self._frozen:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)  # they end when the client closes
        self._server.close()
        await self._server.wait_closed()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._connections.append(task)
        far_reader, far_writer = await asyncio.open_connection(LOOPBACK, self._port)
        with suppress(asyncio.CancelledError):
            await asyncio.gather(self._pump(task, reader, far_writer), self._pump(task, far_reader, writer))
        writer.close()
        far_writer.close()

    async def _pump(self, task: "asyncio.Task[Any]", reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        is_client = writer.get_extra_info("peername")[1] == self._port
        with suppress(ConnectionError):
            while chunk := await reader.read(65_536):
                if task in self._frozen:
                    await asyncio.Event().wait()
                self.sent_bytes += len(chunk) if is_client else 0
                writer.write(chunk)
            writer.close()
            await writer.wait_closed()
