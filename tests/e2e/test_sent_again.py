"""Requests that a sender sends again to the running bridge, since their answers were lost: they are emitted once."""

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from support.copies import assert_equal, copies_at
from support.otlp_sink import OtlpSink
from support.scenes import STREAM, batch_of, delegated, execute, runtime
from support.service import Service, running

from otel_bridge.model.stream import Clock
from otel_bridge.v1 import profiling_pb2 as pb
from otel_bridge.wire.codec import request_of

EVENTS = (delegated("x", 0, 1, 2), runtime("Method::execute", 0, 5))


def a_request(sequence: int, position: int = 0) -> pb.ExportEventsRequest:
    """An inference of a device without an anchor, whose spans lie where the receipt puts them."""
    stream = replace(STREAM, sequence=sequence, clocks=(Clock(),), resource=(("service.name", "app"),))
    return request_of(batch_of((execute(position), EVENTS), stream=stream))


def over_http(service: Service, request: pb.ExportEventsRequest) -> int:
    """Send it, and how many events were accepted."""
    answer = httpx.post(f"http://{service.http}/v1/events", content=request.SerializeToString(), timeout=30, trust_env=False)
    return pb.ExportEventsResponse.FromString(answer.raise_for_status().content).accepted


def accepted_events(service: Service) -> int:
    """Since the start of the process."""
    return sum(service.counts("receiver_accepted_events").values())


def duplicates(service: Service) -> int:
    """Since the start of the process."""
    return sum(service.counts("receiver_duplicate_requests").values())


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """A bridge of its own, with a back end that takes everything."""
    with OtlpSink() as sink, running(tmp_path, sink) as service:
        yield service


def test_after_a_kill_and_by_either_door(service: Service) -> None:
    """What was answered is answered again alike, by the other door and after a kill, and is not accepted again."""
    requests = [a_request(number) for number in range(20)]
    assert [over_http(service, request) for request in requests] == [len(EVENTS)] * 20
    assert [service.profiling.ExportEvents(request).accepted for request in requests] == [len(EVENTS)] * 20
    assert (accepted_events(service), duplicates(service)) == (20 * len(EVENTS), 20)
    service.process.kill()
    service.start()
    assert [over_http(service, request) for request in requests] == [len(EVENTS)] * 20
    assert [service.profiling.ExportEvents(request).accepted for request in requests] == [len(EVENTS)] * 20
    assert (accepted_events(service), duplicates(service)) == (0, 40)
    service.settle()
    assert len({(span.trace_id, span.span_id) for span in service.spans("app")}) == 20 * len(EVENTS)


def test_a_number_that_is_used_twice(service: Service) -> None:
    """The same stream and number with another body is emitted, and counted."""
    assert over_http(service, a_request(1)) == over_http(service, a_request(1, position=1)) == len(EVENTS)
    assert sum(service.counts("receiver_sequence_reused").values()) == 1
    assert (accepted_events(service), duplicates(service)) == (2 * len(EVENTS), 0)
    service.settle()
    assert len(service.spans("app")) == 2 * len(EVENTS)


@pytest.mark.timeout(120)
def test_killed_amid_answers(service: Service) -> None:
    """
    Senders that a kill leaves without an answer send again: whatever had been committed is not accepted a second time.

    Else its spans would have two times of receipt, and copies that differ.
    """
    requests = [a_request(number) for number in range(200)]
    answered = threading.Semaphore(0)

    def send(own: list[pb.ExportEventsRequest]) -> None:
        for request in own:
            with contextlib.suppress(httpx.HTTPError):
                over_http(service, request)
                answered.release()

    senders = [threading.Thread(target=send, args=(requests[lane::8],)) for lane in range(8)]
    for sender in senders:
        sender.start()
    for _ in range(50):
        assert answered.acquire(timeout=20)
    service.process.kill()
    for sender in senders:
        sender.join()
    service.start()
    assert {over_http(service, request) for request in requests} == {len(EVENTS)}
    known = duplicates(service)
    assert known >= 50
    assert accepted_events(service) == (len(requests) - known) * len(EVENTS)
    service.settle()
    copies = copies_at(service.sink)
    assert sum(map(len, copies.values())) == len(requests) * len(EVENTS)
    assert_equal(copies)
