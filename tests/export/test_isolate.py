"""Halving what is too large."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from support.otlp_payloads import a_request

from otel_bridge.errors import BackEndUnavailable, ExportRejected
from otel_bridge.export.protocol import TOO_LARGE, Sent
from otel_bridge.export.split import Split, count_spans


class Narrow:
    """A back end that takes at most `limit_bytes` a request, and remembers what it took."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.taken: list[ExportTraceServiceRequest] = []
        self.attempts = 0

    async def send(self, payload: bytes) -> Sent:
        """Take it, if it is small."""
        self.attempts += 1
        if len(payload) > self.limit_bytes:
            raise ExportRejected("too large", reason=TOO_LARGE)
        self.taken.append(ExportTraceServiceRequest.FromString(payload))
        return Sent()

    async def close(self) -> None:
        """Nothing to let go of."""


def flat(requests: list[ExportTraceServiceRequest]) -> list[tuple[bytes, bytes, bytes]]:
    """(resource, scope, span) of every span, in order."""
    return [
        (
            resource.resource.SerializeToString() + resource.schema_url.encode(),
            scope.scope.SerializeToString() + scope.schema_url.encode(),
            span.SerializeToString(),
        )
        for request in requests
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


@given(sizes=st.lists(st.integers(0, 6), min_size=1, max_size=4), limit=st.integers(150, 2_000))
def test_nothing_is_lost_or_moved(sizes: list[int], limit: int) -> None:
    """Whatever the limit, every span is either taken once, in order, under its resource and scope, or counted as rejected."""
    request = a_request(*sizes)
    back_end = Narrow(limit)
    try:
        sent = asyncio.run(Split(back_end, floor_bytes=0).send(request.SerializeToString()))
    except ExportRejected:
        assert count_spans(request) < 2
        assert back_end.taken == []
        return
    taken, all_spans = flat(back_end.taken), flat([request])
    assert len(taken) + sent.rejected_spans == len(all_spans)
    assert taken == [span for span in all_spans if span in taken]
    if limit > 2 * len(a_request(1).SerializeToString()):  # room for any one span
        assert sent == Sent()


def test_small_parts_are_not_halved() -> None:
    """A back end that calls everything too large is asked a bounded number of times, and all spans are counted."""
    request = a_request(64, attribute_bytes=1_000)
    back_end = Narrow(0)
    sent = asyncio.run(Split(back_end, floor_bytes=20_000).send(request.SerializeToString()))
    assert sent == Sent(64, "too large")
    assert back_end.attempts == 7  # 68 kB, two halves, four quarters of 17 kB


@pytest.mark.parametrize(
    "payload", [b"", b"\xff" * 100, a_request(1).SerializeToString()], ids=["empty", "rubbish", "one span"]
)
def test_what_cannot_be_halved_is_rejected(payload: bytes) -> None:
    """A payload without two spans is rejected as it is."""
    with pytest.raises(ExportRejected, match="too large"):
        asyncio.run(Split(Narrow(-1), floor_bytes=0).send(payload))


@pytest.mark.parametrize("error", [ExportRejected("bad"), BackEndUnavailable("away")], ids=["rejected", "unavailable"])
def test_other_failures_pass(error: Exception) -> None:
    """Only "too large" is answered with halves."""

    class Failing(Narrow):
        async def send(self, payload: bytes) -> Sent:  # noqa: ARG002  # the protocol's signature
            raise error

    with pytest.raises(type(error)) as caught:
        asyncio.run(Split(Failing(0), floor_bytes=0).send(a_request(4).SerializeToString()))
    assert caught.value is error
