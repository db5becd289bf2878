"""
The body of an HTTP request, as it was before the client compressed it.

Invariants
* No more than the limit is held, whatever a body would become and however much follows it.
* A body is one member: of what follows its end nothing is read as if it were part of it.
* Nobody waits for ever for bytes that do not come, or come one by one; and no bomb keeps the event loop: it is inflated step
  by step.
"""

import asyncio
import sys
import zlib
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, cast

from starlette.types import Message, Receive

from otel_bridge.errors import BodyStalled, MalformedRequest, TooLarge
from otel_bridge.wire.eager import begin
from otel_bridge.wire.intake import Disconnected

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_STEP_BYTES = 1 << 20
_ZSTD_WINDOW_LOG = 23
"""8 MiB: the most that a sender may ask for (RFC 9659)."""


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """Of one body: bytes after decompression, longest wait for the next bytes, and longest time for all of it."""

    size_bytes: int
    read_timeout_s: float = 30.0
    body_timeout_s: float = 120.0


async def read_body(
    receive: Receive,
    encoding: str,
    limits: BodyLimits,
    resize: Callable[[int], None] = lambda _size: None,
    check_start: Callable[[bytes], None] = lambda _start: None,
) -> bytes:
    """
    The body, decompressed as `encoding` (the header Content-Encoding, "" where there is none) says.

    resize        told how large the body is by now; may raise, where there is no room for it
    check_start   shown what is there after each step; may raise, so that the rest need not come

    Raises `TooLarge`, `MalformedRequest`, `BodyStalled`, `Disconnected`.
    """
    step_bytes = min(_STEP_BYTES, limits.size_bytes + 1)
    stream = _stream_of(encoding.lower() or "identity", step_bytes)
    until_s = asyncio.get_running_loop().time() + limits.body_timeout_s
    body = bytearray()
    more = True

    def check_size(size: int) -> None:
        if size > limits.size_bytes:
            raise TooLarge(f"the body is over {limits.size_bytes} bytes; send less at once, or raise server.max_request_bytes")
        resize(size)

    while more:
        chunk, more = await _next_chunk(receive, limits, until_s, len(body))
        if not more and not body and isinstance(stream, _Identity):  # as small ones come: all of it, as it is
            check_size(len(chunk))
            check_start(chunk[:64])
            return chunk
        for piece in stream.pieces(chunk):
            body += piece
            check_size(len(body))
            if len(piece) == step_bytes:
                await asyncio.sleep(0)
        if stream.surplus:
            raise MalformedRequest(
                f"the body goes on after its {stream.name} ended, {len(body)} bytes decompressed; send one {stream.unit}"
            )
        check_start(bytes(body[:64]))
    if not stream.ended:
        raise MalformedRequest(f"the {stream.name} body ends early, after {len(body)} decompressed bytes; send it whole")
    return bytes(body)


async def _next_chunk(receive: Receive, limits: BodyLimits, until_s: float, had: int) -> tuple[bytes, bool]:
    """The next bytes, and whether more follow."""
    asked = begin(cast("Coroutine[Any, Any, Message]", receive()))  # as it is of uvicorn, and of any function with `async`
    message = await _in_time(asked, limits, until_s, had) if isinstance(asked, asyncio.Task) else asked
    if message["type"] == "http.disconnect":
        raise Disconnected
    return message.get("body", b""), message.get("more_body", False)


async def _in_time(asked: asyncio.Task[Message], limits: BodyLimits, until_s: float, had: int) -> Message:
    now_s = asyncio.get_running_loop().time()
    try:
        await asyncio.wait((asked,), timeout=min(limits.read_timeout_s, until_s - now_s))
        if asked.done():
            return asked.result()
    finally:
        asked.cancel()
    if until_s < now_s + limits.read_timeout_s:
        found = f"the body was not there within {limits.body_timeout_s:g} s (ingress.body_timeout_s)"
    else:
        found = f"no byte of the body came for {limits.read_timeout_s:g} s (server.read_timeout_s)"
    raise BodyStalled(f"{found}, {had} bytes are; send it again")


class _Stream(Protocol):
    """Turns the chunks of a body into pieces of what it was before, each of `step_bytes` at most if it is inflated."""

    name: str
    unit: str

    @property
    def ended(self) -> bool:
        """Whether the body may end here."""

    @property
    def surplus(self) -> bytes:
        """What came after the end."""

    def pieces(self, chunk: bytes) -> Iterator[bytes]:
        """What the chunk becomes."""


def _stream_of(encoding: str, step_bytes: int) -> _Stream:
    if encoding not in _STREAMS:
        raise MalformedRequest(f"header Content-Encoding: is none of {', '.join(_STREAMS)}; send one of these")
    return _STREAMS[encoding](step_bytes)


class _Identity:
    name, unit, ended, surplus = "identity", "body", True, b""

    def __init__(self, step_bytes: int) -> None:
        """Nothing is inflated."""

    def pieces(self, chunk: bytes) -> Iterator[bytes]:
        yield chunk


class _Gzip:
    name, unit = "gzip", "gzip member"

    def __init__(self, step_bytes: int) -> None:
        self._step_bytes = step_bytes
        self._inflate = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)

    @property
    def ended(self) -> bool:
        return self._inflate.eof

    @property
    def surplus(self) -> bytes:
        return self._inflate.unused_data

    def pieces(self, chunk: bytes) -> Iterator[bytes]:
        full = True
        while chunk or full:  # a full piece may leave some of the output behind
            try:
                piece = self._inflate.decompress(chunk, self._step_bytes)
            except zlib.error as error:
                raise _not_as_said(self.name, error) from error
            chunk = self._inflate.unconsumed_tail
            full = len(piece) == self._step_bytes
            yield piece


class _Zstd:
    name, unit = "zstd", "zstd frame"

    def __init__(self, step_bytes: int) -> None:
        self._step_bytes = step_bytes
        self._inflate = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: _ZSTD_WINDOW_LOG})
        self._surplus = b""

    @property
    def ended(self) -> bool:
        return self._inflate.eof

    @property
    def surplus(self) -> bytes:
        return self._surplus or self._inflate.unused_data

    def pieces(self, chunk: bytes) -> Iterator[bytes]:
        if self._inflate.eof:
            self._surplus = chunk
            return
        try:
            yield self._inflate.decompress(chunk, self._step_bytes)
            while not self._inflate.eof and not self._inflate.needs_input:
                yield self._inflate.decompress(b"", self._step_bytes)
        except zstd.ZstdError as error:
            raise _not_as_said(self.name, error) from error


def _not_as_said(name: str, error: Exception) -> MalformedRequest:
    return MalformedRequest(f"the body is not {name}, as its Content-Encoding says: {error}")


_STREAMS: dict[str, Callable[[int], _Stream]] = {"identity": _Identity, "gzip": _Gzip, "zstd": _Zstd}
