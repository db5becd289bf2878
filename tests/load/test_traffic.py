"""How long requests waited is told of all of them, not only of those that somebody happened to send in time."""

import time

from otel_bridge.errors import BridgeUnavailable
from otel_bridge.load.fleet import Body
from otel_bridge.load.traffic import Outcome, drive
from otel_bridge.v1 import mapping_pb2
from otel_bridge.v1 import profiling_pb2 as pb

STALL_S = 0.1


class Slow:
    """A door whose first attempt takes `STALL_S` and is then refused, or accepted."""

    def __init__(self, refusal: BridgeUnavailable | None = None) -> None:
        self._refusal = refusal
        self._attempts = 0

    def send(self, _body: bytes) -> pb.ExportEventsResponse:
        """One attempt."""
        self._attempts += 1
        if self._attempts == 1:
            time.sleep(STALL_S)
            if self._refusal is not None:
                raise self._refusal
        return pb.ExportEventsResponse(accepted=1)

    def put_mapping(self, file: mapping_pb2.MappingFile) -> str:
        """Nobody asks."""
        raise NotImplementedError(file)

    def close(self) -> None:
        """Nothing is open."""


def run(door: Slow, rate: float | None = None) -> Outcome:
    """Five requests of one event through one door."""
    return drive(lambda: Body(b"", 1), [door], 5, 1, rate=rate)


def test_a_stall_shows_in_the_requests_behind_it() -> None:
    """They were due while it lasted, a millisecond apart, and a device would have waited."""
    outcome = run(Slow(), rate=1000)
    assert len(outcome.latency_ns) == outcome.accepted == 5
    assert min(outcome.latency_ns) >= (STALL_S - 0.004) * 1e9


def test_a_refusal_is_waited_for() -> None:
    """The request that is sent again waits from its first attempt; those that come later were not due."""
    outcome = run(Slow(BridgeUnavailable("later", retry_after_s=STALL_S, reason="spool_full")))
    assert (outcome.requests, outcome.retries, outcome.refusals) == (5, 1, {"spool_full": 1})
    first, *others = outcome.latency_ns
    assert first >= 1.9 * STALL_S * 1e9
    assert sum(others) + first <= outcome.seconds * 1e9


def test_without_a_rate_nothing_is_due() -> None:
    """As fast as they are taken: a request waits for its own answer alone."""
    outcome = run(Slow())
    assert sum(outcome.latency_ns) <= outcome.seconds * 1e9
