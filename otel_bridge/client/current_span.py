"""The app's own span, as the parent of an inference. Only the OpenTelemetry API is used; without an SDK there is no span."""

import logging

from opentelemetry import trace

from otel_bridge.model.events import TraceContext

_log = logging.getLogger(__name__)


def current_context() -> TraceContext | None:
    """The span that is current on this thread; None: there is none. Does not raise, whatever span the app has made itself."""
    try:
        return _read(trace.get_current_span().get_span_context())
    except Exception:  # noqa: BLE001 - a span class of the app's is no reason for an inference to fail
        _log.exception("the current span could not be read")
        return None


def _read(found: trace.SpanContext) -> TraceContext | None:
    if not found.is_valid:
        return None
    trace_id, span_id = found.trace_id.to_bytes(16, "big"), found.span_id.to_bytes(8, "big")
    return TraceContext(trace_id, span_id, int(found.trace_flags), found.trace_state.to_header())
