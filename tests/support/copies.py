"""What a back end has of each span, and whether it is the same each time."""

from collections import defaultdict

from support.otlp_sink import OtlpSink

Copies = dict[bytes, dict[bytes, list[bytes]]]
"""Trace id -> span id -> each arrival, as the bytes of resource, scope and span."""


def copies_at(sink: OtlpSink) -> Copies:
    """What arrived and was taken."""
    found: Copies = defaultdict(lambda: defaultdict(list))
    for request in sink.requests:
        for part in request.resource_spans:
            for scope in part.scope_spans:
                around = part.resource.SerializeToString() + scope.scope.SerializeToString()
                for span in scope.spans:
                    found[span.trace_id][span.span_id].append(around + span.SerializeToString())
    return found


def assert_equal(found: Copies) -> int:
    """All copies of a span are equal byte for byte; how many there are beyond the first ones."""
    arrivals = [copies for spans in found.values() for copies in spans.values()]
    assert [copies for copies in arrivals if len(set(copies)) > 1] == []
    return sum(len(copies) - 1 for copies in arrivals)
