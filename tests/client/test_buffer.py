"""The buffer on disk: what is in it outlives the process, and whatever becomes of the file, the app goes on."""

import os
import resource
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from support.engines import ROOT
from support.faulty_bridge import FaultyBridge
from support.inferences import QUICK, dropped_in, infer, positions_of
from support.otlp_answers import Answer
from support.otlp_sink import OtlpSink
from support.processes import LOOPBACK, Process, free_port
from support.service import running
from support.waiting import wait_until

from otel_bridge.client import BridgeClient, ClientStats, EventTracer
from otel_bridge.client.counters import Counters
from otel_bridge.client.store import Store
from otel_bridge.errors import ConfigError

APP = ROOT / "tests" / "support" / "buffered_app.py"


@pytest.fixture
def buffer(tmp_path: Path) -> Path:
    """Where a buffer may lie."""
    return tmp_path / "buffer"


def record(bridge: FaultyBridge, buffer: Path, inferences: int, *, close_s: float = 0.0) -> ClientStats:
    """The account of a client that is closed after some inferences, a request each."""
    settings = replace(QUICK, buffer=buffer, batch_events=1)
    client = BridgeClient(bridge.address, settings=settings)
    tracer = EventTracer(client)
    for _ in range(inferences):
        infer(tracer)
    client.close(close_s)
    return client.stats


def drain(bridge: FaultyBridge, buffer: Path) -> ClientStats:
    """The account of a client that only sends what is in the buffer."""
    with BridgeClient(bridge.address, settings=replace(QUICK, buffer=buffer)) as client:
        assert client.flush(30)
        return client.stats


def rows(buffer: Path) -> int:
    """Requests in the file."""
    with closing(sqlite3.connect(buffer)) as database:
        return database.execute("SELECT count(*) FROM requests").fetchone()[0]


def test_it_outlives_the_client(bridge: FaultyBridge, buffer: Path) -> None:
    """What was not sent by one client is sent by the next, under the same ids and before its own; then it is gone."""
    bridge.go_away()
    first = record(bridge, buffer, 10)
    assert (first.waiting, first.dropped) == (40, {})
    assert rows(buffer) == 10
    bridge.come_back()
    second = record(bridge, buffer, 2, close_s=30)
    assert second == ClientStats(recorded=8, accepted=48, inherited=40)
    assert rows(buffer) == 0
    streams = [stream for stream, _ in positions_of(bridge.taken)]
    assert [streams.count(stream) for stream in dict.fromkeys(streams)] == [10, 2]


@pytest.mark.timeout(120)
def test_a_process_that_is_killed(tmp_path: Path, buffer: Path) -> None:
    """Kill -9 in the middle of sending: the next process sends the rest, and the back end has each event once."""
    port = free_port()
    address = f"{LOOPBACK}:{port}"
    log = tmp_path / "app.log"
    command = [sys.executable, APP, address, buffer, "300"]
    with OtlpSink() as sink, Process(command, log=log, environment={"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}) as app:
        app.wait_until(lambda: "buffered 1200" in log.read_text())  # nobody answers yet
        with running(tmp_path, sink, "--grpc", address) as service:
            app.wait_until(lambda: service.ledger().accepted > 100)
            app.kill()
            accepted = service.ledger().accepted
            with BridgeClient(address, settings=replace(QUICK, buffer=buffer)) as client:
                assert client.flush(60)
                assert client.stats.inherited == client.stats.accepted >= 1200 - accepted
            service.settle()
            spans = service.spans("app")
    found = {(span.trace_id, span.span_id) for span in spans}
    assert len(found) == 1200
    assert len(spans) - len(found) <= 8  # the one request under way, which the bridge knows again


FOREIGN = {"empty": b"", "text": b"no database at all" * 1000, "torn": b"SQLite format 3\x00" + bytes(5000)}


@pytest.mark.parametrize("content", FOREIGN.values(), ids=FOREIGN)
def test_a_file_that_is_no_buffer(bridge: FaultyBridge, buffer: Path, content: bytes) -> None:
    """It is kept under another name and counted, and a new one begun; an empty file is a buffer that holds nothing."""
    buffer.write_bytes(content)
    stats = record(bridge, buffer, 3, close_s=30)
    assert (stats.accepted, stats.dropped, stats.buffers_set_aside) == (12, {}, int(bool(content)))
    kept = [path for path in buffer.parent.glob("buffer.damaged-*") if path.name.count("-") == 1]
    assert [path.read_bytes() for path in kept] == ([content] if content else [])


def test_a_buffer_of_another_version(bridge: FaultyBridge, buffer: Path) -> None:
    """It is not touched, but set aside."""
    with closing(sqlite3.connect(buffer)) as database:
        database.executescript("CREATE TABLE requests (x); PRAGMA user_version = 99")
    assert record(bridge, buffer, 1, close_s=30).buffers_set_aside == 1


@pytest.mark.parametrize("column", ["sequence = 'x'", "stream = 'x'", "events = 'x'"])
def test_rows_that_are_no_requests(bridge: FaultyBridge, buffer: Path, column: str) -> None:
    """A file whose rows are of other types, which SQLite's own check does not tell, is set aside, and the client goes on."""
    bridge.go_away()
    record(bridge, buffer, 1)
    with closing(sqlite3.connect(buffer)) as database:
        database.execute(f"UPDATE requests SET {column}")  # noqa: S608 - the words are the test's
        database.commit()
    bridge.come_back()
    assert record(bridge, buffer, 1, close_s=30) == ClientStats(recorded=4, accepted=4, buffers_set_aside=1)


def test_a_damaged_request(bridge: FaultyBridge, buffer: Path) -> None:
    """One that a bit has flipped in is given up and told of; its neighbours arrive."""
    bridge.go_away()
    record(bridge, buffer, 3)
    with closing(sqlite3.connect(buffer)) as database:
        database.execute("UPDATE requests SET body = zeroblob(length(body)) WHERE number = 2")
        database.commit()
    bridge.come_back()
    stats = drain(bridge, buffer)
    assert stats == ClientStats(accepted=8, dropped={"buffer_corrupt": 4}, inherited=12)
    record(bridge, buffer, 1, close_s=30)
    assert [position for _, position in positions_of(bridge.taken)] == [0, 2, 0]


def test_a_file_that_breaks_while_in_use(bridge: FaultyBridge, buffer: Path) -> None:
    """What it held is counted, it is set aside, and a new one takes what follows."""
    bridge.answer = Answer.grpc_failure(grpc.StatusCode.UNAVAILABLE)
    with BridgeClient(bridge.address, settings=replace(QUICK, buffer=buffer, batch_events=1)) as client:
        tracer = EventTracer(client)
        for _ in range(200):
            infer(tracer, metadata=os.urandom(6_000))
        assert not client.flush(0.5)
        wait_until(lambda: client._sender._store.events == 800)  # what is written later would write over the damage
        with buffer.open("r+b") as main, buffer.with_name("buffer-wal").open("r+b") as log:  # before either is set aside
            for file in (main, log):  # a dying flash gives back something else
                file.write(os.urandom(os.fstat(file.fileno()).st_size))
        bridge.answer = Answer()
        assert client.flush(30)
        infer(tracer)
        assert client.flush(30)
        stats = client.stats
    assert (stats.buffers_set_aside, stats.waiting) == (1, 0)
    assert stats.accepted + stats.dropped["buffer_corrupt"] == stats.recorded == 804
    assert dropped_in(bridge.taken) == stats.dropped


def test_a_full_disk(bridge: FaultyBridge, buffer: Path) -> None:
    """Where the file cannot grow, one batch is held in memory; the queue takes the rest, and overflows counted."""
    bridge.go_away()
    settings = replace(QUICK, buffer=buffer, batch_events=8, queue_bytes=20_000)
    with file_size_limit(100_000), BridgeClient(bridge.address, settings=settings) as client:
        tracer = EventTracer(client)
        while "disk_full" not in client.stats.dropped:
            infer(tracer, metadata=os.urandom(500))
            time.sleep(0.001)  # lets the client's thread come between
        stats = client.stats
        assert set(stats.dropped) <= {"disk_full", "queue_full"}
        bridge.come_back()
        assert client.flush(30)
        infer(tracer)
        assert client.flush(30)
        stats = client.stats
        assert stats.accepted + sum(stats.dropped.values()) == stats.recorded
    assert dropped_in(bridge.taken) == stats.dropped
    assert len(set(positions_of(bridge.taken))) == len(positions_of(bridge.taken)) == stats.accepted / 4


@contextmanager
def file_size_limit(nbytes: int) -> Iterator[None]:
    """No file of this process grows beyond that, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_buffer_is_asked_for_until_it_is_there(buffer: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A buffer that cannot be opened now is asked for from time to time; why it cannot is said once."""
    seconds = [0.0]
    store = Store(replace(QUICK, buffer=buffer), Counters(), lambda: seconds[0])
    buffer.mkdir()
    for _ in range(5):
        store.tend()
        seconds[0] += 20
    assert len(caplog.records) == 1
    buffer.rmdir()
    store.tend()
    assert buffer.is_file()
    store.close()


def test_a_buffer_that_another_process_has(bridge: FaultyBridge, buffer: Path) -> None:
    """The second client works from memory, and leaves the file alone."""
    settings = replace(QUICK, buffer=buffer)
    with BridgeClient(bridge.address, settings=settings) as first, BridgeClient(bridge.address, settings=settings) as second:
        for client in (first, second, first):
            infer(EventTracer(client))
            assert client.flush(30)
        assert (first.stats.accepted, second.stats.accepted) == (8, 4)


def test_a_buffer_is_bounded(bridge: FaultyBridge, buffer: Path) -> None:
    """Requests in it take `buffer_bytes` and one batch at most, however long nobody answers."""
    bridge.go_away()
    settings = replace(QUICK, buffer=buffer, batch_events=8, queue_bytes=20_000, buffer_bytes=50_000)
    with BridgeClient(bridge.address, settings=settings) as client:
        tracer = EventTracer(client)
        while "buffer_full" not in client.stats.dropped:
            infer(tracer, metadata=os.urandom(500))
            time.sleep(0.001)  # lets the client's thread come between
        client.close(0)
        assert set(client.stats.dropped) <= {"buffer_full", "queue_full"}
    assert 50_000 <= buffer.stat().st_size < 150_000  # with what waited in the queue when the client was closed


def test_no_folder(tmp_path: Path) -> None:
    """A buffer in a folder that is not there is refused at once."""
    with pytest.raises(ConfigError, match="folder"):
        BridgeClient("localhost:1", settings=replace(QUICK, buffer=tmp_path / "absent" / "buffer"))
