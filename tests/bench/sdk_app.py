"""
The stock path: an app that calls `start_span` and `end`, with the SDK's batch processor and its exporter over OTLP gRPC.

    sdk_app.py PORT SINK FILE   each line of standard input is a number of spans to make and to flush; a listener on PORT shows
                                that it is ready

The spans have the names, times and attributes of those in FILE, a request of OTLP.
"""

import socket
import sys
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

if TYPE_CHECKING:
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue

_BATCH = 512
"""Of the processor, which drops what does not fit its queue: so it is flushed as often."""


def main() -> None:
    """Make spans until standard input ends."""
    port, sink, payload = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    request = ExportTraceServiceRequest.FromString(payload.read_bytes())
    (resource,) = request.resource_spans
    provider = TracerProvider(resource=Resource({each.key: _value(each.value) for each in resource.resource.attributes}))
    exporter = OTLPSpanExporter(endpoint=f"http://{sink}", insecure=True)
    provider.add_span_processor(BatchSpanProcessor(exporter, max_export_batch_size=_BATCH))
    tracer = provider.get_tracer("otel_bridge")
    spans = [
        (
            each.name,
            {pair.key: _value(pair.value) for pair in each.attributes},
            each.start_time_unix_nano,
            each.end_time_unix_nano,
        )
        for each in resource.scope_spans[0].spans
    ]
    supply = cycle(spans)
    with socket.create_server(("127.0.0.1", port)):
        for line in sys.stdin:
            for count in range(0, int(line), _BATCH):
                for name, attributes, start, end in islice(supply, min(_BATCH, int(line) - count)):
                    tracer.start_span(name, attributes=attributes, start_time=start).end(end)
                provider.force_flush()


def _value(value: "AnyValue") -> object:
    kind = value.WhichOneof("value") or "string_value"
    return [_value(each) for each in value.array_value.values] if kind == "array_value" else getattr(value, kind)


if __name__ == "__main__":
    main()
