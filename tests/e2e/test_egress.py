"""What the bridge makes of each way in which a back end behaves: rows of the table of docs/export.md, by the real process."""

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import grpc
import pytest
from blockbuster import BlockBuster
from click.testing import CliRunner
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from support.otlp_answers import Answer
from support.otlp_sink import OtlpSink
from support.scenes import STREAM, batch_of, delegated, execute, runtime
from support.service import Service, running

from otel_bridge.cli.main import otel_bridge
from otel_bridge.export.dead_letters import DIRECTORY
from otel_bridge.export.letter import letters_in
from otel_bridge.wire.codec import request_of

QUICK = {"EXPORT__RETRY_INITIAL_S": "0.05", "EXPORT__RETRY_MAX_S": "0.1", "EXPORT__TIMEOUT_MS": "4000"}
REFUSED = Answer(code=grpc.StatusCode.INVALID_ARGUMENT, status=400, details="bad attribute")
FORBIDDEN = Answer(code=grpc.StatusCode.PERMISSION_DENIED, status=403)


@dataclass
class Place:
    """A bridge, the back end behind it, and its data directory; each test is one app."""

    sink: OtlpSink
    service: Service
    data: Path
    app: str
    sequences: Iterator[int]

    def send(self, inferences: int, *, text: str = "x", metadata: bytes = b"") -> None:
        """Let the bridge accept inferences of two events each; the delegate's is called `text`."""
        for sequence in itertools.islice(self.sequences, inferences):
            stream = replace(STREAM, sequence=sequence, resource=(("service.name", self.app),))
            events = [delegated(text, 0, 1, 2, metadata=metadata), runtime("Method::execute", 0, 5)]
            assert self.service.profiling.ExportEvents(request_of(batch_of((execute(), events), stream=stream))).accepted == 2

    def spans(self) -> list[Span]:
        """Those of this test that have arrived."""
        return self.service.spans(self.app)

    def letters(self) -> list[tuple[str, int]]:
        """Reason and spans of each dead letter."""
        return [(letter.reason, letter.spans) for letter in letters_in(self.data / DIRECTORY)]


@dataclass
class Books:
    """What was added to the counts of the bridge since the start of a test."""

    service: Service
    before: dict[str, "Counter[tuple[str, ...]]"]

    def __getitem__(self, name: str) -> "Counter[tuple[str, ...]]":
        return self.service.counts(name) - self.before[name]

    def end(self, emitted: int, **dropped: int) -> None:
        """Wait until every event has ended; assert how they did, in events."""
        self.service.settle()
        assert self["emitted_events"].total() == emitted
        assert self["dropped_events"] == Counter({(reason,): events for reason, events in dropped.items()})
        assert self.service.counts("exporter_circuit") == Counter({("closed",): 1, ("half_open",): 0, ("open",): 0})


NAMES = (
    "emitted_events", "dropped_events", "exporter_sent_spans", "exporter_failed_requests",
    "exporter_halved_requests", "dead_letters_kept_spans",
)  # fmt: skip


@pytest.fixture(scope="module", params=["grpc", "http/protobuf"])
def bridge(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("bridge")
    with OtlpSink() as sink:
        endpoint = sink.grpc_endpoint if request.param == "grpc" else sink.http_endpoint
        egress = {"OTEL_EXPORTER_OTLP_PROTOCOL": request.param, "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}
        with running(folder, sink, **egress, **QUICK) as service:
            yield Place(sink, service, folder / "data", "", itertools.count())


@pytest.fixture
def place(bridge: Place, request: pytest.FixtureRequest, blockbuster: BlockBuster) -> Place:
    blockbuster.deactivate()  # the loop of a command, which `replay` runs, is its own
    return replace(bridge, app=request.node.name)


@pytest.fixture
def books(place: Place) -> Books:
    return Books(place.service, {name: place.service.counts(name) for name in NAMES})


def ids(spans: list[Span]) -> list[tuple[bytes, bytes]]:
    return [(span.trace_id, span.span_id) for span in spans]


def test_away_then_back(place: Place, books: Books) -> None:
    """Events wait, the circuit is seen to be open, and all arrive once; the log has one line for each of the two changes."""
    log = place.service.process.log
    before = log.stat().st_size
    place.sink.go_away()
    try:
        place.send(3)
        place.service.process.wait_until(lambda: place.service.counts("exporter_circuit")["closed",] == 0)
        place.service.process.wait_until(lambda: books["exporter_failed_requests"].total() >= 3)
        assert books["dropped_events"] == Counter()
    finally:
        place.sink.come_back()
    books.end(emitted=6)
    assert len(ids(place.spans())) == len(set(ids(place.spans()))) == 6
    lines = log.read_bytes()[before:].decode().splitlines()
    assert [line.split(": ")[0].split()[1] for line in lines] == ["WARNING", "INFO"]
    assert lines[0].endswith("; requests wait and are sent again")
    assert lines[1].endswith("the back end of export answers again")


@pytest.mark.parametrize("answer", ["UNAVAILABLE", "RESOURCE_EXHAUSTED"])
def test_asks_for_patience(place: Place, books: Books, answer: str) -> None:
    """The time that the back end names is waited, and then the request is taken."""
    refusal = Answer.grpc_failure(grpc.StatusCode[answer], retry_after_s=0.2)
    status = 503 if answer == "UNAVAILABLE" else 429
    place.sink.answers.append(replace(refusal, status=status, headers={"retry-after": "1"}))
    place.send(1)
    books.end(emitted=2)
    assert books["exporter_failed_requests"] == Counter({("back_end_unavailable",): 1})


def test_slow(place: Place, books: Books) -> None:
    """A back end that answers late, but in time, has everything once."""
    place.sink.answers.append(Answer(delay_s=0.2))
    place.send(1)
    books.end(emitted=2)
    assert (len(place.spans()), books["exporter_failed_requests"]) == (2, Counter())


def test_never_answers(place: Place, books: Books) -> None:
    """After the timeout the request is sent again over a new connection, with the same bytes."""
    before = len(place.sink.received)
    place.sink.answers.append(replace(FORBIDDEN, delay_s=30))
    place.send(1)
    books.end(emitted=2)
    first, second = place.sink.received[before:]
    assert first.payload == second.payload
    assert books["exporter_failed_requests"] == Counter({("back_end_unavailable",): 1})


def test_resets_after_committing(place: Place, books: Books) -> None:
    """Spans that were taken before the connection broke come again with the same bytes, so a back end shows them once."""
    before = len(place.sink.received)
    place.sink.answers.append(Answer(delay_s=30))
    place.send(1)
    place.sink.wait_for_requests(before + 1)
    place.sink.go_away()
    place.sink.come_back()
    books.end(emitted=2)
    received = place.sink.received[before:]
    assert len(received) >= 2
    assert len({one.payload for one in received}) == 1
    assert (len(place.spans()), len(set(ids(place.spans())))) == (2 * len(received), 2)


def test_rejects_a_part(place: Place, books: Books) -> None:
    """Partial success is final: the rejected spans are counted, nothing is sent again, nothing is kept."""
    before = len(place.sink.received)
    place.sink.answers.append(Answer.partial(1, "one is odd"))
    place.send(1)
    books.end(emitted=1, partial_success=1)
    assert (len(place.sink.received) - before, place.letters()) == (1, [])


def test_rejects_by_size(place: Place, books: Books) -> None:
    """What is over the limit is halved until it fits; a single span that is over it is counted, and kept."""
    place.sink.go_away()
    limit, place.sink.max_request_bytes = place.sink.max_request_bytes, 2_000
    place.sink.come_back()
    try:
        place.send(1, text="large", metadata=bytes(1_000))
        place.send(6)
        books.end(emitted=13, export_too_large=1)
    finally:
        place.sink.go_away()
        place.sink.max_request_bytes = limit
        place.sink.come_back()
    assert len(set(ids(place.spans()))) == 13
    assert books["exporter_halved_requests"]["export_too_large",] > 0
    assert place.letters() == [("export_too_large", 1)]
    replay(place)
    assert len(set(ids(place.spans()))) == 14


def test_refuses_one_span(place: Place, books: Books) -> None:
    """The neighbours of a span that is refused for good arrive; it alone is counted and kept, and arrives by `spool replay`."""
    place.sink.judge = lambda payload: REFUSED if b"poison" in payload else None
    try:
        place.send(5)
        place.send(1, text="poison")
        place.send(5)
        books.end(emitted=21, export_invalid=1)
    finally:
        place.sink.judge = lambda _: None
    assert len(set(ids(place.spans()))) == 21
    assert place.letters() == [("export_invalid", 1)]
    assert books["dead_letters_kept_spans"] == Counter({("export_invalid",): 1})
    assert place.service.counts("dead_letters_size_bytes").total() > 0
    replay(place)
    assert len(set(ids(place.spans()))) == 22


def test_refuses_everything(place: Place, books: Books) -> None:
    """A refusal that is of no span in particular, as of a key, costs one request; all of it is kept, to be sent later."""
    place.sink.answer = FORBIDDEN
    try:
        before = len(place.sink.received)
        place.send(1)
        books.end(emitted=0, export_rejected=2)
        assert len(place.sink.received) - before == 1
    finally:
        place.sink.answer = Answer()
    assert place.letters() == [("export_rejected", 2)]
    replay(place)
    assert len(set(ids(place.spans()))) == 2


@pytest.mark.parametrize("settings", [("--data-dir", ":memory:"), ()], ids=["in memory", "switched off"])
def test_no_dead_letters(settings: tuple[str, ...], tmp_path: Path) -> None:
    """A bridge without a data directory, or whose bound is 0, counts what was refused and keeps nothing."""
    bound = {} if settings else {"EXPORT__DEAD_LETTER_BYTES": "0"}
    with OtlpSink() as sink, running(tmp_path, sink, *settings, **bound) as service:
        sink.answer = FORBIDDEN
        Place(sink, service, tmp_path, "app", itertools.count()).send(1)
        service.settle()
        assert service.counts("dropped_events") == Counter({("export_rejected",): 2})
        assert service.counts("dead_letters_kept_spans") == service.counts("dead_letters_size_bytes") == Counter()
    assert list(tmp_path.rglob("*.pb")) == []


def replay(place: Place) -> None:
    """Send all dead letters again, beside the bridge that runs."""
    environment = place.service.process.environment
    endpoint = environment["OTEL_EXPORTER_OTLP_ENDPOINT"]
    command = ["spool", "replay", "--data-dir", str(place.data), "--otlp-endpoint", endpoint]
    protocol = environment["OTEL_EXPORTER_OTLP_PROTOCOL"]
    done = CliRunner().invoke(otel_bridge, command, env={"OTEL_EXPORTER_OTLP_PROTOCOL": protocol}, catch_exceptions=False)
    assert (done.exit_code, place.letters()) == (0, []), done.stderr
