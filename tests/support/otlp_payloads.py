"""Payloads for exporters: real OTLP messages, small and large."""

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span


def a_span(number: int, *, attribute_bytes: int = 0) -> Span:
    """A span whose ids and name tell its number, with one text attribute of the given length."""
    return Span(
        trace_id=number.to_bytes(16, "big"),
        span_id=number.to_bytes(8, "big"),
        name=f"span {number}",
        start_time_unix_nano=1_700_000_000_000_000_000 + number,
        end_time_unix_nano=1_700_000_000_000_000_100 + number,
        attributes=[KeyValue(key="text", value=AnyValue(string_value="x" * attribute_bytes))],
    )


def a_request(*sizes: int, attribute_bytes: int = 0) -> ExportTraceServiceRequest:
    """A request with one resource and scope for each of `sizes`, which is the number of its spans; spans count from 1."""
    numbers = iter(range(1, sum(sizes) + 1))
    return ExportTraceServiceRequest(
        resource_spans=[
            ResourceSpans(
                resource=Resource(attributes=[KeyValue(key="service.name", value=AnyValue(string_value=f"app {position}"))]),
                schema_url=f"https://schema/{position}",
                scope_spans=[
                    ScopeSpans(
                        scope=InstrumentationScope(name=f"scope {position}"),
                        schema_url=f"https://scope/{position}",
                        spans=[a_span(next(numbers), attribute_bytes=attribute_bytes) for _ in range(size)],
                    )
                ],
            )
            for position, size in enumerate(sizes)
        ]
    )


def a_payload(*sizes: int, attribute_bytes: int = 0) -> bytes:
    """`a_request`, serialised."""
    return a_request(*sizes, attribute_bytes=attribute_bytes).SerializeToString()
