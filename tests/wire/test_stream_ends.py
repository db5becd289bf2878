"""Streams of requests over gRPC: how they end, whoever ends them."""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from support.crowds import half_a_message, until
from support.http import sent
from support.streams import answers, held, requests
from support.tokens import NOON, Issuer, gate_of

from otel_bridge.errors import SpoolFull
from otel_bridge.model.identity import Scope
from otel_bridge.spool.memory import MemorySpool
from otel_bridge.telemetry.traces import Traces
from otel_bridge.v1.profiling_pb2_grpc import ProfilingServiceStub
from otel_bridge.wire.call import Arrivals
from otel_bridge.wire.connections import ConnectionLimits
from otel_bridge.wire.servicers import PROFILING
from otel_bridge.wire.streams import MAX_AT_ONCE
from otel_bridge.wire.turnstile import Memory

Opened, Run = Callable[..., Any], Callable[..., Any]


def test_a_client_that_goes(opened: Opened, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is being kept when its sender goes is kept, counts until then, and is a duplicate when it comes again."""

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
                await until(lambda: not len(doors.streams))
                assert doors.turnstile.requests == 8
            await until(lambda: not doors.turnstile.requests)
            assert [(await stub.ExportEvents(each)).accepted for each in eight] == [*range(1, 8), 1]
            assert doors.tally.taken == 29
            assert doors.tally.outcomes == {"disconnected": 8, "ok": 8, "duplicate": 8}

    run(main())


def test_requests_whose_client_goes_are_told_as_that(opened: Opened, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request of a stream that its client gives up makes a span that says so, as a call's does."""
    kept, tracers = InMemorySpanExporter(), TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(kept))

    async def main() -> None:
        async with opened() as doors:
            doors.streams.traces = Traces(tracers.get_tracer("test"))
            call = ProfilingServiceStub(doors.channel).StreamEvents()
            with held(doors.spool, monkeypatch) as appends:
                await call.write(requests(1)[0])
                await until(lambda: appends.waiting)
                call.cancel()
                await until(lambda: not len(doors.streams))
            await until(lambda: not doors.turnstile.requests)

    run(main())
    codes = [
        (span.attributes or {}).get("rpc.response.status_code")
        for span in kept.get_finished_spans()
        if span.name != "spool.append"
    ]
    assert codes == ["CANCELLED"]


def test_a_deadline(opened: Opened, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream ends at the deadline of its call, whatever is in work."""

    async def main() -> None:
        async with opened() as doors:
            call = ProfilingServiceStub(doors.channel).StreamEvents(timeout=3)
            with held(doors.spool, monkeypatch) as appends:
                await call.write(requests(1)[0])
                await until(lambda: appends.waiting)
                assert await answers(call) == []
                assert await call.code() is grpc.StatusCode.DEADLINE_EXCEEDED
                await until(lambda: not len(doors.streams))
            await until(lambda: not doors.turnstile.requests)

    run(main())


def test_silence_is_bounded(opened: Opened, run: Run) -> None:
    """A stream on which nothing comes ends, with OK and every answer; so does one whose first message does not end."""

    async def main() -> None:
        async with opened(connections=ConnectionLimits(idle_s=2.0)) as doors:
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


def test_silence_begins_where_there_is_room(opened: Opened, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that the bridge reads no further, since enough of it is in work, is not silent: its time begins after that."""
    idle_s = 2.0

    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with opened(connections=ConnectionLimits(idle_s=idle_s)) as doors:
            opened_s = loop.time()
            call = ProfilingServiceStub(doors.channel).StreamEvents()
            with held(doors.spool, monkeypatch) as appends:
                for request in requests(MAX_AT_ONCE):
                    await call.write(request)
                await until(lambda: len(appends.waiting) == MAX_AT_ONCE)
                await until(lambda: loop.time() > opened_s + 1.8 * idle_s)
                let_go_s = loop.time()
            assert len(await answers(call)) == MAX_AT_ONCE
            assert await call.code() is grpc.StatusCode.OK
            assert loop.time() - let_go_s >= idle_s

    run(main())


def test_a_silent_stream_holds_no_body(opened: Opened, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a request that was answered a stream keeps nothing: thousands that are silent would hold as many bodies, uncounted."""
    let_go = []

    class Body(bytes):
        def __del__(self) -> None:
            let_go.append(len(self))

    next_of = Arrivals.next

    async def noted(self: Arrivals, context: Any) -> bytes | None:
        body = await next_of(self, context)
        return body if body is None else Body(body)

    monkeypatch.setattr(Arrivals, "next", noted)

    async def main() -> None:
        async with opened() as doors:
            call = ProfilingServiceStub(doors.channel).StreamEvents()
            (request,) = requests(1)
            await call.write(request)
            assert (await call.read()).accepted == 1
            await until(lambda: let_go == [request.ByteSize()])
            assert len(doors.streams) == 1
            call.cancel()

    run(main())


def test_the_end_of_the_bridge(opened: Opened, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the bridge stops, a stream ends after the answers of what is in work; a silent one at once, and one that is late."""

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
            late = stub.StreamEvents()
            assert await answers(late) == []
            assert [await call.code() for call in (silent, busy, late)] == [grpc.StatusCode.OK] * 3

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


def test_memory_runs_short_and_what_is_in_work_fails(
    opened: Opened, run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A stream that was ended for short memory has its status: what becomes of its requests later is no fault of the bridge."""
    used, full = [0], asyncio.Event()

    async def wait_and_fail(_spool: MemorySpool, *_given: object) -> None:
        await full.wait()
        raise SpoolFull("no room; try again later")

    monkeypatch.setattr(MemorySpool, "append", wait_and_fail)

    async def main() -> None:
        async with opened(memory=Memory(100, lambda: used[0])) as doors:
            call = ProfilingServiceStub(doors.channel).StreamEvents()
            await call.write(requests(1)[0])
            await until(lambda: doors.turnstile.requests)
            used[0] = 101
            assert await answers(call) == []
            assert await call.code() is grpc.StatusCode.UNAVAILABLE
            full.set()
            await until(lambda: not len(doors.streams))
            assert doors.tally.outcomes == {"memory_limit": 1, "spool_full": 1}

    run(main())
    assert [record.name for record in caplog.records] == ["otel_bridge.wire.turnstile"]


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
