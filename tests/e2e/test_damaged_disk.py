"""What disks do to the files of a bridge while it is stopped, or runs: it refuses, or goes on and counts what it has lost."""

import random
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from support.copies import assert_equal, copies_at
from support.damages import CASES, REFUSED
from support.lives import AWAY, EVENTS, request, trace_of
from support.mappings import mapping_of
from support.otlp_answers import TAKE
from support.otlp_sink import OtlpSink
from support.processes import ProcessFailed
from support.service import Service, running

from otel_bridge.v1 import mapping_pb2
from otel_bridge.v1.mapping_pb2_grpc import MappingServiceStub

QUICK = {"EXPORT__RETRY_INITIAL_S": "0.05", "EXPORT__RETRY_MAX_S": "0.1", "EXPORT__LINGER_MS": "5", "SERVER__DRAIN_S": "0.1"}
REQUESTS = [sequence for sequence in range(60) if sequence % 97 != 5]


@pytest.fixture
def sink() -> Iterator[OtlpSink]:
    """A back end of its own for each test."""
    with OtlpSink() as sink:
        yield sink


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Data directories with requests that wait, and a mapping: of a bridge that stopped, and of one that was killed."""
    folder = tmp_path_factory.mktemp("before")
    kept = {"stopped": folder / "stopped", "killed": folder / "killed"}
    with OtlpSink() as sink, running(folder, sink, **QUICK) as service:
        sink.answer = AWAY
        file = mapping_pb2.MappingFile(build_id="b", mapping=mapping_of({"x": [1]}))
        MappingServiceStub(service.channel).PutMapping(mapping_pb2.PutMappingRequest(file=file))
        for sequence in REQUESTS:
            assert service.profiling.ExportEvents(request(sequence)).accepted == EVENTS
        service.process.signal(signal.SIGSTOP)  # nothing changes while it is copied
        shutil.copytree(folder / "data", kept["killed"])  # what a kill at this moment leaves
        service.process.signal(signal.SIGCONT)
        assert service.stop() == 0
    shutil.copytree(folder / "data", kept["stopped"])
    return kept


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", CASES)
def test_what_is_lost_is_counted(name: str, seed: int, before: dict[str, Path], sink: OtlpSink, tmp_path: Path) -> None:
    """It starts, sends what is whole, and says to the event how much is not; the next request is taken."""
    case = CASES[name]
    shutil.copytree(before[case.end], tmp_path / "data")
    case.damage(tmp_path / "data", random.Random(f"{name} {seed}"))  # noqa: S311 - to be the same in every run
    with running(tmp_path, sink, **QUICK) as service:
        service.settle()
        service.assert_books_balance()
        arrived = {sequence for sequence in REQUESTS if trace_of(sequence) in copies_at(sink)}
        assert assert_equal(copies_at(sink)) == 0
        ledger = service.ledger()
        assert ledger.emitted == EVENTS * len(arrived) == len(sink.spans)
        lost = EVENTS * (len(REQUESTS) - len(arrived))
        dropped = service.counts("dropped_events")
        assert dropped.total() == lost
        assert set(dropped) <= {("corrupt",), ("spool_age",)}  # the second where the bit that fell over says when it was kept
        assert ledger.recovered == EVENTS * len(REQUESTS)
        assert service.profiling.ExportEvents(request(10**6)).accepted == EVENTS
        service.settle()
        assert trace_of(10**6) in copies_at(sink)


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_used_is_refused(name: str, before: dict[str, Path], sink: OtlpSink, tmp_path: Path) -> None:
    """In one line that names the file, without a change to it."""
    case = REFUSED[name]
    data = tmp_path / "data"
    shutil.copytree(before["stopped"], data)
    case.damage(data, random.Random(name))  # noqa: S311 - to be the same in every run
    files = {path: path.read_bytes() for path in data.glob("*.db") if path.is_file()}
    with pytest.raises(ProcessFailed, match=f"ended with 1 .*\n.*Error: .*{case.told}"), running(tmp_path, sink, **QUICK):
        pass
    assert {path: path.read_bytes() for path in files} == files


def test_the_data_directory_goes_away(sink: OtlpSink, tmp_path: Path) -> None:
    """While it runs: what is acknowledged is sent, what is not has a sender who was told so; nothing hangs, and it stops."""
    with running(tmp_path, sink, **QUICK) as service:
        assert service.profiling.ExportEvents(request(10)).accepted == EVENTS
        shutil.rmtree(tmp_path / "data")
        taken = {10} | {sequence for sequence in range(100, 140) if is_taken(service, sequence)}
        sink.wait_for_spans(EVENTS * len(taken))
        service.settle()
        assert service.ledger().emitted == EVENTS * len(taken)
        assert service.stop() == 0


def is_taken(service: Service, sequence: int) -> bool:
    """Whether the request is acknowledged; else its sender is told to come again."""
    try:
        return bool(service.profiling.ExportEvents(request(sequence)).accepted)
    except grpc.RpcError as error:
        return error.code() is not grpc.StatusCode.UNAVAILABLE  # any other word would count, and not arrive


def test_nothing_is_lost_where_nothing_is_damaged(before: dict[str, Path], sink: OtlpSink, tmp_path: Path) -> None:
    """The rule for the tests above: what the two directories hold."""
    for kind, path in before.items():
        shutil.copytree(path, tmp_path / kind / "data")
        sink.received.clear()
        sink.answer = TAKE
        with running(tmp_path / kind, sink, **QUICK) as service:
            service.settle()
            assert (service.ledger().recovered, service.ledger().emitted) == (EVENTS * len(REQUESTS), EVENTS * len(REQUESTS))
