"""A real bridge that is stopped, or has no disk left: nothing acknowledged is lost, what comes twice is the same."""

import resource
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from grpc_status import rpc_status
from support.copies import assert_equal, copies_at
from support.mappings import mapping_of
from support.otlp_answers import Answer
from support.otlp_sink import OtlpSink
from support.scenes import STREAM, batch_of, call, delegated, execute, runtime
from support.service import ANY_PORT, Service, otel_bridge, running

from otel_bridge.model.stream import Clock, ModelRef, Stream
from otel_bridge.spans.ids import trace_id
from otel_bridge.v1 import mapping_pb2
from otel_bridge.v1 import profiling_pb2 as pb
from otel_bridge.v1.mapping_pb2_grpc import MappingServiceStub
from otel_bridge.wire.codec import request_of

EVENTS = 3
SOON = {"EXPORT__RETRY_INITIAL_S": "0.05", "EXPORT__RETRY_MAX_S": "0.1", "EXPORT__LINGER_MS": "5"}
AWAY = Answer.grpc_failure(grpc.StatusCode.UNAVAILABLE, "away")
LATE = "late"


@pytest.fixture
def sink() -> Iterator[OtlpSink]:
    """A back end of its own for each test."""
    with OtlpSink() as sink:
        yield sink


def stream_of(sequence: int) -> Stream:
    """A device without an anchor, whose spans lie where the receipt puts them; one in three names a build without a mapping."""
    build = LATE if sequence % 3 == 0 else None
    return replace(
        STREAM,
        sequence=sequence,
        model=ModelRef(None, "", build),
        build=build,
        clocks=(Clock(),),
        resource=(("service.name", "app"),),
    )


def an_inference(sequence: int) -> pb.ExportEventsRequest:
    """A request of three events."""
    events = [delegated("x", 0, 1, 2), call("DELEGATE_CALL", 0, 0, 4), runtime("Method::execute", 0, 5)]
    return request_of(batch_of((execute(), events), stream=stream_of(sequence)))


def upload(service: Service) -> None:
    """The mapping arrives."""
    file = mapping_pb2.MappingFile(build_id=LATE, mapping=mapping_of({"x": [1]}))
    MappingServiceStub(service.channel).PutMapping(mapping_pb2.PutMappingRequest(file=file))


def assert_all_arrived(sink: OtlpSink, sequences: set[int], *, once: bool) -> None:
    """All spans of these requests are there, and copies are equal byte for byte."""
    found = copies_at(sink)
    for sequence in sequences:
        assert len(found[trace_id(stream_of(sequence), execute())]) == EVENTS, sequence
    extra = assert_equal(found)
    assert not once or not extra


def test_a_stop_keeps_what_does_not_leave(sink: OtlpSink, tmp_path: Path) -> None:
    """The back end is away for longer than the drain: nothing is dropped; the next start says what it found, and sends it."""
    with running(tmp_path, sink, SERVER__DRAIN_S="0.3", PARKING__POLICY="park", **SOON) as service:
        sink.answer = AWAY
        for sequence in range(6):
            service.profiling.ExportEvents(an_inference(sequence))
        assert service.stop() == 0
        log = service.process.log.read_text()
        assert "18 events stay in the spool for the next start" in log
        assert "dropped" not in log
        service.start()
        ledger = service.ledger()
        assert (ledger.recovered, ledger.accepted, ledger.dropped) == (18, 0, 0)
        sink.answer = Answer()
        service.process.wait_until(lambda: service.ledger().emitted == 12)
        assert service.counts("parked_events")[()] == 6
        upload(service)
        service.process.wait_until(lambda: service.ledger().emitted == 18)
        service.settle()
        assert service.counts("parking_outgoing_events") == {("mapping",): 6}
    assert_all_arrived(sink, set(range(6)), once=True)


def test_parked_events_get_older_over_restarts(sink: OtlpSink, tmp_path: Path) -> None:
    """Their time goes on, and then they leave without a mapping."""
    with running(tmp_path, sink, PARKING__POLICY="park", PARKING__MAX_AGE_S="8", **SOON) as service:
        service.profiling.ExportEvents(an_inference(0))
        service.process.wait_until(lambda: service.counts("parked_events")[()] == EVENTS)
        assert service.stop() == 0
        assert sink.spans == []
        service.start()
        service.settle()
        assert service.counts("parking_outgoing_events") == {("age",): EVENTS}
    assert_all_arrived(sink, {0}, once=True)


def test_a_full_disk_is_told_and_waited_out(sink: OtlpSink, tmp_path: Path) -> None:
    """Both what is refused and what is kept are as the sender was told; there is no restart."""
    with running(tmp_path, sink, **SOON) as service:
        service.profiling.ExportEvents(an_inference(1))
        size = (tmp_path / "data" / "spool.db-wal").stat().st_size
        before = resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        kept, refused = {1}, None
        for sequence in range(2, 200):
            try:
                service.profiling.ExportEvents(an_inference(sequence))
            except grpc.RpcError as error:
                refused = error
                break
            kept.add(sequence)
        assert refused is not None
        assert refused.code() is grpc.StatusCode.UNAVAILABLE
        status = rpc_status.from_call(refused)
        assert status is not None
        assert any(detail.Is(RetryInfo.DESCRIPTOR) for detail in status.details)
        assert service.get("/healthz").is_success
        resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, before)
        service.process.wait_until(lambda: accepts(service, 1000))
        service.settle()
    assert_all_arrived(sink, kept | {1000}, once=False)


def accepts(service: Service, sequence: int) -> bool:
    """Whether it takes that request now."""
    try:
        return bool(service.profiling.ExportEvents(an_inference(sequence)).accepted)
    except grpc.RpcError:
        return False


def test_a_damaged_record_is_counted(sink: OtlpSink, tmp_path: Path) -> None:
    """A bit that fell over while the bridge was away costs one request, and the books say so."""
    with running(tmp_path, sink, **SOON) as service:
        sink.answer = AWAY
        for sequence in (1, 2, 4):
            service.profiling.ExportEvents(an_inference(sequence))
        service.process.kill()
        for path in (tmp_path / "data").glob("spool.db*"):
            data = bytearray(path.read_bytes())
            at = data.find(b'"sequence":2')
            if at >= 0:
                data[at + len(b'"sequence":')] ^= 1
                path.write_bytes(data)
        sink.answer = Answer()
        service.channel.close()
        service.start()
        service.settle()
        ledger = service.ledger()
        assert ledger.recovered == 9 == ledger.emitted + ledger.dropped
    assert copies_at(sink).keys() <= {trace_id(stream_of(sequence), execute()) for sequence in (1, 2, 4)}


def test_one_bridge_one_directory(sink: OtlpSink, tmp_path: Path) -> None:
    """A second one is refused with the number of the first, which goes on; after its end, even by a kill, the way is free."""
    with running(tmp_path, sink) as service:
        second = otel_bridge("serve", "--grpc", ANY_PORT, "--http", ANY_PORT, "--data-dir", tmp_path / "data")
        assert (second.returncode, second.stdout) == (1, "")
        assert f"is in use by process {service.process.pid}; stop that one, or name another directory" in second.stderr
        assert service.get("/readyz").is_success
        service.process.kill()
        service.channel.close()
        service.start()
        assert service.get("/readyz").is_success
