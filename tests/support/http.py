"""Requests of the HTTP door as bytes, and what is asked of each refusal."""

import asyncio
import sys
from collections.abc import AsyncIterator

import httpx
from support.etdump_writer import DebugEvent, ProfileEvent, RunData, write_etdump
from support.requests import is_clear

if sys.version_info >= (3, 14):
    from compression import zstd as zstd  # noqa: PLC0414 - said again, so that type checkers see that it is for others
else:
    from backports import zstd as zstd  # noqa: PLC0414 - see above

GZIP, ZSTD = {"content-encoding": "gzip"}, {"content-encoding": "zstd"}
EVENT = ProfileEvent(name="Method::execute", chain=-1, instruction=0, start=1, end=9)
DUMP = write_etdump([RunData("Execute", [EVENT, DebugEvent(name="logged"), ProfileEvent(chain=-1, instruction=0)])])
"""An ETDump of which one event is taken and two are not."""


async def chunks(*parts: bytes) -> AsyncIterator[bytes]:
    """A body of unknown length."""
    for part in parts:
        yield part


def the_fault(response: httpx.Response, code: int) -> dict[str, str]:
    """The JSON of a refused request; its message is clear."""
    assert response.status_code == code
    fault: dict[str, str] = response.json()
    assert sorted(fault) == ["code", "message", "reason"]
    assert is_clear(fault["message"])
    return fault


async def sent(address: str, request: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection on which these bytes were sent."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(request)
    await writer.drain()
    return reader, writer


async def status_of(address: str, request: bytes) -> bytes:
    """The status line that answers these bytes."""
    reader, writer = await sent(address, request)
    try:
        return (await reader.readuntil(b"\r\n")).rstrip()
    finally:
        writer.close()
