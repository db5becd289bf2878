"""Streams of requests over gRPC: how they end, whoever ends them."""

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from support.crowds import half_a_message, until
from support.http import sent
from support.streams import answers, held, requests
from support.tokens import NOON, Issuer, gate_of

from otel_bridge.model.identity import Scope
from otel_bridge.v1.profiling_pb2_grpc import ProfilingServiceStub
from otel_bridge.wire.connections import ConnectionLimits
from otel_bridge.wire.servicers import PROFILING
from otel_bridge.wire.turnstile import Memory

Opened, Run = Callable[..., Any], Callable[..., Any]


def test_a_client_that_goes(opened: Opened, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is being kept when its sender goes is kept, and a duplicate when it comes again; nothing stays in the bridge."""

    async def main() -> None:
        async with opened() as doors:
            stub = ProfilingServiceStub(doors.channel)
            eight = requests(8)
            call = stub.StreamEvents()
            with held(doors.spool, monkeypatch) as appends:
                for request in eight:
                    await call.write(request)
                await until(lambda: len(appends.waiting) == 8)
                call.cancel()
                await until(lambda: not len(doors.streams) and not doors.turnstile.requests)
            await until(lambda: doors.tally.taken)
            assert [(await stub.ExportEvents(each)).accepted for each in eight] == [*range(1, 8), 1]
            assert doors.tally.taken == 29
            assert doors.tally.outcomes == {"disconnected": 8, "ok": 8, "duplicate": 8}

    run(main())


def test_a_deadline(opened: Opened, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream ends at the deadline of its call, whatever is in work."""

    async def main() -> None:
        async with opened() as doors:
            call = ProfilingServiceStub(doors.channel).StreamEvents(timeout=0.3)
            with held(doors.spool, monkeypatch) as appends:
                await call.write(requests(1)[0])
                await until(lambda: appends.waiting)
                assert await answers(call) == []
                assert await call.code() is grpc.StatusCode.DEADLINE_EXCEEDED
                await until(lambda: not len(doors.streams) and not doors.turnstile.requests)

    run(main())


def test_silence_is_bounded(opened: Opened, run: Run) -> None:
    """A stream on which nothing comes ends, with OK and every answer; so does one whose first message does not end."""

    async def main() -> None:
        async with opened(connections=ConnectionLimits(idle_s=0.3)) as doors:
            call = ProfilingServiceStub(doors.channel).StreamEvents()
            for request in requests(3):
                await call.write(request)
            assert await answers(call) == [1, 2, 3]
            assert await call.code() is grpc.StatusCode.OK
            assert doors.tally.outcomes == {"ok": 3}
            _, writer = await sent(doors.grpc.address, half_a_message(f"/{PROFILING}/StreamEvents", 2000))
            await until(lambda: len(doors.streams) == 1)
            await until(lambda: not len(doors.streams))
            writer.close()

    run(main())


def test_the_end_of_the_bridge(opened: Opened, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the bridge stops, a stream ends after the answers of what is in work; a silent one at once."""

    async def main() -> None:
        async with opened() as doors:
            stub = ProfilingServiceStub(doors.channel)
            silent, busy = stub.StreamEvents(), stub.StreamEvents()
            with held(doors.spool, monkeypatch) as appends:
                for request in requests(3):
                    await busy.write(request)
                await until(lambda: len(appends.waiting) == 3)
                await until(lambda: len(doors.streams) == 2)
                doors.streams.end()
                assert await answers(silent) == []
                assert not busy.done()
            assert await answers(busy) == [1, 2, 3]
            assert [await call.code() for call in (silent, busy)] == [grpc.StatusCode.OK] * 2

    run(main())


def test_memory_runs_short(opened: Opened, run: Run) -> None:
    """Where memory runs short open streams end, since a message may be on its way in any of them."""
    used = [0]

    async def main() -> None:
        async with opened(memory=Memory(100, lambda: used[0])) as doors:
            call = ProfilingServiceStub(doors.channel).StreamEvents()
            await call.write(requests(1)[0])
            assert (await call.read()).accepted == 1
            used[0] = 101
            assert await answers(call) == []
            assert await call.code() is grpc.StatusCode.UNAVAILABLE
            assert doors.tally.outcomes == {"ok": 1, "memory_limit": 1}
            await until(lambda: not len(doors.streams))

    run(main())


def test_as_many_as_connections(opened: Opened, run: Run) -> None:
    """One stream more than connections may be is told to come again; where one has ended there is room."""

    async def main() -> None:
        async with opened(connections=ConnectionLimits(connections=2)) as doors:
            stub = ProfilingServiceStub(doors.channel)
            first, _second = stub.StreamEvents(), stub.StreamEvents()
            await until(lambda: len(doors.streams) == 2)
            third = stub.StreamEvents()
            assert await answers(third) == []
            assert await third.code() is grpc.StatusCode.UNAVAILABLE
            await first.done_writing()
            assert await first.code() is grpc.StatusCode.OK
            fourth = stub.StreamEvents()
            await fourth.write(requests(1)[0])
            assert (await fourth.read()).accepted == 1
            assert doors.tally.outcomes == {"overloaded": 1, "ok": 1}

    run(main())


def test_a_credential_that_ends_meanwhile(opened: Opened, run: Run, tmp_path: Path) -> None:
    """The gate is asked for each request: a stream does not outlive its credential."""
    issuer = Issuer(tmp_path / "tokens.json")
    token = issuer.issue(Scope.EVENTS_WRITE, lifetime=timedelta(hours=1))
    now: list[datetime] = [NOON]
    gate = gate_of(issuer.file, now=lambda: now[0])

    async def main() -> None:
        async with opened(gate=gate) as doors:
            call = ProfilingServiceStub(doors.channel).StreamEvents(metadata=[("authorization", f"Bearer {token}")])
            first, second = requests(2)
            await call.write(first)
            assert (await call.read()).accepted == 1
            now[0] += timedelta(hours=2)
            await call.write(second)
            assert await answers(call) == []
            assert await call.code() is grpc.StatusCode.UNAUTHENTICATED
            assert doors.tally.taken == 1
            assert doors.tally.outcomes == {"ok": 1, "unauthenticated": 1}

    run(main())
