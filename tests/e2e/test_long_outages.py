"""Back ends that fail for longer than one request, as docs/outages.md has them: by the real process, counted exactly."""

import itertools
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import grpc
import httpx
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from grpc_status import rpc_status
from support.copies import assert_equal, copies_at
from support.lives import AWAY, EVENTS, POISON, request, trace_of
from support.otlp_answers import TAKE, Answer
from support.otlp_sink import OtlpSink
from support.service import Service, running

from otel_bridge.export.dead_letters import DIRECTORY
from otel_bridge.export.letter import letters_in

QUICK = {"EXPORT__RETRY_INITIAL_S": "0.05", "EXPORT__RETRY_MAX_S": "0.1", "EXPORT__LINGER_MS": "1"}
POISONOUS = 5
"""The sequence of a request that holds poison, see `support.lives.request`."""


@pytest.fixture
def sink() -> Iterator[OtlpSink]:
    """A back end of its own for each test."""
    with OtlpSink() as sink:
        yield sink


def send(service: Service, sequence: int) -> None:
    """A request of three events, which is acknowledged."""
    assert service.profiling.ExportEvents(request(sequence)).accepted == EVENTS


def assert_arrived(service: Service, sink: OtlpSink, sequences: set[int]) -> None:
    """All spans of these requests arrived once, and nothing else did; the books say the same."""
    service.settle()
    found = copies_at(sink)
    assert {trace for trace in found if found[trace]} == {trace_of(sequence) for sequence in sequences}
    assert all(len(spans) == EVENTS for spans in found.values())
    assert assert_equal(found) == 0
    assert service.ledger().emitted == EVENTS * len(sequences)


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_connections_end_in_good_order(sink: OtlpSink, tmp_path: Path, protocol: str) -> None:
    """GOAWAY, or `Connection: close`: each request goes over a connection that is open, and none has to be sent again."""
    sink.go_away()
    sink.max_connection_s = 0.2
    sink.answer = Answer(headers={"connection": "close"})
    sink.come_back()
    endpoint = sink.grpc_endpoint if protocol == "grpc" else sink.http_endpoint
    egress = {"OTEL_EXPORTER_OTLP_PROTOCOL": protocol, "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}
    with running(tmp_path, sink, **QUICK, **egress) as service:
        begun, sent = time.monotonic(), 0
        while time.monotonic() - begun < 1.5:  # connections that are some times as old as they may get
            send(service, 100 + sent)
            sent += 1
            sink.wait_for_spans(EVENTS * sent)
        assert_arrived(service, sink, {100 + number for number in range(sent)})
        assert service.counts("exporter_failed_requests").total() == 0


def test_away_for_longer_than_memory_lasts(sink: OtlpSink, tmp_path: Path) -> None:
    """What waits beyond `spool.memory_bytes` is on disk alone, and arrives once, in the order in which it came."""
    sink.answer = AWAY
    with running(tmp_path, sink, SPOOL__MEMORY_BYTES="20000", **QUICK) as service:
        sequences = [sequence for sequence in range(400) if sequence % 97 != POISONOUS]
        for sequence in sequences:
            send(service, sequence)
        assert service.counts("spool_size")[()] == EVENTS * len(sequences)
        assert service.counts("spool_size_bytes")[()] > 3 * 20_000
        sink.answer = TAKE
        assert_arrived(service, sink, set(sequences))
        assert service.ledger().dropped == 0


def test_away_until_the_spool_is_full(sink: OtlpSink, tmp_path: Path) -> None:
    """Senders are told to come again, by both doors, and balancers to turn away; nothing of it is kept, the rest arrives."""
    sink.answer = AWAY
    with running(tmp_path, sink, SPOOL__MAX_BYTES="1048576", SERVER__MAX_REQUEST_BYTES="1048576", **QUICK) as service:
        kept: set[int] = set()
        refused = None
        for sequence in (each for each in itertools.count() if each % 97 != POISONOUS):
            try:
                send(service, sequence)
            except grpc.RpcError as error:
                refused = error
                break
            kept.add(sequence)
        assert refused is not None
        assert refused.code() is grpc.StatusCode.UNAVAILABLE
        status = rpc_status.from_call(refused)
        assert status is not None
        assert any(detail.Is(RetryInfo.DESCRIPTOR) for detail in status.details)
        headers = {"content-type": "application/x-protobuf"}
        body = request(10**6).SerializeToString()
        answer = httpx.post(f"http://{service.http}/v1/events", content=body, headers=headers, timeout=30, trust_env=False)
        assert (answer.status_code, int(answer.headers["retry-after"]) > 0) == (503, True)
        assert service.get("/healthz").is_success
        ready = service.get("/readyz")
        assert (ready.status_code, "spool: full" in ready.text.splitlines()) == (503, True)
        sink.answer = TAKE
        assert_arrived(service, sink, kept)
        service.process.wait_until(lambda: service.get("/readyz").is_success)
        send(service, 10**6)
        assert_arrived(service, sink, kept | {10**6})


def test_one_request_fails_while_others_pass(sink: OtlpSink, tmp_path: Path) -> None:
    """It is given up after `retry_max_stuck_s`, and kept; the others are not held up."""
    sink.judge = lambda payload: AWAY if POISON in payload else None
    with running(tmp_path, sink, EXPORT__RETRY_MAX_STUCK_S="0.3", **QUICK) as service:
        send(service, POISONOUS)
        service.process.wait_until(lambda: service.counts("exporter_failed_requests").total() > 0)
        sent = 0
        while service.ledger().dropped == 0:
            send(service, 1000 * 97 + POISONOUS + 1 + sent)
            sent += 1
            sink.wait_for_spans(EVENTS * sent)
        assert_arrived(service, sink, {1000 * 97 + POISONOUS + 1 + number for number in range(sent)})
        assert service.counts("dropped_events") == Counter({("back_end_unavailable",): EVENTS})
        letters = [(letter.reason, letter.spans) for letter in letters_in(tmp_path / "data" / DIRECTORY)]
        assert letters == [("back_end_unavailable", EVENTS)]


def test_up_and_down_again(sink: OtlpSink, tmp_path: Path) -> None:
    """A back end that takes every third request only: all arrive once, and nothing is dropped."""
    turns = itertools.count()
    sink.judge = lambda _: None if next(turns) % 3 == 2 else replace(AWAY)
    with running(tmp_path, sink, **QUICK) as service:
        for sequence in range(10, 60):
            send(service, sequence)
        assert_arrived(service, sink, set(range(10, 60)))
        assert service.ledger().dropped == 0
