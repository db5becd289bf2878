"""Streams of requests over gRPC: order, refusals, and how a stream ends."""

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from support.crowds import until
from support.requests import a_request
from support.scenes import delegated

from otel_bridge.v1 import profiling_pb2 as pb
from otel_bridge.v1.profiling_pb2_grpc import ProfilingServiceStub

Opened, Run = Callable[..., Any], Callable[..., Any]


def test_answers_in_order(opened: Opened, run: Run) -> None:
    """Each request has its answer, in order."""

    async def main() -> None:
        async with opened() as doors:
            call = ProfilingServiceStub(doors.channel).StreamEvents()
            for number in range(100):
                await call.write(a_request(*[delegated("x", 0, at, at + 1) for at in range(number % 7 + 1)]))
            await call.done_writing()
            assert [answer.accepted async for answer in call] == [number % 7 + 1 for number in range(100)]
            assert await call.code() is grpc.StatusCode.OK
            assert doors.turnstile.requests == doors.turnstile.size_bytes == len(doors.streams) == 0

    run(main())
