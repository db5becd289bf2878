"""A request in two. Each half has the resources and scopes of its spans; order is kept within a half."""

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


def halves_of(payload: bytes) -> tuple[bytes, ...]:
    """Two serialised requests with half of the spans each; none if `payload` has fewer than two, or is no request."""
    try:
        request = ExportTraceServiceRequest.FromString(payload)
    except DecodeError:
        return ()
    spans = _count(request)
    if spans < 2:  # noqa: PLR2004  # two halves need two spans
        return ()
    return tuple(_slice(request, *bounds).SerializeToString() for bounds in ((0, spans // 2), (spans // 2, spans)))


def count_spans(payload: bytes) -> int:
    """Spans of all resources and scopes of a serialised request; 0 if it is none."""
    try:
        return _count(ExportTraceServiceRequest.FromString(payload))
    except DecodeError:
        return 0


def _count(request: ExportTraceServiceRequest) -> int:
    return sum(len(scope.spans) for resource in request.resource_spans for scope in resource.scope_spans)


def _slice(request: ExportTraceServiceRequest, first: int, last: int) -> ExportTraceServiceRequest:
    """Spans `first` to `last`, counted over the whole request, under copies of their resources and scopes."""
    part = ExportTraceServiceRequest()
    position = 0
    for resource in request.resource_spans:
        kept_resource = None
        for scope in resource.scope_spans:
            spans = scope.spans[max(0, first - position) : max(0, last - position)]
            position += len(scope.spans)
            if not spans:
                continue
            if kept_resource is None:
                kept_resource = part.resource_spans.add(schema_url=resource.schema_url)
                if resource.HasField("resource"):
                    kept_resource.resource.CopyFrom(resource.resource)
            kept_scope = kept_resource.scope_spans.add(schema_url=scope.schema_url, spans=spans)
            if scope.HasField("scope"):
                kept_scope.scope.CopyFrom(scope.scope)
    return part
