"""The client's account: every event ends once, and what was dropped is told to the bridge once."""

import time
from dataclasses import replace

import grpc
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from support.faulty_bridge import FaultyBridge
from support.inferences import QUICK, dropped_in, infer, positions_of
from support.otlp_answers import Answer
from support.service import Service

from otel_bridge.client import BridgeClient, ClientStats, EventTracer

UNAVAILABLE, EXHAUSTED = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED
PATIENT = replace(QUICK, batch_age_s=60.0)


def total(stats: ClientStats) -> int:
    """Events that have ended or wait, which are all that were recorded."""
    return stats.accepted + sum(stats.rejected.values()) + sum(stats.dropped.values()) + stats.waiting


def test_a_request_that_is_refused(bridge: FaultyBridge) -> None:
    """It is given up at once and counted; the next request that gets through tells of it, and those around it are taken."""
    bridge.answers += [Answer(), Answer.grpc_failure(grpc.StatusCode.INVALID_ARGUMENT, "no")]
    with BridgeClient(bridge.address, settings=PATIENT) as client:
        tracer = EventTracer(client)
        for _ in range(3):
            infer(tracer)
            assert client.flush(20)
        stats = client.stats
    assert (stats.accepted, stats.dropped, total(stats)) == (8, {"refused": 4}, stats.recorded)
    assert [dropped_in([request]) for request in bridge.taken] == [{}, {"refused": 4}]


def test_drops_are_told_once(bridge: FaultyBridge) -> None:
    """A report that did not get through is told again, one that did is not; a flush tells even where no event is left."""
    no = Answer.grpc_failure(grpc.StatusCode.FAILED_PRECONDITION)
    bridge.answers += [no, no]
    with BridgeClient(bridge.address, settings=PATIENT) as client:
        tracer = EventTracer(client)
        infer(tracer)
        assert client.flush(20)  # refused
        assert client.flush(20)  # the report is refused
        assert client.flush(20)
        infer(tracer)
        assert client.flush(20)
    told = [dropped_in([call.events]) for call in bridge.received]
    assert told == [{}, {"refused": 4}, {"refused": 4}, {}]
    assert [len(request.events.kind) for request in bridge.taken] == [0, 4]


def test_a_real_bridge_counts_them(service: Service) -> None:
    """Drops stand in the bridge's metrics by reason, and rejected events of a request in the client's account."""
    with BridgeClient(service.grpc, settings=replace(QUICK, queue_bytes=5_000)) as client:
        tracer = EventTracer(client)
        with tracer.event_block("Execute"):
            tracer.log_profiling_delegate("x" * 5_000, None, 1, 2)
            for _ in range(100):
                tracer.log_profiling_delegate("x", None, 1, 2)
        assert client.flush(20)
        stats = client.stats
    assert service.counts("sender_dropped_events")["queue_full",] == stats.dropped["queue_full"] > 0
    assert stats.rejected == {"name_too_long": 1}
    assert total(stats) == stats.recorded == 101


ANSWERS = [
    Answer(),
    Answer.grpc_failure(UNAVAILABLE),
    Answer.grpc_failure(UNAVAILABLE, retry_after_s=0.001),
    Answer.grpc_failure(EXHAUSTED, retry_after_s=0.001),
    Answer.grpc_failure(EXHAUSTED),  # too large
    Answer.grpc_failure(grpc.StatusCode.INVALID_ARGUMENT),
    Answer.grpc_failure(grpc.StatusCode.DEADLINE_EXCEEDED),
]


@given(answers=st.lists(st.sampled_from(ANSWERS), max_size=12), sizes=st.lists(st.integers(0, 60), min_size=1, max_size=8))
@hypothesis_settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_any_weather(bridge: FaultyBridge, answers: list[Answer], sizes: list[int]) -> None:
    """Whatever the answers: each event ends once, each drop is told once, and no block arrives under two names."""
    bridge.received.clear()
    bridge.answers.extend(answers)
    stormy = replace(QUICK, retry_initial_s=0.002, retry_max_s=0.005, batch_events=50)
    with BridgeClient(bridge.address, settings=stormy) as client:
        tracer = EventTracer(client)
        recorded = sum(infer(tracer, delegate_events=size) for size in sizes)
        assert client.flush(20)
        bridge.answers.clear()
        assert client.flush(20)  # tells of what is not told yet
        stats = client.stats
    assert (stats.recorded, stats.waiting, total(stats)) == (recorded, 0, recorded)
    taken = bridge.taken
    assert dropped_in(taken) == stats.dropped
    assert len({(each.stream.stream_id, each.stream.sequence) for each in taken}) == len(taken)
    whole = [block.position for request in taken for block in request.blocks if not block.HasField("part")]
    assert len(set(whole)) == len(whole)
    assert sum(len(request.events.kind) for request in taken) == stats.accepted


def test_a_full_queue(bridge: FaultyBridge) -> None:
    """While nobody answers memory is bounded; what does not fit is counted under the reason for it, and told later."""
    bridge.go_away()
    settings = replace(QUICK, queue_bytes=20_000, buffer_bytes=2_000, batch_events=8)
    with BridgeClient(bridge.address, settings=settings) as client:
        tracer = EventTracer(client)
        while "buffer_full" not in client.stats.dropped:
            infer(tracer)
            time.sleep(0.0002)  # lets the client's thread come between
        stats = client.stats
        assert set(stats.dropped) <= {"queue_full", "buffer_full"}
        bridge.come_back()
        assert client.flush(20)
        infer(tracer)
        assert client.flush(20)
        stats = client.stats
        assert (stats.waiting, total(stats)) == (0, stats.recorded)
    assert dropped_in(bridge.taken) == stats.dropped
    assert len(set(positions_of(bridge.taken))) == len(positions_of(bridge.taken)) == stats.accepted / 4
