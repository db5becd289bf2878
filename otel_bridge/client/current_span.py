"""The app's own span, as the parent of an inference. Only the OpenTelemetry API is used; without an SDK there is no span."""

from opentelemetry import trace

from otel_bridge.model.events import TraceContext


def current_context() -> TraceContext | None:
    """The span that is current on this thread; None: there is none."""
    found = trace.get_current_span().get_span_context()
    if not found.is_valid:
        return None
    trace_id, span_id = found.trace_id.to_bytes(16, "big"), found.span_id.to_bytes(8, "big")
    return TraceContext(trace_id, span_id, int(found.trace_flags), found.trace_state.to_header())
