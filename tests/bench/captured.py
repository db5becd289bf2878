"""What peers are given: the spans that the bridge itself made of its requests."""

from collections.abc import Sequence

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from sink import Sink
from subjects import DEVICES, Bridge


def captured(bridge: Bridge, sink: Sink, sizes: Sequence[int], count: int = DEVICES) -> dict[int, list[bytes]]:
    """
    What the bridge makes of requests of these sizes, cut into requests of as many spans: `count` of each size.

    A request holds spans of one device, as the bridge's own do.
    """
    made = {}
    for events in sizes:
        before = sink.count().spans
        sink.keep()
        bridge.send(events, count)
        sink.wait_for(before + events * count, bridge.program.process)
        merged = ExportTraceServiceRequest()
        for _, data in sink.kept():
            merged.MergeFromString(data)  # repeated fields join
        made[events] = _cut(merged, events)
        if len(made[events]) != count:
            raise SystemExit(f"{len(made[events])} devices of {count} sent {events} spans each")
    return made


def _cut(merged: ExportTraceServiceRequest, spans: int) -> list[bytes]:
    by_device: dict[bytes, ExportTraceServiceRequest] = {}
    for resource in merged.resource_spans:
        of = by_device.setdefault(resource.resource.SerializeToString(deterministic=True), ExportTraceServiceRequest())
        if not of.resource_spans:
            of.resource_spans.add(resource=resource.resource, schema_url=resource.schema_url).scope_spans.add(
                scope=resource.scope_spans[0].scope
            )
        of.resource_spans[0].scope_spans[0].spans.extend(span for scope in resource.scope_spans for span in scope.spans)
    return [of.SerializeToString() for of in by_device.values() if len(of.resource_spans[0].scope_spans[0].spans) == spans]
