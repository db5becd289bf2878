"""
The running bridge with a crowd before it: idle and slow clients, floods, bombs. Books close, and memory is bounded.

The bounds stand in docs/overload.md; what was used is printed.
"""

import asyncio
import contextlib
import gzip
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import grpc
import httpx
import pytest
from support.certificates import make_certificates
from support.crowds import PREFACE, SETTINGS, connections, half_a_message, is_closed, pipelined, post
from support.http import zstd
from support.otlp_sink import OtlpSink
from support.scenes import batch_of, delegated, execute, runtime
from support.service import Ledger, Service, WayIn, running

from otel_bridge.model.events import EventBatch
from otel_bridge.v1 import profiling_pb2 as pb
from otel_bridge.wire.codec import request_of
from otel_bridge.wire.servicers import PROFILING

MIB = 1 << 20
IDLE, ACTIVE, TINY, DEVICES = 2000, 64, 100_000, 10_000
EXPORT = f"/{PROFILING}/ExportEvents"
Report = Callable[[str, int, int, int], None]
"""Told of what, and of memory in bytes before, after and at most."""
EVENTS = (delegated("x", 0, 1, 2), runtime("Method::execute", 0, 5))


def rss_bytes(service: Service) -> int:
    """Physical memory of the bridge."""
    return int(Path(f"/proc/{service.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def report(capsys: pytest.CaptureFixture[str]) -> Report:
    """Prints what was used, also where the test passes, and holds it to the bound."""

    def told(what: str, before: int, after: int, bound: int) -> None:
        with capsys.disabled():
            used = f"RSS {before / MIB:.0f} -> {after / MIB:.0f} MiB, bound {bound / MIB:.0f} MiB"
            print(f"\n{what}: {used}")  # noqa: T201 - is asked for
        assert after < bound

    return told


def body_of(batch: EventBatch, stream_id: bytes, sequence: int = 0, **resource: str) -> bytes:
    """A request with one batch."""
    stream = replace(batch.streams[0], stream_id=stream_id, sequence=sequence, resource=tuple(resource.items()))
    return request_of(replace(batch, streams=(stream,))).SerializeToString()


def check_books(service: Service, events: int) -> None:
    """Every event was acknowledged once and has left."""
    service.settle()
    assert service.ledger() == Ledger(accepted=events, emitted=events, dropped=0, waiting=0, recovered=0)


@pytest.fixture
def crowded(tmp_path: Path) -> Iterator[Service]:
    """A bridge of its own, with a back end that takes everything."""
    with OtlpSink() as sink, running(tmp_path, sink) as service:
        yield service


@pytest.mark.timeout(400)
def test_a_hundred_thousand_tiny_requests(crowded: Service, report: Report) -> None:
    """100,000 requests of one event are all acknowledged and emitted, each once."""
    first = body_of(batch_of((execute(), [delegated("x", 0, 1, 2)])), bytes([1]) * 16)
    # Messages of protobuf that follow each other are one: the number is set by what comes last.
    bodies = (first + pb.ExportEventsRequest(stream=pb.Stream(sequence=n)).SerializeToString() for n in range(TINY))
    before = rss_bytes(crowded)
    statuses = asyncio.run(pipelined(crowded.http, [post("/v1/events", body) for body in bodies], ACTIVE))
    assert statuses == {200: TINY}
    check_books(crowded, TINY)
    report(f"{TINY} requests", before, rss_bytes(crowded), 320 * MIB)


@pytest.mark.timeout(120)
def test_idle_connections_and_active_senders(crowded: Service, report: Report) -> None:
    """Beside 2,000 connections that do nothing, half of them over gRPC, 64 senders are served, and every event is emitted."""
    batch, rounds = batch_of((execute(), [*EVENTS] * 10)), 20
    before = rss_bytes(crowded)
    with connections(crowded.http, IDLE // 2), connections(crowded.grpc, IDLE // 2, PREFACE + SETTINGS) as idle:
        bodies = [body_of(batch, bytes([sender]) * 16, n) for sender in range(1, ACTIVE // 2 + 1) for n in range(rounds)]
        posts = [post("/v1/events", body) for body in bodies]

        async def over_grpc(sender: int) -> None:
            async with grpc.aio.insecure_channel(crowded.grpc, [("grpc.use_local_subchannel_pool", 1)]) as channel:
                call = channel.unary_unary(EXPORT)
                for number in range(rounds):
                    await call(body_of(batch, bytes([100 + sender]) * 16, number))

        async def all_of_them() -> None:
            senders = [over_grpc(sender) for sender in range(ACTIVE // 2)]
            statuses, *_ = await asyncio.gather(pipelined(crowded.http, posts, ACTIVE // 2, depth=1), *senders)
            assert statuses == {200: len(posts)}

        asyncio.run(all_of_them())
        assert crowded.counts("receiver_open_connections")[()] > IDLE // 2
        assert not any(map(is_closed, idle))
        check_books(crowded, ACTIVE * rounds * len(batch))
        report(f"{IDLE} idle connections and {ACTIVE} senders", before, rss_bytes(crowded), 320 * MIB)


@pytest.mark.timeout(120)
def test_devices_of_all_kinds(crowded: Service, report: Report) -> None:
    """10,000 devices, each with a resource of its own, leave nothing behind that grows with their number."""
    batch = batch_of((execute(), EVENTS))

    def wave(first: int) -> list[bytes]:
        devices = range(first, first + DEVICES)
        return [post("/v1/events", body_of(batch, n.to_bytes(16, "big"), **{"device.model.name": f"{n}"})) for n in devices]

    asyncio.run(pipelined(crowded.http, wave(1), ACTIVE))
    check_books(crowded, DEVICES * len(batch))
    resources = {
        resource.resource.SerializeToString() for request in crowded.sink.requests for resource in request.resource_spans
    }
    assert len(resources) == DEVICES
    report(f"{DEVICES} resources", 0, rss_bytes(crowded), 320 * MIB)


@pytest.mark.timeout(120)
def test_bombs(crowded: Service, report: Report) -> None:
    """Bodies that become too large are refused, as gzip and as zstd, by either door, however many come at once."""
    zeros = bytes(80 * MIB)
    before = rss_bytes(crowded)
    bombs = [(gzip.compress(zeros, 1), "gzip"), (zstd.compress(zeros, 1), "zstd")]
    packed = pb.ExportEventsRequest(metadata=[zeros])

    async def throw() -> None:
        posts = [post("/v1/etdump", bomb, content_encoding=name) for bomb, name in bombs] * 8
        statuses = await pipelined(crowded.http, posts, 16, depth=1)
        assert set(statuses) <= {413, 503}
        assert statuses[413] >= 1
        options = [("grpc.max_send_message_length", -1)]
        async with grpc.aio.insecure_channel(crowded.grpc, options) as channel:
            call = channel.unary_unary(EXPORT, request_serializer=pb.ExportEventsRequest.SerializeToString)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call(packed, compression=grpc.Compression.Gzip)
            assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED

    asyncio.run(throw())
    check_books(crowded, 0)
    report("16 bombs of 80 MiB", before, rss_bytes(crowded), 768 * MIB)


@pytest.mark.timeout(120)
def test_slow_clients(tmp_path: Path, report: Report) -> None:
    """Headers, bodies, TLS hellos, prefaces and messages that do not go on: all are cut off, while a sender is served."""
    made = make_certificates(tmp_path)
    limits = {"INGRESS__HANDSHAKE_TIMEOUT_S": "1", "INGRESS__BODY_TIMEOUT_S": "1", "INGRESS__IDLE_TIMEOUT_S": "2"}
    head = post("/v1/events", b"").replace(b"length: 0", b"length: 9000")
    plain = {"headers": head[:-2], "bodies": head + b"x", "a letter": b"P"}
    stalled = 100
    body = body_of(batch_of((execute(), EVENTS)), bytes(15) + b"s")
    with OtlpSink() as sink, running(tmp_path, sink, **limits) as service, contextlib.ExitStack() as stack:
        slow = [each for start in plain.values() for each in stack.enter_context(connections(service.http, stalled, start))]
        for start in (PREFACE[:9], PREFACE, half_a_message(EXPORT, 9000)):
            slow += stack.enter_context(connections(service.grpc, stalled, start))
        before = rss_bytes(service)
        answers = [httpx.post(f"http://{service.http}/v1/events", content=body, timeout=30, trust_env=False) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200] * 3
        service.process.wait_until(lambda: all(map(is_closed, slow)))
        assert service.counts("receiver_requests")["body_stalled", "grpc"] == stalled
        assert service.counts("receiver_requests")["body_stalled", "http"] == stalled
        check_books(service, len(EVENTS))
        report(f"{len(slow)} slow clients", before, rss_bytes(service), 320 * MIB)
    limits |= {"SERVER__TLS_CERTIFICATE": str(made.server), "SERVER__TLS_KEY": str(made.server_key)}
    way_in = WayIn(made.authority, tmp_path / "no token")
    way_in.token.write_text("none")
    with (
        OtlpSink() as sink,
        running(tmp_path, sink, way_in=way_in, **limits) as service,
        contextlib.ExitStack() as stack,
    ):
        for where in (service.http, service.grpc):
            slow = stack.enter_context(connections(where, stalled, b"\x16\x03\x01\x02"))
            assert service.get("/healthz").is_success
            service.process.wait_until(lambda slow=slow: all(map(is_closed, slow)))
