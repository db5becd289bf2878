"""Streams of requests over gRPC: what is sent, what is answered, and a spool that can be made to wait."""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from support.requests import a_request
from support.scenes import delegated

from otel_bridge.spool.memory import MemorySpool
from otel_bridge.v1 import profiling_pb2 as pb

EOF = grpc.aio.EOF  # type: ignore[attr-defined]  # the stubs do not know it


def requests(count: int, first: int = 0) -> list[pb.ExportEventsRequest]:
    """So many requests of one stream: the one with number n has n % 7 + 1 events."""
    made = []
    for number in range(first, first + count):
        request = a_request(*[delegated("x", 0, at, at + 1) for at in range(number % 7 + 1)])
        request.stream.sequence = number
        made.append(request)
    return made


async def answers(call: Any) -> list[int]:
    """Accepted events by answer, up to the end of the stream, however it ends."""
    found: list[int] = []
    with contextlib.suppress(grpc.aio.AioRpcError):
        while (answer := await call.read()) is not EOF:
            found.append(answer.accepted)
    return found


class Held:
    """A spool whose appends wait: how many have begun, and the way to let each go."""

    def __init__(self) -> None:
        self.waiting: list[asyncio.Event] = []

    def let_go(self) -> None:
        """All that wait, and all that come."""
        for each in self.waiting:
            each.set()


@contextlib.contextmanager
def held(spool: MemorySpool, monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    """Appends to that spool wait, as long as the block lasts."""
    found, append = Held(), MemorySpool.append

    async def wait_and_append(self: MemorySpool, *given: Any) -> None:
        event = asyncio.Event()
        found.waiting.append(event)
        await event.wait()
        await append(self, *given)

    assert isinstance(spool, MemorySpool)
    with monkeypatch.context() as patched:
        patched.setattr(MemorySpool, "append", wait_and_append)
        yield found
        found.let_go()
