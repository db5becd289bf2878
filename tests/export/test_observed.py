"""What a watch is told of an exporter, with a real back end."""

from collections.abc import Callable

from grpc import StatusCode
from support.otlp_answers import Answer
from support.otlp_payloads import a_payload
from support.otlp_sink import OtlpSink

from otel_bridge.export.protocol import Sent

Send = Callable[..., Sent]


class Tally:
    """A `Watch` that remembers."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def request_sent(self, *, payload_bytes: int, rejected_spans: int, seconds: float) -> None:
        """Remember it."""
        assert seconds > 0
        self.calls.append(("sent", payload_bytes, rejected_spans))

    def request_failed(self, *, reason: str, payload_bytes: int, seconds: float) -> None:
        """Remember it."""
        assert seconds > 0
        self.calls.append(("failed", payload_bytes, reason))

    def request_halved(self, *, reason: str) -> None:
        """Remember it."""
        self.calls.append(("halved", reason))

    def circuit_changed(self, state: str) -> None:
        """Remember it."""
        self.calls.append((state,))


def test_every_request_is_watched(send: Send, protocol: str) -> None:
    """A watch is told of each attempt once, with its outcome, of each halving, and of whether the back end answers."""
    tally = Tally()
    unavailable = Answer.grpc_failure(StatusCode.UNAVAILABLE) if protocol == "grpc" else Answer.http_failure(503)
    rejected = Answer.grpc_failure(StatusCode.INVALID_ARGUMENT) if protocol == "grpc" else Answer.http_failure(400)
    with OtlpSink() as sink:
        sink.answers += [unavailable, unavailable, unavailable, unavailable, Answer.partial(3, "no"), rejected]
        send(sink, b"", watch=tally, retry_initial_s=0.001, retry_max_elapsed_s=30.0)
        send(sink, a_payload(2), watch=tally)
    assert tally.calls == [
        *[("failed", 0, "back_end_unavailable")] * 3,
        ("open",),
        ("half_open",),
        ("failed", 0, "back_end_unavailable"),
        ("open",),
        ("half_open",),
        ("sent", 0, 3),
        ("closed",),
        ("failed", len(a_payload(2)), "export_invalid"),
        ("halved", "export_invalid"),
        ("sent", len(a_payload(1)), 0),
        ("sent", len(a_payload(1)), 0),
    ]
