"""
Spans as a back end decodes them: a dump and a mapping in, decoded OTLP out.

Decoded spans have the form in which Jaeger gives spans back (`StoredSpan`), so that one check can be put to both.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from support.jaeger import StoredSpan, Value

from otel_bridge.app.offline import Offline
from otel_bridge.spans import reference
from otel_bridge.spans.assemble import assemble
from otel_bridge.spans.scene import Scene
from otel_bridge.v1 import mapping_pb2, profiling_pb2

TICK_ZERO_NS = 1_767_225_600_000_000_000
"""Where tests anchor tick 0 of a clock of nanoseconds (2026-01-01): an event's span then starts at this plus its ticks."""

LIMIT_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Resolved:
    """What became of a dump: its spans in no order of meaning, the events that gave none by reason, and the scene itself."""

    spans: list[StoredSpan]
    rejected: dict[str, int]
    scene: Scene


def resolve_dump(
    dump: bytes,
    mapping: mapping_pb2.MappingFile | None = None,
    *,
    model: str = "model",
    method: str = "",
    parsers: Sequence[str] = (),
) -> Resolved:
    """Resolve a dump whose ticks are nanoseconds, tick 0 at `TICK_ZERO_NS`, and decode the bytes that would go out."""
    stream = profiling_pb2.Stream(
        model=profiling_pb2.ModelRef(name=model.encode(), version=b"1"),
        clocks=[profiling_pb2.Clock(anchor_unix_ns=TICK_ZERO_NS)],
        runtime_version=b"1.5.1",
    )
    request = profiling_pb2.UploadETDumpRequest(stream=stream, etdump=dump, method=method.encode())
    offline = Offline(mapping, parsers)
    try:
        replayed = offline.replay(request, received_ns=TICK_ZERO_NS)
    finally:
        offline.close()
    spans = [span for payload in assemble(replayed.scene, LIMIT_BYTES) for span in decode(payload.data)]
    return Resolved(spans, replayed.admitted.rejected, replayed.scene)


def reference_spans(scene: Scene) -> list[StoredSpan]:
    """The spans of a scene by the reference path, sent and decoded."""
    return decode(reference.build(scene).SerializeToString())


def decode(request: bytes) -> list[StoredSpan]:
    """The spans of a serialised `ExportTraceServiceRequest`, in its order."""
    return [
        _span(span, _attributes(resource.resource.attributes), (scope.scope.name, scope.scope.version))
        for resource in ExportTraceServiceRequest.FromString(request).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def by_id(spans: Sequence[StoredSpan]) -> list[StoredSpan]:
    """Spans in an order that does not depend on how they were sent."""
    return sorted(spans, key=lambda span: (span.trace_id, span.span_id))


def _span(span: Span, resource: dict[str, Value], scope: tuple[str, str]) -> StoredSpan:
    return StoredSpan(
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_span_id=span.parent_span_id.hex(),
        name=span.name,
        kind=span.kind,
        flags=span.flags,
        start_ns=span.start_time_unix_nano,
        end_ns=span.end_time_unix_nano,
        status=span.status.code,
        trace_state=span.trace_state,
        attributes=_attributes(span.attributes),
        resource=resource,
        scope=scope,
        links=tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
    )


def _attributes(attributes: Sequence[KeyValue]) -> dict[str, Value]:
    decoded = {attribute.key: _value(attribute.value) for attribute in attributes}
    assert len(decoded) == len(attributes), "a key stands twice"
    return decoded


def _value(value: AnyValue) -> Value:
    match value.WhichOneof("value"):
        case "array_value":
            return tuple(_value(each) for each in value.array_value.values)
        case None:
            return None
        case scalar:
            content: Value = getattr(value, scalar)
            return content
