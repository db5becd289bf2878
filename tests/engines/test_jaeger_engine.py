"""The Jaeger that other tests trust: what goes in by OTLP comes out of its API."""

import time
from collections.abc import Iterator

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span
from support.jaeger import Jaeger

SERVICE = "test-jaeger-engine"
TRACE_ID = bytes(range(16))
HANDLES = AnyValue(array_value=ArrayValue(values=[AnyValue(int_value=handle) for handle in (10, 11)]))


def chain(start_ns: int) -> ExportTraceServiceRequest:
    """Three spans, each the parent of the next and 1 us inside it; the innermost lasts 1 ns."""
    spans = [
        Span(
            trace_id=TRACE_ID,
            span_id=bytes([depth + 1] * 8),
            parent_span_id=bytes([depth] * 8) if depth else b"",
            name=f"depth {depth}",
            kind=Span.SPAN_KIND_INTERNAL,
            start_time_unix_nano=start_ns + 1_000 * depth,
            end_time_unix_nano=start_ns + (2_001 if depth == 2 else 9_000 - 1_000 * depth),
            attributes=[KeyValue(key="test.handles", value=HANDLES)],
        )
        for depth in range(3)
    ]
    resource = Resource(attributes=[KeyValue(key="service.name", value=AnyValue(string_value=SERVICE))])
    scope = ScopeSpans(scope=InstrumentationScope(name="test", version="1"), spans=spans)
    return ExportTraceServiceRequest(resource_spans=[ResourceSpans(resource=resource, scope_spans=[scope])])


@pytest.fixture
def stub(jaeger: Jaeger) -> Iterator[TraceServiceStub]:
    with grpc.insecure_channel(jaeger.otlp_grpc.removeprefix("http://")) as channel:
        yield TraceServiceStub(channel)


def test_spans_come_back_as_they_were_sent(jaeger: Jaeger, stub: TraceServiceStub) -> None:
    """Ids, parents, nanoseconds, array types, resource and scope survive the way in and out, without a warning."""
    start_ns = time.time_ns()
    stub.Export(chain(start_ns), timeout=10)
    spans = jaeger.trace(TRACE_ID.hex())
    assert [span.name for span in spans] == ["depth 0", "depth 1", "depth 2"]
    assert [span.parent_span_id for span in spans] == ["", spans[0].span_id, spans[1].span_id]
    times = [(span.start_ns - start_ns, span.end_ns - start_ns) for span in spans]
    assert times == [(0, 9_000), (1_000, 8_000), (2_000, 2_001)]
    assert all(span.attributes == {"test.handles": (10, 11)} for span in spans)
    assert all(span.resource == {"service.name": SERVICE} and span.scope == ("test", "1") for span in spans)
    assert jaeger.warnings(TRACE_ID.hex()) == {}
    assert SERVICE in jaeger.services()


def test_sending_again_changes_nothing(jaeger: Jaeger, stub: TraceServiceStub) -> None:
    """Equal spans sent twice show once, by id and in a search."""
    start_ns = time.time_ns()
    request = chain(start_ns)
    trace_id = bytes(reversed(TRACE_ID))
    for span in request.resource_spans[0].scope_spans[0].spans:
        span.trace_id = trace_id
    bounds = {"start_ns": start_ns - 1_000_000_000, "end_ns": start_ns + 1_000_000_000}
    stub.Export(request, timeout=10)
    once = jaeger.trace(trace_id.hex()), jaeger.search(SERVICE, **bounds)[trace_id.hex()]
    stub.Export(request, timeout=10)
    assert (jaeger.trace(trace_id.hex()), jaeger.search(SERVICE, **bounds)[trace_id.hex()]) == once
    assert len(once[0]) == 3


def test_a_zero_length_span_is_complained_of(jaeger: Jaeger, stub: TraceServiceStub) -> None:
    """Warnings reach the client: Jaeger dislikes a span that ends before it starts."""
    request = chain(time.time_ns())
    for span in request.resource_spans[0].scope_spans[0].spans:
        span.trace_id = b"\x07" * 16
    innermost = request.resource_spans[0].scope_spans[0].spans[2]
    innermost.end_time_unix_nano = innermost.start_time_unix_nano - 1
    stub.Export(request, timeout=10)
    assert set(jaeger.warnings("07" * 16)) == {innermost.span_id.hex()}


def test_an_unknown_trace_is_empty(jaeger: Jaeger) -> None:
    """A trace that nobody sent has no spans."""
    assert jaeger.trace("ab" * 16) == []
