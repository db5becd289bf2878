"""Events before their mapping: they wait, and go on once."""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.mappings import mapping_of
from support.otlp_sink import OtlpSink
from support.scenes import STREAM, batch_of, call, delegated, execute, runtime
from support.service import Service, running

from otel_bridge.model.stream import ModelRef
from otel_bridge.v1 import mapping_pb2, profiling_pb2
from otel_bridge.v1.mapping_pb2_grpc import MappingServiceStub
from otel_bridge.wire.codec import request_of

BUILDS = ("a", "b", "c")
REQUESTS, DELEGATED = 201, 48
EVENTS = REQUESTS * (DELEGATED + 2)


@pytest.fixture
def sink() -> Iterator[OtlpSink]:
    """A back end that takes everything."""
    with OtlpSink() as sink:
        yield sink


def an_inference(number: int) -> profiling_pb2.ExportEventsRequest:
    """One of a build, whose delegate logged much."""
    build = BUILDS[number % len(BUILDS)]
    stream = replace(
        STREAM, sequence=number, model=ModelRef("net", "", build), build=build, resource=(("service.name", "late"),)
    )
    events = [delegated("x", 0, 11 + n, 12 + n) for n in range(DELEGATED)]
    return request_of(
        batch_of((execute(), [*events, call("DELEGATE_CALL", 0, 10, 90), runtime("Method::execute", 0, 99)]), stream=stream)
    )


def upload(service: Service, build: str) -> None:
    """The mapping of a build arrives."""
    file = mapping_pb2.MappingFile(build_id=build, mapping=mapping_of({"x": [1]}))
    MappingServiceStub(service.channel).PutMapping(mapping_pb2.PutMappingRequest(file=file))


def statuses(service: Service) -> Counter[str]:
    """Of the spans that have arrived, each counted once by its id."""
    spans = {(span.trace_id, span.span_id): span for span in service.spans("late")}
    assert len(spans) == len(service.spans("late"))
    return Counter(
        attribute.value.string_value
        for span in spans.values()
        for attribute in span.attributes
        if attribute.key == "executorch.resolution.status"
    )


def test_all_arrive_once_and_exact(sink: OtlpSink, tmp_path: Path) -> None:
    """10,000 events of three builds wait; the mappings come in any order; `mapping missing` says what is waited for."""
    with running(tmp_path, sink, PARKING__POLICY="park") as service:
        for number in range(REQUESTS):
            assert service.profiling.ExportEvents(an_inference(number)).accepted == DELEGATED + 2
        service.process.wait_until(lambda: service.counts("parked_events")[()] == EVENTS)
        assert service.spans("late") == []
        told = service.command("mapping", "missing")
        assert [line.split()[0] for line in told.splitlines()[1:]] == list(BUILDS)
        for build in random.sample(BUILDS, len(BUILDS)):
            upload(service, build)
        service.settle()
        assert statuses(service) == {"exact": REQUESTS * DELEGATED}
        assert service.counts("parking_outgoing_events") == {("mapping",): EVENTS}
        assert len(service.command("mapping", "missing").splitlines()) == 1


def test_what_has_no_room_goes_on_and_is_counted(sink: OtlpSink, tmp_path: Path) -> None:
    """Over a bound events are emitted as `no_mapping`, counted to the event; a stop lets the others go that are in memory."""
    room = 90 * (DELEGATED + 2)
    settings = {"PARKING__POLICY": "park", "PARKING__MAX_EVENTS": str(room), "SPOOL__DURABILITY": "memory"}
    with running(tmp_path, sink, **settings) as service:
        for number in range(REQUESTS):
            service.profiling.ExportEvents(an_inference(number))
        service.process.wait_until(lambda: service.ledger().emitted == EVENTS - room)
        assert statuses(service) == {"no_mapping": (REQUESTS - 90) * DELEGATED}
        assert service.counts("parking_outgoing_events") == {("events",): EVENTS - room}
        upload(service, "a")
        service.process.wait_until(lambda: service.ledger().waiting < room)
        assert service.stop() == 0
        assert sum(statuses(service).values()) == REQUESTS * DELEGATED
        assert statuses(service)["exact"] > 0
