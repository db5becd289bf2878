"""Streams of requests over gRPC: order, bounds, and refusals."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.crowds import until
from support.streams import answers, held, requests

from otel_bridge.v1 import profiling_pb2 as pb
from otel_bridge.v1.profiling_pb2_grpc import ProfilingServiceStub
from otel_bridge.wire.intake import said_later
from otel_bridge.wire.servicers import PROFILING
from otel_bridge.wire.streams import MAX_AT_ONCE
from otel_bridge.wire.turnstile import Limits

Opened, Run = Callable[..., Any], Callable[..., Any]


def test_answers_in_order(opened: Opened, run: Run) -> None:
    """Each request of a stream has its answer, in order, and is counted as a call is; nothing stays behind."""

    async def main() -> None:
        async with opened() as doors:
            call = ProfilingServiceStub(doors.channel).StreamEvents()
            for request in requests(100):
                await call.write(request)
            await call.done_writing()
            assert await answers(call) == [number % 7 + 1 for number in range(100)]
            assert await call.code() is grpc.StatusCode.OK
            assert doors.tally.outcomes == {"ok": 100}
            assert doors.turnstile.requests == doors.turnstile.size_bytes == len(doors.streams) == 0

    run(main())


def test_several_at_once_and_no_more(opened: Opened, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests of a stream are kept beside each other, up to a bound; what is kept first is not answered before its turn."""

    async def main() -> None:
        async with opened() as doors:
            call = ProfilingServiceStub(doors.channel).StreamEvents()
            with held(doors.spool, monkeypatch) as appends:
                for request in requests(MAX_AT_ONCE * 2):
                    await call.write(request)
                await until(lambda: len(appends.waiting) == MAX_AT_ONCE)
                assert doors.turnstile.requests == MAX_AT_ONCE
                for event in appends.waiting[1:]:
                    event.set()
                await until(lambda: doors.tally.outcomes["ok"] == MAX_AT_ONCE - 1)
                assert len(appends.waiting) == MAX_AT_ONCE
            await call.done_writing()
            assert await answers(call) == [number % 7 + 1 for number in range(MAX_AT_ONCE * 2)]

    run(main())


def test_a_refusal_ends_a_stream_in_its_turn(opened: Opened, run: Run) -> None:
    """A request that is refused ends the stream with its status, after the answers before it; the rest can be sent again."""

    async def main() -> None:
        async with opened() as doors:
            raw = doors.channel.stream_stream(f"/{PROFILING}/StreamEvents", None, pb.ExportEventsResponse.FromString)
            all_of_them = requests(5)
            bodies = [each.SerializeToString() for each in all_of_them]
            call = raw()
            reading = asyncio.ensure_future(answers(call))
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # it may end before all are written
                for body in (*bodies[:3], b"\xff", *bodies[3:]):
                    await call.write(body)
            assert await reading == [1, 2, 3]
            assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert "is no otel_bridge.v1.ExportEventsRequest" in await call.details()
            stub = ProfilingServiceStub(doors.channel)
            assert [(await stub.ExportEvents(each)).accepted for each in all_of_them] == [1, 2, 3, 4, 5]
            assert doors.tally.taken == 15
            assert doors.tally.outcomes["undecodable"] == 1
            assert doors.turnstile.requests == 0

    run(main())


def test_a_silent_stream_takes_no_room(opened: Opened, run: Run) -> None:
    """Beside an open stream there is room for the one request that may be inside; where there is none its own is refused."""

    async def main() -> None:
        async with opened(limits=Limits(requests=1, waiting=0)) as doors:
            stub = ProfilingServiceStub(doors.channel)
            call = stub.StreamEvents()
            first, second, third = requests(3)
            await call.write(first)
            assert (await call.read()).accepted == 1
            assert doors.turnstile.requests == 0
            assert (await stub.ExportEvents(second)).accepted == 2
            with await doors.turnstile.enter():
                await call.write(third)
                assert await answers(call) == []
            assert await call.code() is grpc.StatusCode.UNAVAILABLE
            assert doors.tally.outcomes == {"ok": 2, "overloaded": 1}

    run(main())


def test_bodies_of_a_stream_count(opened: Opened, run: Run) -> None:
    """A request that is too much together with others is refused once it is there, and leaves the turnstile."""

    async def main() -> None:
        async with opened(limits=Limits(size_bytes=1 << 19)) as doors:
            (request,) = requests(1)
            request.metadata.append(bytes(400_000))
            with await doors.turnstile.enter() as other:
                other.resize(200_000)
                call = ProfilingServiceStub(doors.channel).StreamEvents()
                await call.write(request)
                assert await answers(call) == []
                assert await call.code() is grpc.StatusCode.UNAVAILABLE
                await until(lambda: doors.turnstile.size_bytes == 200_000)
            assert doors.tally.outcomes == {"overloaded": 1}

    run(main())


def test_a_bomb(opened: Opened, run: Run) -> None:
    """A message that gzip makes small is bounded by what it becomes: it ends the stream, and the connection goes on."""

    async def main() -> None:
        async with opened(limit_bytes=1 << 20) as doors:
            stub = ProfilingServiceStub(doors.channel)
            call = stub.StreamEvents(compression=grpc.Compression.Gzip)
            (request,) = requests(1)
            await call.write(request)
            assert (await call.read()).accepted == 1
            await call.write(pb.ExportEventsRequest(metadata=[bytes(32 << 20)]))
            assert await answers(call) == []
            assert await call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert (await stub.ExportEvents(request)).accepted == 1
            await until(lambda: not len(doors.streams))
            assert doors.turnstile.requests == 0

    run(main())


@given(st.integers(1, 2**62), st.integers(0, 2**61))
def test_a_clock_as_it_was_when_the_stream_was_opened(said_ns: int, passed_ns: int) -> None:
    """A sender's clock goes on as ours does; one that was not told is not made up."""
    assert said_later(str(said_ns), passed_ns) == str(said_ns + passed_ns)
    assert said_later(None, passed_ns) is said_later("soon", passed_ns) is None
