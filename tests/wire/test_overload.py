"""Both doors with more asked of them than they bear: what is told, and that the next request is taken."""

import asyncio
import contextlib
import zlib
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_status import rpc_status
from support.crowds import PATIENCE_S, half_a_message, post, until
from support.http import DUMP, sent, the_fault
from support.requests import a_request
from support.scenes import delegated

from otel_bridge.v1 import profiling_pb2 as pb
from otel_bridge.v1.profiling_pb2_grpc import ProfilingServiceStub
from otel_bridge.wire import lookers
from otel_bridge.wire.servicers import PROFILING
from otel_bridge.wire.turnstile import Limits, Memory

EXPORT = f"/{PROFILING}/ExportEvents"
REQUEST = a_request(delegated("x", 0, 1, 2))
BODY = REQUEST.SerializeToString()
Opened, Run = Callable[..., Any], Callable[..., Any]


def told(error: grpc.aio.AioRpcError) -> tuple[str, float]:
    """The reason, and how long to wait."""
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    info, retry = ErrorInfo(), RetryInfo()
    status = rpc_status.from_call(error)  # type: ignore[arg-type]  # the stubs know synchronous calls only
    assert status is not None
    status.details[0].Unpack(info)
    status.details[1].Unpack(retry)
    return info.reason, retry.retry_delay.ToNanoseconds() / 1e9


async def refused(call: Any) -> grpc.aio.AioRpcError:
    """The error of a call that fails."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value


async def raw_call(address: str, size: int = 1000) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A call of gRPC whose message does not end."""
    return await sent(address, half_a_message(EXPORT, size + 1000))


def test_a_full_bridge(opened: Opened, run: Run) -> None:
    """With as many requests inside and waiting as may be, the next is told to come again, by either door; health answers."""

    async def main() -> None:
        async with opened(limits=Limits(requests=1, waiting=0)) as doors:
            with await doors.turnstile.enter():
                waits = []
                for _ in range(20):
                    reason, wait_s = told(await refused(ProfilingServiceStub(doors.channel).ExportEvents(REQUEST)))
                    assert reason == "OVERLOADED"
                    waits.append(wait_s)
                assert 5.0 <= min(waits) < max(waits) <= 7.5
                answer = await doors.client.post("/v1/etdump", content=DUMP)
                assert the_fault(answer, 503)["reason"] == "overloaded"
                assert answer.headers["retry-after"] in {"6", "7", "8"}
                assert (await doors.client.get("/v1/mappings")).status_code == 503
                assert [(await doors.client.get(path)).status_code for path in ("/healthz", "/readyz", "/metrics")] == [200] * 3
                await health_pb2_grpc.HealthStub(doors.channel).Check(health_pb2.HealthCheckRequest())
            assert (await doors.client.post("/v1/etdump", content=DUMP)).status_code == 200
            assert (await ProfilingServiceStub(doors.channel).ExportEvents(REQUEST)).accepted == 1
            assert doors.tally.outcomes == {"overloaded": 22, "ok": 2}
            assert doors.turnstile.requests == 0

    run(main())


def test_a_refused_message_is_not_read(opened: Opened, run: Run) -> None:
    """Who is turned away is told before the message is there."""

    async def main() -> None:
        async with opened(limits=Limits(requests=1, waiting=0)) as doors:
            with await doors.turnstile.enter():
                _, writer = await raw_call(doors.grpc.address, 1 << 19)
                await doors.tally.heard("overloaded")
                _, other = await sent(doors.http.address, post("/v1/events", b"")[:-2].replace(b"length: 0", b"length: 9"))
                other.write(b"\r\n")
                writer.close()
                other.close()

    run(main())


def test_memory_runs_short(opened: Opened, run: Run) -> None:
    """Where memory runs short, messages on their way are turned away, and new requests too; once it fell all are taken."""
    used = [0]

    async def main() -> None:
        async with opened(memory=Memory(100, lambda: used[0])) as doors:
            _, writer = await raw_call(doors.grpc.address)
            await until(lambda: doors.turnstile.requests)
            used[0] = 101
            await doors.tally.heard("memory_limit")
            await until(lambda: not doors.turnstile.requests)
            reason, _ = told(await refused(ProfilingServiceStub(doors.channel).ExportEvents(REQUEST)))
            assert reason == "MEMORY_LIMIT"
            assert the_fault(await doors.client.post("/v1/etdump", content=DUMP), 503)["reason"] == "memory_limit"
            await health_pb2_grpc.HealthStub(doors.channel).Check(health_pb2.HealthCheckRequest())
            used[0] = 0
            async with asyncio.timeout(PATIENCE_S):
                while (await doors.client.post("/v1/events", content=BODY)).status_code != 200:  # noqa: ASYNC110 - asks the bridge
                    await asyncio.sleep(0.01)
            writer.close()

    run(main())


def test_a_message_that_does_not_end(opened: Opened, run: Run) -> None:
    """A message over gRPC that is not there in time is turned away, counted, and leaves the turnstile."""

    async def main() -> None:
        async with opened(body_timeout_s=2.0) as doors:
            calls = [await raw_call(doors.grpc.address) for _ in range(5)]
            await until(lambda: doors.tally.outcomes["body_stalled"] == 5)
            await until(lambda: not doors.turnstile.requests)
            assert (await ProfilingServiceStub(doors.channel).ExportEvents(REQUEST)).accepted == 1
            for _, writer in calls:
                writer.close()

    run(main())


def test_messages_that_keep_others_out(opened: Opened, run: Run) -> None:
    """However long a message may take, where others wait for its place it has no longer than they have."""

    async def main() -> None:
        async with opened(limits=Limits(requests=2, wait_s=0.5), body_timeout_s=1000.0) as doors:
            calls = [await raw_call(doors.grpc.address) for _ in range(2)]
            await until(lambda: doors.turnstile.requests == 2)
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    with contextlib.suppress(grpc.aio.AioRpcError):  # it may be a moment too early
                        await ProfilingServiceStub(doors.channel).ExportEvents(REQUEST)
                        break
            assert doors.tally.outcomes["body_stalled"] in {1, 2}
            for _, writer in calls:
                writer.close()

    run(main())


def test_a_bomb_over_grpc(opened: Opened, run: Run) -> None:
    """A message that gzip makes small is bounded by what it becomes; nothing of it is kept, and the connection goes on."""

    async def main() -> None:
        async with opened(limit_bytes=1 << 20) as doors:
            stub = ProfilingServiceStub(doors.channel)
            bomb = pb.ExportEventsRequest(metadata=[bytes(32 << 20)])
            assert len(zlib.compress(bomb.SerializeToString())) < 1 << 16
            error = await refused(stub.ExportEvents(bomb, compression=grpc.Compression.Gzip))
            assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert (await stub.ExportEvents(REQUEST, compression=grpc.Compression.Gzip)).accepted == 1
            assert doors.turnstile.size_bytes == doors.turnstile.requests == 0

    run(main())


def test_bodies_together(opened: Opened, run: Run) -> None:
    """Bodies that are small each, and too large together, are taken as far as there is room: the others are told to wait."""

    async def main() -> None:
        async with opened(limit_bytes=8 << 20, spool_bytes=100 << 20, limits=Limits(size_bytes=1 << 20)) as doors:
            request = a_request(delegated("x", 0, 1, 2))
            request.metadata.append(bytes(600_000))
            stub = ProfilingServiceStub(doors.channel)
            with await doors.turnstile.enter() as other:
                other.resize(600_000)
                assert told(await refused(stub.ExportEvents(request)))[0] == "OVERLOADED"
                answer = await doors.client.post("/v1/events", content=request.SerializeToString())
                assert answer.status_code == 503
            assert (await stub.ExportEvents(request)).accepted == 1
            assert (await doors.client.post("/v1/events", content=request.SerializeToString())).status_code == 200

    run(main())


def test_a_length_that_is_too_much(opened: Opened, run: Run) -> None:
    """A body whose header says that it is over the limit is refused before it comes."""

    async def main() -> None:
        async with opened(limit_bytes=1 << 20) as doors:
            head = post("/v1/etdump", b"").replace(b"content-length: 0", b"content-length: 1048577")
            reader, writer = await sent(doors.http.address, head)
            assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 413 ")
            writer.close()

    run(main())


def test_nobody_waits(opened: Opened, run: Run) -> None:
    """A request whose deadline passes while it waits to be let in, or whose client goes, is not kept, and is counted once."""

    async def main() -> None:
        async with opened(limits=Limits(requests=1, wait_s=60)) as doors:
            stub = ProfilingServiceStub(doors.channel)
            with await doors.turnstile.enter():
                error = await refused(stub.ExportEvents(REQUEST, timeout=2))
                assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
                await doors.tally.heard("disconnected")
                _, writer = await sent(doors.http.address, post("/v1/events", BODY))
                await until(lambda: doors.turnstile.waiting)
                writer.close()
                await until(lambda: not doors.http.connections)
            await until(lambda: doors.tally.outcomes["disconnected"] == 2)
            assert (doors.outlet.events, doors.tally.taken) == (0, 0)
            assert (await stub.ExportEvents(REQUEST)).accepted == 1

    run(main())


def test_lookers_are_bounded(opened: Opened, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many watch health; the next is told to come again, who checks it is answered, and events are taken all the same."""
    monkeypatch.setattr(lookers, "MAX_OPEN", 3)

    async def main() -> None:
        async with opened() as doors:
            health = health_pb2_grpc.HealthStub(doors.channel)
            watching = [health.Watch(health_pb2.HealthCheckRequest()) for _ in range(3)]
            for each in watching:
                await each.read()
            assert told(await refused(health.Watch(health_pb2.HealthCheckRequest()).read()))[0] == "OVERLOADED"
            await health.Check(health_pb2.HealthCheckRequest())
            assert (await ProfilingServiceStub(doors.channel).ExportEvents(REQUEST)).accepted == 1
            for each in watching:
                each.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching[0].read()
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    with contextlib.suppress(grpc.aio.AioRpcError):
                        await health.Watch(health_pb2.HealthCheckRequest()).read()
                        break

    run(main())


def test_checks_that_do_not_end(opened: Opened, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who begins to check health and does not end keeps nobody else from it: the oldest of these is told to come again."""
    monkeypatch.setattr(lookers, "MAX_OPEN", 3)
    half = half_a_message("/grpc.health.v1.Health/Check", 2000)

    async def main() -> None:
        async with opened() as doors:
            health = health_pb2_grpc.HealthStub(doors.channel)
            stuck = [await sent(doors.grpc.address, half) for _ in range(3)]
            await until(lambda: doors.grpc._guards[-1]._open.total() == 3)
            for _ in range(3):  # once one has made room there is room
                await health.Check(health_pb2.HealthCheckRequest())
            assert doors.tally.outcomes == {"overloaded": 1}
            for _, writer in stuck:
                writer.close()

    run(main())
