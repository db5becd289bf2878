"""
The body of a request to a back end, for aiohttp.

Invariants
* It is written in one piece behind the headers. Bare bytes aiohttp copies behind them before Python 3.12.9, and warns of where
  they are over 1 MiB.
* What a back end did not take of it can be let go. The loop would keep it, and the connection, until that back end reads on.
"""

from typing import TYPE_CHECKING, cast

import aiohttp
from aiohttp.abc import AbstractStreamWriter

if TYPE_CHECKING:
    import asyncio

    from aiohttp.http import StreamWriter


class HttpBody(aiohttp.Payload):
    """Bytes of a media type, for one request."""

    _autoclose = True  # there is nothing to close

    def __init__(self, body: bytes, media_type: str) -> None:
        super().__init__(body, content_type=media_type)
        self._size = len(body)
        self._transport: asyncio.Transport | None = None

    def abort(self) -> None:
        """Close the connection that it is written to, whatever is not sent yet."""
        if self._transport is not None:
            self._transport.abort()

    def let_go(self) -> None:
        """Do not hold on to a connection that is being closed. One that was given back is left alone: others may use it."""
        if self._transport is not None and self._transport.is_closing():
            self._transport.abort()

    async def write(self, writer: AbstractStreamWriter) -> None:
        """See `aiohttp.Payload.write`."""
        self._transport = cast("StreamWriter", writer).transport
        writer.send_headers()
        await writer.write(self._value)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """See `aiohttp.Payload.decode`."""
        return str(self._value, encoding, errors)
