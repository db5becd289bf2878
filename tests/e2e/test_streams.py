"""Streams of requests to a running bridge: a kill in the midst of one, and a stop beside one."""

import contextlib
import queue
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from support.copies import assert_equal, copies_at
from support.otlp_sink import OtlpSink
from support.scenes import STREAM, batch_of, delegated, execute, runtime
from support.service import Service, running

from otel_bridge.model.stream import Clock
from otel_bridge.v1 import profiling_pb2 as pb
from otel_bridge.wire.codec import request_of

EVENTS = (delegated("x", 0, 1, 2), runtime("Method::execute", 0, 5))


def a_request(sequence: int) -> pb.ExportEventsRequest:
    """An inference of a device without an anchor, whose spans lie where the receipt puts them."""
    stream = replace(STREAM, sequence=sequence, clocks=(Clock(),), resource=(("service.name", "app"),))
    return request_of(batch_of((execute(), EVENTS), stream=stream))


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """A bridge of its own, with a back end that takes everything."""
    with OtlpSink() as sink, running(tmp_path, sink) as service:
        yield service


def test_a_kill_amid_a_stream(service: Service) -> None:
    """What has no answer when the bridge is killed is sent again over another stream: every event arrives, copies are equal."""
    requests = [a_request(number) for number in range(300)]
    bodies: queue.SimpleQueue[pb.ExportEventsRequest | None] = queue.SimpleQueue()
    for request in requests:
        bodies.put(request)
    answered = 0
    with contextlib.suppress(grpc.RpcError):
        for answer in service.profiling.StreamEvents(iter(bodies.get, None)):
            assert answer.accepted == len(EVENTS)
            answered += 1
            if answered == 100:
                service.process.kill()
    bodies.put(None)
    assert 100 <= answered <= 300
    service.start()
    again = service.profiling.StreamEvents(iter(requests))
    assert [answer.accepted for answer in again] == [len(EVENTS)] * 300
    known = sum(service.counts("receiver_duplicate_requests").values())
    assert known >= answered
    assert sum(service.counts("receiver_accepted_events").values()) == (300 - known) * len(EVENTS)
    service.settle()
    copies = copies_at(service.sink)
    assert sum(map(len, copies.values())) == 300 * len(EVENTS)
    assert_equal(copies)


def test_a_stop_beside_an_open_stream(service: Service) -> None:
    """A stream that waits for its next request ends with OK when the bridge stops, long before the drain is over."""
    bodies: queue.SimpleQueue[pb.ExportEventsRequest | None] = queue.SimpleQueue()
    call: Any = service.profiling.StreamEvents(iter(bodies.get, None))
    bodies.put(a_request(0))
    assert next(call).accepted == len(EVENTS)
    assert service.stop() == 0
    assert list(call) == []
    assert call.code() is grpc.StatusCode.OK
    bodies.put(None)
    assert len(service.spans("app")) == len(EVENTS)
    assert "Traceback" not in service.process.log.read_text()
