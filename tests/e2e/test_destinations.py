"""Two destinations: each gets each event once, at its own pace, whatever happens to the other or to the bridge."""

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from support.copies import assert_equal, copies_at
from support.lives import AWAY, EVENTS, REFUSED, request, trace_of
from support.mappings import mapping_of
from support.otlp_answers import TAKE, Answer
from support.otlp_sink import OtlpSink
from support.service import Service, otel_bridge, running

from otel_bridge.v1 import mapping_pb2
from otel_bridge.v1.mapping_pb2_grpc import MappingServiceStub

SOON = {
    f"{section}__{name}": value
    for section in ("EXPORT", "DESTINATIONS__ARCHIVE")
    for name, value in (("RETRY_INITIAL_S", "0.05"), ("RETRY_MAX_S", "0.1"), ("LINGER_MS", "5"))
}
LATE = "late"

pytestmark = pytest.mark.timeout(180)  # a test starts a bridge several times, on machines that may have other work


@pytest.fixture
def sink() -> Iterator[OtlpSink]:
    """The back end of `export`."""
    with OtlpSink() as sink:
        yield sink


@pytest.fixture
def archive() -> Iterator[OtlpSink]:
    """That of the destination "archive"."""
    with OtlpSink() as sink:
        yield sink


def both(archive: OtlpSink, **settings: str) -> dict[str, str]:
    """The settings of a bridge that sends to both."""
    return {"DESTINATIONS__ARCHIVE__ENDPOINT": archive.grpc_endpoint, **SOON, **settings}


def send(service: Service, *sequences: int, build: str | None = None) -> None:
    """Requests that are acknowledged."""
    for sequence in sequences:
        assert service.profiling.ExportEvents(request(sequence, build)).accepted == EVENTS


def upload(service: Service) -> None:
    """The mapping arrives that some wait for."""
    file = mapping_pb2.MappingFile(build_id=LATE, mapping=mapping_of({"x": [1]}))
    MappingServiceStub(service.channel).PutMapping(mapping_pb2.PutMappingRequest(file=file))


def traces_at(sink: OtlpSink, *, once: bool = True) -> set[bytes]:
    """The whole traces that a back end has; each span once, or else the same each time."""
    found = copies_at(sink)
    extra = assert_equal(found)
    assert not once or not extra
    assert {len(spans) for spans in found.values()} <= {EVENTS}
    return set(found)


def traces_of(*sequences: int) -> set[bytes]:
    """The traces of these requests."""
    return set(map(trace_of, sequences))


def waiting(service: Service, destination: str) -> int:
    """Events that it has not got."""
    return service.counts("spool_size", destination)[()]


def test_one_that_is_away_holds_no_other(sink: OtlpSink, archive: OtlpSink, tmp_path: Path) -> None:
    """The other gets all at once, its circuit stays closed, and the books of both balance; later the first one gets all."""
    archive.answer = AWAY
    with running(tmp_path, sink, **both(archive)) as service:
        send(service, *range(20, 40))
        service.settle()
        assert traces_at(sink) == traces_of(*range(20, 40))
        service.process.wait_until(lambda: service.counts("exporter_circuit", "archive")["closed",] == 0)
        assert service.counts("exporter_circuit")["closed",] == 1
        assert (waiting(service, "default"), waiting(service, "archive")) == (0, 20 * EVENTS)
        assert service.counts("spool_size_bytes")[()] > 0
        service.assert_books_balance()
        archive.answer = TAKE
        service.settle("archive")
        for name in ("default", "archive"):
            assert service.counts("emitted_events", name)[()] == 20 * EVENTS
            assert service.counts("exporter_circuit", name)["closed",] == 1
        assert service.counts("spool_size_bytes")[()] == 0
    assert traces_at(archive) == traces_of(*range(20, 40))
    assert traces_at(sink) == traces_of(*range(20, 40))


def test_kills_while_one_is_away(sink: OtlpSink, archive: OtlpSink, tmp_path: Path) -> None:
    """What is acknowledged reaches both; what the kills make it send again is the same, byte for byte."""
    archive.answer = AWAY
    sink.answer = Answer(delay_s=0.02)
    with running(tmp_path, sink, **both(archive)) as service:
        for life in range(3):
            send(service, *range(10 * life + 100, 10 * life + 110))
            service.process.kill()
            service.channel.close()
            service.start()
            service.assert_books_balance()
        archive.answer = TAKE
        service.settle()
        service.settle("archive")
        found = service.counts("spool_recovered_events", "archive")[()]
        assert found == 30 * EVENTS == service.counts("emitted_events", "archive")[()]
    for each in (sink, archive):
        assert traces_at(each, once=False) == traces_of(*range(100, 130))


def test_a_destination_that_is_added_and_removed(sink: OtlpSink, archive: OtlpSink, tmp_path: Path) -> None:
    """It begins with what comes from then on; what it has not got when it is removed is counted, told, and not sent."""
    with running(tmp_path, sink, **SOON_OF_ONE) as service:
        sink.answer = AWAY
        send(service, 20, 21)
        assert service.stop() == 0
    archive.answer = AWAY
    with running(tmp_path, sink, **both(archive, SERVER__DRAIN_S="0")) as service:
        assert (waiting(service, "default"), waiting(service, "archive")) == (2 * EVENTS, 0)
        send(service, 22)
        assert waiting(service, "archive") == EVENTS
        assert service.stop() == 0
    sink.answer = TAKE
    with running(tmp_path, sink, **SOON_OF_ONE) as service:
        service.settle()
        assert service.counts("dropped_events", "archive") == {("destination_removed",): EVENTS}
        assert "3 events are dropped that archive had not got" in service.process.log.read_text()
    archive.answer = TAKE
    with running(tmp_path, sink, **both(archive)) as service:
        send(service, 23)
        service.settle("archive")
        service.settle()
    assert traces_at(sink) == traces_of(20, 21, 22, 23)
    assert traces_at(archive) == traces_of(23)


SOON_OF_ONE = {name: value for name, value in SOON.items() if name.startswith("EXPORT")}


def test_events_before_their_mapping(sink: OtlpSink, archive: OtlpSink, tmp_path: Path) -> None:
    """They wait for both, through a kill, and reach both resolved; also the one that was away when they were parked."""
    archive.answer = AWAY
    with running(tmp_path, sink, **both(archive, PARKING__POLICY="park")) as service:
        send(service, 20)
        service.process.wait_until(lambda: service.counts("exporter_circuit", "archive")["closed",] == 0)
        send(service, 21, 22, build=LATE)
        service.process.wait_until(lambda: service.counts("parked_events")[()] == 2 * EVENTS)
        service.assert_books_balance()
        service.process.kill()
        service.channel.close()
        service.start()
        archive.answer = TAKE
        service.process.wait_until(lambda: service.counts("parked_events", "archive")[()] == 2 * EVENTS)
        upload(service)
        for name in ("default", "archive"):
            service.settle(name)
            assert service.counts("resolution_events", name)["Toy", "exact"] == 2
            assert service.counts("parking_outgoing_events", name) == {("mapping",): 2 * EVENTS}
    for each in (sink, archive):
        assert traces_at(each, once=False) == traces_of(20, 21, 22)


def test_one_that_is_away_fills_the_spool(sink: OtlpSink, archive: OtlpSink, tmp_path: Path) -> None:
    """Then senders are told to come back; nothing that was acknowledged is given up, and it goes on by itself."""
    archive.answer = AWAY
    small = {"SPOOL__MAX_BYTES": str(1 << 20), "SERVER__MAX_REQUEST_BYTES": str(1 << 20)}
    with running(tmp_path, sink, **both(archive, **small)) as service:
        sequences = iter(range(10_000, 20_000))
        kept = []
        refused = None
        while refused is None:
            calls = [
                (each, service.profiling.ExportEvents.future(request(each)))
                for _, each in zip(range(32), sequences, strict=False)
            ]
            for sequence, call in calls:
                error = call.exception()
                if error is None:
                    kept.append(sequence)
                else:
                    refused = error
        assert refused.code() is grpc.StatusCode.UNAVAILABLE
        service.settle()
        assert waiting(service, "archive") == EVENTS * len(kept)
        archive.answer = TAKE
        service.settle("archive")
        send(service, 20_000)
        service.settle("archive")
        service.settle()
    kept.append(20_000)
    assert traces_at(archive) == traces_at(sink) == traces_of(*kept)


def test_dead_letters_of_each(sink: OtlpSink, archive: OtlpSink, tmp_path: Path) -> None:
    """What one refuses for good is kept for it alone, and sent again to it alone."""
    archive.answer = REFUSED
    with running(tmp_path, sink, **both(archive)) as service:
        send(service, 20)
        service.settle("archive")
        service.settle()
        assert service.counts("dead_letters_kept_spans", "archive") == {("export_invalid",): EVENTS}
        assert service.counts("dead_letters_kept_spans") == {}
        archive.answer = TAKE
        here = {"OTEL_BRIDGE_DESTINATIONS__ARCHIVE__ENDPOINT": archive.grpc_endpoint}
        where = ("--data-dir", tmp_path / "data")
        assert "\n" not in otel_bridge("spool", "dead-letters", *where, **here).stdout.strip()
        assert "export_invalid" in otel_bridge("spool", "dead-letters", *where, "--destination", "archive", **here).stdout
        replayed = otel_bridge("spool", "replay", *where, "--destination", "archive", **here)
        assert (replayed.returncode, replayed.stderr) == (0, f"{EVENTS} spans of 1 dead letters sent\n")
        unknown = otel_bridge("spool", "replay", *where, "--destination", "attic", **here)
        assert (unknown.returncode, "there are default, archive" in unknown.stderr) == (2, True)
    assert traces_at(archive) == traces_at(sink) == traces_of(20)
