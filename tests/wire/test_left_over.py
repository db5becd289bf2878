"""What is left of requests and connections once they are over: the collector of cycles comes seldom (pipeline/memory.py)."""

import asyncio
import contextlib
import gc
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from support.crowds import ended, post, until
from support.http import sent
from support.requests import a_request
from support.scenes import delegated

from otel_bridge.wire.http_protocol import Protocol

BODY = a_request(delegated("x", 0, 1, 2)).SerializeToString()
NONSENSE = b"\xff" * (1 << 19)
TIMES = 20

Opened = Callable[..., Any]
Run = Callable[..., Any]


@contextlib.contextmanager
def no_look_for_cycles() -> Iterator[None]:
    """What only cycles hold stays."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.collect()


@pytest.mark.parametrize("method", ["ExportEvents", "StreamEvents"])
def test_no_body_of_a_refused_call(method: str, opened: Opened, run: Run) -> None:
    """A call that is refused leaves nothing behind that holds its body."""

    async def main() -> None:
        async with opened() as doors:

            async def refused() -> None:
                call = doors.channel.stream_stream(f"/otel_bridge.v1.ProfilingService/{method}")()
                with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # it ends while it is written
                    await call.write(NONSENSE)
                    await call.done_writing()
                assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT

            await refused()
            with no_look_for_cycles():
                tracemalloc.start()
                try:
                    for _ in range(TIMES):
                        await refused()
                    await until(lambda: not doors.turnstile.requests and not len(doors.streams))
                    left_bytes, _ = tracemalloc.get_traced_memory()
                finally:
                    tracemalloc.stop()
            assert doors.tally.outcomes == {"undecodable": TIMES + 1}
            assert left_bytes < TIMES / 2 * len(NONSENSE)

    run(main())


@pytest.mark.parametrize("request_", [post("/v1/events", BODY, connection="close"), b"nonsense\r\n\r\n"], ids=["ok", "refused"])
def test_no_connection(request_: bytes, opened: Opened, run: Run) -> None:
    """A connection over HTTP that is gone leaves nothing behind."""

    async def main() -> None:
        async with opened() as doors:
            with no_look_for_cycles():
                for _ in range(TIMES):
                    reader, writer = await sent(doors.http.address, request_)
                    assert await ended(reader)
                    writer.close()
                await until(lambda: not doors.http.connections)
                await until(lambda: sum(isinstance(each, Protocol) for each in gc.get_objects()) < TIMES / 2)

    run(main())
