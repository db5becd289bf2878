"""A client and its bridge, good and bad days: what is recorded arrives once, or is counted and told of."""

import os
import threading
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from support.faulty_bridge import FaultyBridge
from support.inferences import QUICK, infer, names_of, positions_of
from support.otlp_answers import Answer
from support.otlp_sink import OtlpSink
from support.processes import LOOPBACK, free_port
from support.relay import Relay
from support.service import Service, running
from support.waiting import wait_until

from otel_bridge.client import BridgeClient, ClientSettings, ClientStats, EventTracer
from otel_bridge.errors import ConfigError, SpoolFull
from otel_bridge.wire.status import status_of

UNAVAILABLE, EXHAUSTED = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED
PATIENT = replace(QUICK, batch_age_s=60.0)


def test_into_a_real_bridge(service: Service) -> None:
    """Each event is accepted and comes out as one span, under the resource of the client."""
    with BridgeClient(service.grpc, resource={"service.name": "app"}, settings=QUICK) as client:
        tracer = EventTracer(client, model="net@1")
        recorded = sum(infer(tracer) for _ in range(20))
    service.settle()
    assert client.stats == ClientStats(recorded=recorded, accepted=recorded)
    spans = service.spans("app")
    assert len(spans) == recorded == 80
    assert len({span.trace_id for span in spans}) == 20
    assert {span.status.code for span in spans} == {0}


def test_batches(bridge: FaultyBridge) -> None:
    """Blocks travel together: a request is made of as many events as are asked for, compressed, and the rest when asked for."""
    settings = replace(PATIENT, batch_events=40)
    with BridgeClient(bridge.address, settings=settings) as client:
        tracer = EventTracer(client)
        for _ in range(25):
            infer(tracer)
        bridge.wait_for_calls(2)
        assert client.flush(20)
    assert [len(request.blocks) for request in bridge.taken] == [10, 10, 5]
    assert [request.stream.sequence for request in bridge.taken] == [0, 1, 2]
    assert positions_of(bridge.taken) == [(bridge.taken[0].stream.stream_id, number) for number in range(25)]


def test_age(bridge: FaultyBridge) -> None:
    """What is fewer than a batch is sent when it is old enough, unasked."""
    with BridgeClient(bridge.address, settings=QUICK) as client:
        infer(EventTracer(client))
        bridge.wait_for_calls(1)


def test_a_bridge_that_is_away(bridge: FaultyBridge) -> None:
    """What is recorded while nobody answers arrives when somebody does, once and in order; recording never waited."""
    bridge.go_away()
    with BridgeClient(bridge.address, settings=QUICK) as client:
        tracer = EventTracer(client)
        for _ in range(30):
            infer(tracer)
        assert not client.flush(0.1)
        wait_until(lambda: client.stats.waiting == client.stats.recorded == 120)  # none, or twice, while they are moved
        bridge.come_back()
        assert client.flush(20)
        assert client.stats == ClientStats(recorded=120, accepted=120)
    assert [position for _, position in positions_of(bridge.taken)] == list(range(30))


@pytest.mark.parametrize("code", [UNAVAILABLE, grpc.StatusCode.DATA_LOSS, EXHAUSTED], ids=lambda code: code.name)
def test_the_same_bytes_again(bridge: FaultyBridge, code: grpc.StatusCode) -> None:
    """A request that is sent again is the same bytes, with another time of sending beside it."""
    bridge.answers += [Answer.grpc_failure(code, retry_after_s=0.01)] * 3
    with BridgeClient(bridge.address, settings=PATIENT) as client:
        infer(EventTracer(client))
        assert client.flush(20)
    assert len(bridge.received) == 4
    assert len({call.body for call in bridge.received}) == 1
    assert len({call.metadata["otel-bridge-sent-unix-ns"] for call in bridge.received}) == 4


def test_a_slow_bridge(bridge: FaultyBridge) -> None:
    """An attempt ends at its deadline and is made again; meanwhile recording goes on."""
    bridge.answers += [Answer(delay_s=30.0)]
    with BridgeClient(bridge.address, settings=replace(PATIENT, timeout_s=0.2)) as client:
        tracer = EventTracer(client)
        infer(tracer)
        flushed = client.begin_flush()
        bridge.wait_for_calls(1)
        infer(tracer)
        assert flushed.result(20)
        assert client.flush(20)
    assert bridge.received[0].body == bridge.received[1].body
    arrived = [position for _, position in positions_of(call.events for call in bridge.received)]
    assert list(dict.fromkeys(arrived)) == [0, 1]


def test_a_full_bridge(tmp_path: Path) -> None:
    """A real bridge whose spool is full asks for patience; when its back end is there again, every event arrives once."""
    limits = {"SERVER__MAX_REQUEST_BYTES": "400000", "SPOOL__MAX_BYTES": "1048576", "EXPORT__RETRY_INITIAL_S": "0.05"}
    with OtlpSink() as sink, running(tmp_path, sink, EXPORT__RETRY_MAX_S="0.1", **limits) as service:
        sink.answer = Answer.grpc_failure(UNAVAILABLE)
        settings = replace(QUICK, request_bytes=350_000, batch_bytes=200_000)
        with BridgeClient(service.grpc, resource={"service.name": "app"}, settings=settings) as client:
            tracer = EventTracer(client)
            recorded = sum(infer(tracer, delegate_events=1, metadata=os.urandom(200_000)) for _ in range(12))
            wait_until(lambda: service.counts("receiver_requests")["spool_full", "grpc"] > 1)
            assert client.stats.waiting > 0
            sink.answer = Answer()
            assert client.flush(40)
            assert client.stats == ClientStats(recorded=recorded, accepted=recorded)
        service.settle()
        spans = service.spans("app")
    assert len({(span.trace_id, span.span_id) for span in spans}) == len(spans) == recorded


def test_recording_does_not_wait(bridge: FaultyBridge) -> None:
    """The thread that records comes to its end while the client's thread is kept from its work."""
    with BridgeClient(bridge.address, settings=QUICK) as client:
        tracer = EventTracer(client)
        hangs, held = threading.Event(), threading.Event()
        first = client._sender._store.tend
        # A disk that hangs:
        client._sender._store.tend = lambda: (hangs.set(), held.wait(20), first())  # type: ignore[method-assign]
        client._sender.wake()
        assert hangs.wait(20)
        recorded = sum(infer(tracer) for _ in range(100))
        assert client.stats.waiting == recorded
        held.set()
        assert client.flush(20)
        assert client.stats.accepted == recorded


def test_closing(bridge: FaultyBridge) -> None:
    """What cannot be sent within the time is counted, and so is what is recorded afterwards; closing twice is once."""
    bridge.go_away()
    client = BridgeClient(bridge.address, settings=QUICK)
    tracer = EventTracer(client)
    infer(tracer)
    client.close(0.05)
    client.close()
    infer(tracer)
    assert client.flush()
    assert client.stats == ClientStats(recorded=8, dropped={"closed": 8})


@pytest.mark.parametrize("is_compressed", [True, False])
def test_requests_are_compressed(bridge: FaultyBridge, *, is_compressed: bool) -> None:
    """Gzip is on unless it is switched off: on the wire a request is smaller than its bytes, or not."""
    settings = replace(PATIENT, gzip=is_compressed)
    with Relay(bridge.address) as relay, BridgeClient(relay.address, settings=settings) as client:
        tracer = EventTracer(client)
        for _ in range(500):
            infer(tracer)
        assert client.flush(20)
    (call,) = bridge.received
    assert (relay.sent_bytes < len(call.body) / 2) is is_compressed


@pytest.mark.parametrize(
    "wrong",
    [
        {"batch_events": 0},
        {"timeout_s": -1},
        {"batch_age_s": float("nan")},
        {"queue_bytes": "1"},
        {"retry_max_s": float("inf")},
    ],
    ids=str,
)
def test_settings_that_cannot_be_obeyed(wrong: dict[str, object]) -> None:
    """They are refused by name, before anything starts."""
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        ClientSettings(**wrong)


def test_no_bridge_is_no_error() -> None:
    """A client is made, used and closed where there never was a bridge."""
    with BridgeClient(f"{LOOPBACK}:{free_port()}", settings=replace(QUICK, close_timeout_s=0.05)) as client:
        infer(EventTracer(client))
    assert client.stats == ClientStats(recorded=4, dropped={"closed": 4})


def test_an_answer_of_the_bridges_own(bridge: FaultyBridge) -> None:
    """The wait that a bridge names in its own answer is obeyed: nothing is sent before."""
    details = status_of(SpoolFull("full", retry_after_s=0.3)).SerializeToString()
    bridge.answers.append(Answer(code=UNAVAILABLE, details="full", trailers=(("grpc-status-details-bin", details),)))
    with BridgeClient(bridge.address, settings=replace(PATIENT, retry_initial_s=0.001, retry_max_s=0.001)) as client:
        infer(EventTracer(client))
        assert client.flush(20)
    first, second = (int(call.metadata["otel-bridge-sent-unix-ns"]) for call in bridge.received)
    assert second - first >= 0.3e9
    assert names_of(bridge.taken[0])[-1] == "Method::execute"
