"""The table of outcomes of docs/outages.md: each row happens to a real bridge, over each protocol, and is counted exactly."""

import itertools
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from support.copies import assert_equal, copies_at
from support.otlp_sink import OtlpSink, Received
from support.outcomes import EVENTS, OUTCOMES, POISON, TIMEOUT_S, Outcome
from support.relay import Relay
from support.scenes import STREAM, batch_of, delegated, execute, runtime
from support.service import Service, running

from otel_bridge.export.dead_letters import DIRECTORY
from otel_bridge.export.letter import letters_in
from otel_bridge.wire.codec import request_of

PROTOCOLS = ("grpc", "http/protobuf")
QUICK = {"EXPORT__RETRY_INITIAL_S": "0.05", "EXPORT__RETRY_MAX_S": "0.1", "EXPORT__TIMEOUT_MS": str(int(TIMEOUT_S * 1000))}
NONSENSE = b"220 mail.example.com ESMTP\r\n" + bytes(range(256))


@dataclass
class Place:
    """A bridge, and the back end behind a relay."""

    protocol: str
    sink: OtlpSink
    relay: Relay
    service: Service
    data: Path
    sequences: "itertools.count[int]" = field(default_factory=itertools.count)
    copies: int = 0

    def send(self, app: str, inferences: int = EVENTS // 2, *, poison: bool = False) -> None:
        """One request of two events for each inference, which the bridge accepts."""
        stream = replace(STREAM, sequence=next(self.sequences), resource=(("service.name", app),))
        names = itertools.chain([POISON] if poison else [], itertools.repeat("x"))
        blocks = [
            (execute(position), [delegated(next(names), 0, 1, 2), runtime("Method::execute", 0, 5)])
            for position in range(inferences)
        ]
        answer = self.service.profiling.ExportEvents(request_of(batch_of(*blocks, stream=stream)))
        assert (answer.accepted, list(answer.rejected)) == (2 * inferences, [])

    def counts(self) -> "Counter[str]":
        """Events emitted, and dropped by reason; spans of dead letters by reason."""
        found = Counter({"emitted": self.service.counts("emitted_events").total()})
        for (reason,), events in self.service.counts("dropped_events").items():
            found[f"dropped {reason}"] = events
        for letter in letters_in(self.data / DIRECTORY):
            found[f"letter {letter.reason}"] += letter.spans
        return found


@pytest.fixture(scope="module")
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with ExitStack() as stack:
        sink = stack.enter_context(OtlpSink())
        port = sink.ports[PROTOCOLS.index(request.param)]
        relay = stack.enter_context(Relay(f"{sink.host}:{port}"))
        egress = {"OTEL_EXPORTER_OTLP_PROTOCOL": request.param, "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{relay.address}"}
        folder = tmp_path_factory.mktemp("bridge")
        yield Place(request.param, sink, relay, stack.enter_context(running(folder, sink, **egress, **QUICK)), folder / "data")


def make_trouble(place: Place, outcome: Outcome, app: str) -> None:
    """Send the six events while the back end does what the row says, up to the point at which it does well again."""
    sink, relay, before = place.sink, place.relay, len(place.sink.received)
    failed = place.service.counts("exporter_failed_requests").total()
    if outcome.trouble == "away":
        sink.go_away()
        relay.cut()
    elif outcome.trouble == "nonsense":
        relay.greeting = NONSENSE
        relay.cut()
    place.send(app, poison=True)
    if outcome.trouble == "cut":
        sink.wait_for_requests(before + 1)
        relay.cut()
    elif outcome.trouble is not None:
        place.service.process.wait_until(lambda: place.service.counts("exporter_failed_requests").total() > failed)
        relay.greeting = b""
        if outcome.trouble == "away":
            sink.come_back()


def of(app: str, received: list[Received]) -> list[Received]:
    """The requests of one app."""
    return [one for one in received if app.encode() in one.payload]


@pytest.mark.parametrize(
    ("place", "outcome"),
    [
        pytest.param(protocol, outcome, id=f"{outcome.back_end}-{protocol}")
        for protocol in PROTOCOLS
        for outcome in OUTCOMES
        if outcome.way(protocol)
    ],
    indirect=["place"],
    scope="module",
)
def test_outcome(outcome: Outcome, place: Place, request: pytest.FixtureRequest) -> None:
    """Each of the six events ends as the row says, and the next request is taken as if nothing had been."""
    way = outcome.way(place.protocol)
    assert way is not None
    sink, app = place.sink, f"{request.node.name}."
    before = place.counts()
    sink.answers.extend(answer() for answer in way.answers)
    sink.judge = lambda payload: way.judge(payload) if app.encode() in payload else None
    make_trouble(place, outcome, app)
    place.service.settle()
    assert not sink.answers
    seen = of(app, sink.received)
    assert len(seen) == outcome.attempts
    assert min((late.arrived_s - soon.arrived_s for soon, late in itertools.pairwise(seen)), default=9.0) >= outcome.waits_s
    ends = {f"dropped {reason}": events for reason, events in outcome.dropped.items()}
    kept = {f"letter {reason}": spans for reason, spans in outcome.letters.items()}
    assert place.counts() - before == Counter(emitted=outcome.emitted, **ends, **kept) + Counter()
    place.copies += outcome.copies
    assert assert_equal(copies_at(sink)) == place.copies
    follower = f"then {next(place.sequences)}."
    place.send(follower, 1)
    place.service.settle()
    assert len(of(follower, sink.received)) == 1
    assert (place.counts() - before)["emitted"] == outcome.emitted + 2
    assert place.service.counts("exporter_circuit")[("closed",)] == 1
