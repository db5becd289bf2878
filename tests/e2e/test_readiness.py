"""What a balancer sees of a bridge, by `/readyz` and by a health stream over gRPC: against the process."""

import queue
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub
from support.otlp_answers import TAKE, Answer
from support.otlp_sink import OtlpSink
from support.requests import an_inference
from support.service import Service, running

from otel_bridge.wire.servicers import MAPPING, PROFILING

SOON = {"EXPORT__RETRY_INITIAL_S": "0.05", "EXPORT__RETRY_MAX_S": "0.1"}
AWAY = Answer.grpc_failure(grpc.StatusCode.UNAVAILABLE, "away")
SERVING, NOT_SERVING = HealthCheckResponse.SERVING, HealthCheckResponse.NOT_SERVING
ENDED = -1
"""What `watched` says once the bridge has ended the stream."""
MIB = 1 << 20


@pytest.fixture
def sink() -> Iterator[OtlpSink]:
    """A back end of its own for each test: it is switched off and on."""
    with OtlpSink() as sink:
        yield sink


@contextmanager
def watched(service: Service, name: str = "") -> "Iterator[queue.Queue[int]]":
    """What a health stream of a service says, one by one."""
    said: queue.Queue[int] = queue.Queue()
    stream = HealthStub(service.channel).Watch(HealthCheckRequest(service=name))

    def listen() -> None:
        try:
            for response in stream:
                said.put(response.status)
        except grpc.RpcError:
            return  # the bridge has ended at once, or the test
        said.put(ENDED)

    thread = threading.Thread(target=listen)
    thread.start()
    yield said
    stream.cancel()
    thread.join()


def test_an_outage_where_egress_is_needed(sink: OtlpSink, tmp_path: Path) -> None:
    """Where the settings say so, a back end that stays away makes the bridge not ready by both doors, until it is back."""
    with running(tmp_path, sink, SERVER__READY_NEEDS_EGRESS="true", **SOON) as service, watched(service, PROFILING) as said:
        assert said.get(timeout=20) == SERVING
        sink.answer = AWAY
        service.profiling.ExportEvents(an_inference(0))
        assert said.get(timeout=20) == NOT_SERVING
        told = service.get("/readyz")
        assert (told.status_code, told.text.splitlines()[0]) == (503, "not ready")
        assert "egress: a back end is away" in told.text.splitlines()
        assert service.get("/healthz").is_success
        assert service.profiling.ExportEvents(an_inference(1)).accepted == 2
        sink.answer = Answer()
        assert said.get(timeout=20) == SERVING
        assert service.get("/readyz").text.splitlines()[0] == "ready"


def test_a_full_spool_turns_balancers_away(sink: OtlpSink, tmp_path: Path) -> None:
    """From the first request without room on the bridge is not ready, the outage itself does not matter; then it is again."""
    bounds = {"SPOOL__MAX_BYTES": str(MIB), "SERVER__MAX_REQUEST_BYTES": str(MIB)}
    with running(tmp_path, sink, **bounds, **SOON) as service, watched(service) as said:
        assert said.get(timeout=20) == SERVING
        sink.answer = AWAY
        requests = [an_inference(sequence, metadata_bytes=200_000) for sequence in range(10)]
        calls = [service.profiling.ExportEvents.future(request) for request in requests]
        accepted = sum(call.exception() is None for call in calls)
        assert 0 < accepted < len(calls)
        told = service.get("/readyz")
        assert told.status_code == 503
        assert {"registry: ok", "spool: full"} <= set(told.text.splitlines())
        assert said.get(timeout=20) == NOT_SERVING
        sink.answer = Answer()
        assert said.get(timeout=20) == SERVING
        service.settle()
        assert service.get("/readyz").is_success
        assert service.ledger().emitted == 2 * accepted


def test_the_order_of_a_stop(sink: OtlpSink, tmp_path: Path) -> None:
    """
    Not ready, then no new requests, then what was accepted leaves, then the end with 0; further signals change nothing.

    The back end answers slowly, so the doors are closed for as long as it takes while events still leave.
    """
    with running(tmp_path, sink, SERVER__TURN_AWAY_S="4") as service, watched(service, MAPPING) as said:
        assert said.get(timeout=20) == SERVING
        held = threading.Event()
        sink.judge = lambda _payload: TAKE if held.wait(20) else AWAY
        for sequence in range(5):
            assert service.profiling.ExportEvents(an_inference(sequence)).accepted == 2
        service.process.signal(signal.SIGINT)
        assert said.get(timeout=20) == NOT_SERVING
        assert service.get("/readyz").text.splitlines()[:2] == ["not ready", "bridge: stopping"]
        assert service.profiling.ExportEvents(an_inference(5)).accepted == 2  # turned away is not shut
        assert said.get(timeout=20) == ENDED  # who watches does not hold up the stop
        service.process.wait_until(lambda: is_shut(service.grpc) and is_shut(service.http))
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
            service.process.signal(number)
        assert len(service.spans("app")) == 0
        held.set()
        assert service.process.wait() == 0
        assert len(service.spans("app")) == 12
    log = service.process.log.read_text()
    assert "Traceback" not in log
    assert "stay in the spool" not in log


def is_shut(address: str) -> bool:
    """Whether nobody listens there."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except ConnectionRefusedError:
        return True
    return False
