"""A bridge of several workers: to whoever sends, uploads, looks and restarts it, one bridge."""

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

import grpc
import httpx
import pytest
from support.copies import assert_equal, copies_at
from support.lives import AWAY, EVENTS, request, trace_of
from support.mappings import mapping_of
from support.otlp_answers import TAKE
from support.otlp_sink import OtlpSink
from support.service import ANY_PORT, PLAIN, PROGRAM, Service, assert_books_kept, otel_bridge, running

from otel_bridge.app.crew import homes_in
from otel_bridge.spool.inspection import Inspection, inspect
from otel_bridge.v1 import mapping_pb2
from otel_bridge.v1 import profiling_pb2 as pb
from otel_bridge.v1.mapping_pb2_grpc import MappingServiceStub
from otel_bridge.v1.profiling_pb2_grpc import ProfilingServiceStub

COUNT = 3
SETTINGS = {
    "SERVER__WORKERS": str(COUNT),
    "PARKING__POLICY": "park",
    "EXPORT__RETRY_INITIAL_S": "0.05",
    "EXPORT__RETRY_MAX_S": "0.1",
    "EXPORT__LINGER_MS": "5",
}
BUILD = "late-1"


@pytest.fixture(scope="module")
def sink() -> Iterator[OtlpSink]:
    """A back end that takes everything."""
    with OtlpSink() as sink:
        yield sink


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where its data directory is."""
    return tmp_path_factory.mktemp("workers")


@pytest.fixture(scope="module")
def service(folder: Path, sink: OtlpSink) -> Iterator[Service]:
    """A bridge of three workers; each test sends sequences of its own."""
    with running(folder, sink, **SETTINGS) as service:
        yield service
    for home in homes_in(folder / "data"):
        assert_books_kept(home)


def over_http(service: Service, message: pb.ExportEventsRequest) -> int:
    """Send it over a connection of its own; how many events were accepted."""
    answer = httpx.post(f"http://{service.http}/v1/events", content=message.SerializeToString(), timeout=30, **PLAIN)
    return pb.ExportEventsResponse.FromString(answer.raise_for_status().content).accepted


def over_grpc(service: Service, message: pb.ExportEventsRequest) -> int:
    """The same, by the other door."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(service.grpc, options) as channel:
        return ProfilingServiceStub(channel).ExportEvents(message, timeout=30).accepted


def spools(folder: Path) -> list[Inspection]:
    """Those of all workers."""
    return [inspect(home) for home in homes_in(folder / "data")]


def has_parked(folder: Path, events: int) -> bool:
    """Whether so many wait for their mapping."""
    return sum(each.ledgers[0].parked for each in spools(folder)) == events


def is_taken(service: Service, number: int) -> bool:
    """Whether it was acknowledged; a worker that is away may have it, and then it is to come again."""
    with suppress(httpx.HTTPError):
        return over_http(service, request(number)) == EVENTS
    return False


def workers_of(pid: int) -> list[int]:
    """The processes that a supervisor has started."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def lives(pid: int) -> bool:
    """Whether a process is there, and no corpse."""
    with suppress(FileNotFoundError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def total(service: Service, name: str) -> int:
    """A metric, whatever its labels are."""
    return sum(service.counts(name).values())


def assert_arrived_once(sink: OtlpSink, sequences: Iterable[int]) -> None:
    """Each span of these requests was taken exactly once."""
    found = copies_at(sink)
    for sequence in sequences:
        assert [len(copies) for copies in found[trace_of(sequence)].values()] == [1] * EVENTS, sequence


def test_connections_are_shared_out_and_events_arrive_once(service: Service, sink: OtlpSink, folder: Path) -> None:
    """Both doors give connections to several workers, and the metrics that any of them shows are those of all."""
    with ThreadPoolExecutor(8) as threads:
        ways: list[tuple[Callable[..., int], int]] = [(over_http, n) for n in range(30)] + [
            (over_grpc, n) for n in range(30, 60)
        ]
        assert list(threads.map(lambda way: way[0](service, request(way[1])), ways)) == [EVENTS] * 60
    service.settle()
    assert {service.ledger() for _ in range(12)} == {service.ledger()}
    assert service.ledger().accepted == service.ledger().emitted == 60 * EVENTS
    assert sum(each.seen > 0 for each in spools(folder)) >= 2
    assert sum(each.seen for each in spools(folder)) == 60
    assert_arrived_once(sink, range(60))


def test_what_is_sent_again_to_another_worker(service: Service, sink: OtlpSink) -> None:
    """A duplicate is known whichever worker it reaches, also while the first is on its way; another body is not."""
    before, known = service.ledger().accepted, total(service, "receiver_duplicate_requests")
    copies = [number for number in range(100, 110) for _ in range(8)]
    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(lambda number: over_http(service, request(number)), copies)) == {EVENTS}
    assert service.ledger().accepted == before + 10 * EVENTS
    assert total(service, "receiver_duplicate_requests") == known + 70
    assert total(service, "receiver_sequence_reused") == 0
    service.settle()
    assert_arrived_once(sink, range(100, 110))
    others = [pb.ExportEventsRequest.FromString(request(100).SerializeToString()) for _ in range(6)]
    for number, other in enumerate(others):
        other.stream.runtime_version = f"1.{number}".encode()
        assert over_http(service, other) == EVENTS
    assert total(service, "receiver_sequence_reused") == len(others)


def test_an_upload_releases_what_other_workers_have_parked(service: Service, sink: OtlpSink, folder: Path) -> None:
    """What any worker lacks is listed by each, once; its upload releases it everywhere, and what comes then resolves."""
    sent = 0
    while sum(bool(each.parked) for each in spools(folder)) < COUNT:
        for _ in range(5):
            over_http(service, request(200 + sent, BUILD))
            sent += 1
        service.process.wait_until(partial(has_parked, folder, sent * EVENTS))
    (missing,) = httpx.get(f"http://{service.http}/v1/missing", timeout=30, **PLAIN).json()["missing"]
    assert (missing["ref"], int(missing["parked_events"]), int(missing["devices"])) == (BUILD, sent * EVENTS, 1)
    file = mapping_pb2.MappingFile(build_id=BUILD, mapping=mapping_of({"x": [1], "poison": [2]}))
    MappingServiceStub(service.channel).PutMapping(mapping_pb2.PutMappingRequest(file=file))
    for number in range(sent, sent + 12):
        over_http(service, request(200 + number, BUILD))
    service.settle()
    assert service.counts("parking_outgoing_events") == {("mapping",): sent * EVENTS}
    assert_arrived_once(sink, range(200, 200 + sent + 12))
    assert not [one for one in sink.received if b"no_mapping" in one.payload and b"late-" in one.payload]
    assert not httpx.get(f"http://{service.http}/v1/missing", timeout=30, **PLAIN).json().get("missing")


def test_a_second_bridge_is_refused(service: Service, folder: Path) -> None:
    """Neither the directory nor the ports of a bridge with workers are given to another one."""
    same = otel_bridge("serve", "--workers", "2", "--data-dir", folder / "data", "--http", service.http, "--grpc", service.grpc)
    assert same.returncode == 1
    for words in (f"is in use by process {service.process.pid}; stop", "server.grpc_address", "server.http_address"):
        assert words in same.stderr


def test_a_setting_that_no_worker_can_obey(tmp_path: Path) -> None:
    """It keeps the bridge from starting, and is told once, in the words of a bridge that is alone."""
    arguments = ("serve", "--grpc", ANY_PORT, "--http", ANY_PORT, "--data-dir", tmp_path / "data", "--workers")
    several, one = (otel_bridge(*arguments, count, OTEL_BRIDGE_METADATA__PARSERS="no.module:f") for count in (2, 1))
    assert several.returncode == one.returncode == 1
    assert several.stderr == one.stderr


@pytest.mark.timeout(180)
def test_a_worker_that_is_killed_comes_back(service: Service, sink: OtlpSink) -> None:
    """Under load: what was acknowledged arrives, copies are equal, and what is sent again is not accepted twice."""
    before = set(workers_of(service.process.pid))
    answered = threading.Semaphore(0)

    def send(own: Iterable[int]) -> None:
        for number in own:
            with suppress(httpx.HTTPError):
                over_http(service, request(number))
            answered.release()

    senders = [threading.Thread(target=send, args=(range(1000 + lane, 1120, 6),)) for lane in range(6)]
    for sender in senders:
        sender.start()
    for _ in range(30):
        assert answered.acquire(timeout=20)
    os.kill(min(before), signal.SIGKILL)
    for sender in senders:
        sender.join()
    service.process.wait_until(lambda: b"ended with -9; it is started again" in service.process.log.read_bytes())
    for number in range(1000, 1120):
        service.process.wait_until(partial(is_taken, service, number))
    service.process.wait_until(lambda: service.process.log.read_bytes().count(b"is there") == COUNT + 1)
    service.settle()
    service.assert_books_balance()
    arrived = copies_at(sink)
    found = {trace_of(number): arrived[trace_of(number)] for number in range(1000, 1120)}
    assert all(len(spans) == EVENTS for spans in found.values())
    assert_equal(found)
    after = set(workers_of(service.process.pid))
    assert (len(after), len(after & before)) == (COUNT, COUNT - 1)


@pytest.mark.timeout(180)
def test_workers_end_without_their_supervisor_and_fewer_take_over(tmp_path: Path) -> None:
    """
    A kill of the supervisor leaves no worker behind, and the next start has what they had: with fewer workers, and with one.

    The back end is away all the time until then. What was parked waits, what is sent again is known, nothing arrives twice.
    """
    with OtlpSink() as sink, running(tmp_path, sink, **SETTINGS, SERVER__DRAIN_S="0") as service:
        sink.answer = AWAY
        for number in range(40):
            assert over_http(service, request(number, None if number % 4 else BUILD)) == EVENTS
        workers = workers_of(service.process.pid)
        assert service.get("/readyz").is_success
        service.channel.close()
        service.process.kill()
        service.process.log.read_bytes()
        while any(map(lives, workers)):
            threading.Event().wait(0.05)
        for count in (2, 1):
            service.process.environment["OTEL_BRIDGE_SERVER__WORKERS"] = str(count)
            service.start()
            assert [over_http(service, request(number, None if number % 4 else BUILD)) for number in range(40)] == [EVENTS] * 40
            assert service.ledger().accepted == 0
            assert service.ledger().recovered == service.ledger().waiting == 40 * EVENTS
            assert len(homes_in(tmp_path / "data")) == count
            if count > 1:
                service.channel.close()
                assert service.stop() == 0
        sink.answer = TAKE
        file = mapping_pb2.MappingFile(build_id=BUILD, mapping=mapping_of({"x": [1], "poison": [2]}))
        MappingServiceStub(service.channel).PutMapping(mapping_pb2.PutMappingRequest(file=file))
        service.settle()
        assert_arrived_once(sink, range(40))
        shown = subprocess.run(
            [PROGRAM, "spool", "inspect", "--data-dir", tmp_path / "data"], capture_output=True, text=True, check=True
        )
        assert f" {40 * EVENTS} " in shown.stdout
