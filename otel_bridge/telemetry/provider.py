"""
The parts of the OpenTelemetry SDK that the bridge uses for itself, put together.

Invariants
* Nothing is global: two providers in one process share no state, and none is registered as the process's own.
* Nothing is read from `OTEL_*`: those variables are for the spans of devices. Above all their headers, which may hold
  a back end's key, never go to the endpoint of own telemetry.
* Without an `OwnExport` nothing leaves the process but what `/metrics` is asked for.
* How own telemetry leaves is neither counted nor traced: what is sent causes nothing more to be sent.
"""

import os
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcMetrics
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpans
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpMetrics
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpans
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExporter, MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from otel_bridge.telemetry.process import cpu_seconds, memory_rss_bytes
from otel_bridge.telemetry.prometheus import Exposition
from otel_bridge.telemetry.recorder import Telemetry
from otel_bridge.telemetry.sampling import Share
from otel_bridge.telemetry.traces import Traces

SCOPE = "otel_bridge.telemetry"
"""Name of the instrumentation scope of the bridge's own telemetry."""

_LINGER_MS = 1000
"""How long finished spans wait for others."""


@dataclass(frozen=True, slots=True)
class OwnExport:
    """
    Where the bridge sends telemetry about itself, by OTLP, compressed by gzip.

    endpoint      "http://HOST:PORT", or "https://HOST:PORT" for TLS with the system's roots; over gRPC also "HOST:PORT", which
                  is plain text; over HTTP the paths of the signals are added
    over_http     as protobuf over HTTP, not over gRPC
    headers       sent with each request
    metrics       whether the instruments are sent
    traces_ratio  share of requests that are traced; 0: none
    interval_s    seconds between two sendings of all instruments
    timeout_s     seconds for one request
    """

    endpoint: str
    over_http: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)
    metrics: bool = True
    traces_ratio: float = 0.0
    interval_s: float = 60.0
    timeout_s: float = 5.0

    def metric_exporter(self) -> MetricExporter:
        """Sends instruments."""
        return HttpMetrics(**self._over_http("metrics")) if self.over_http else GrpcMetrics(**self._over_grpc())

    def span_exporter(self) -> SpanExporter:
        """Sends spans."""
        return HttpSpans(**self._over_http("traces")) if self.over_http else GrpcSpans(**self._over_grpc())

    def _over_http(self, signal: str) -> dict[str, Any]:
        path = f"{self.endpoint.rstrip('/')}/v1/{signal}"
        return {"endpoint": path, "headers": {**self.headers}, "timeout": self.timeout_s, "compression": Compression.Gzip}

    def _over_grpc(self) -> dict[str, Any]:
        return {
            "endpoint": self.endpoint,
            "insecure": not self.endpoint.startswith("https://"),
            "headers": {**self.headers},
            "timeout": self.timeout_s,
            "compression": grpc.Compression.Gzip,
        }


class _UntilOneFails(SpanExporter):
    """
    While the bridge stops, nothing is tried after a request that failed.

    The SDK would try all that waits, some requests, and each might take its whole timeout.
    """

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._failed = False
        self.is_stopping = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        if self.is_stopping and self._failed:
            return SpanExportResult.FAILURE
        result = self._exporter.export(spans)
        self._failed = result is not SpanExportResult.SUCCESS
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()


class Provider:
    """
    Own telemetry of one bridge, from its start to `shutdown`.

    version      of the bridge
    export       where else it goes than to `/metrics`; None: nowhere
    telemetry    what the rooms record with
    traces       what the rooms open spans with
    """

    def __init__(self, *, version: str, export: OwnExport | None = None) -> None:
        self._exposition = Exposition()
        readers: list[MetricReader] = [self._exposition.reader]
        self._tracers: TracerProvider | None = None
        self._spans_out: _UntilOneFails | None = None
        with _without_otel_variables():
            resource = Resource(
                {"service.name": "otel-bridge", "service.version": version, "service.instance.id": str(uuid.uuid4())}
            )
            if export is not None and export.metrics:
                readers.append(_metric_reader(export))
            if export is not None and export.traces_ratio:
                self._tracers = TracerProvider(Share(export.traces_ratio), resource, shutdown_on_exit=False)
                self._spans_out = _UntilOneFails(export.span_exporter())
                self._tracers.add_span_processor(BatchSpanProcessor(self._spans_out, schedule_delay_millis=_LINGER_MS))
            self._meters = MeterProvider(readers, resource=resource, shutdown_on_exit=False)
        self.telemetry = Telemetry(self._meters.get_meter(SCOPE, version))
        self.traces = Traces(self._tracers.get_tracer(SCOPE, version) if self._tracers is not None else None)
        started = time.monotonic()
        self.telemetry.watch("otel_bridge.process.uptime", lambda: time.monotonic() - started)
        self.telemetry.watch("otel_bridge.process.cpu_seconds", cpu_seconds)
        self.telemetry.watch("otel_bridge.process.memory_rss", memory_rss_bytes)

    def exposition(self) -> bytes:
        """All own instruments in the text form of Prometheus, version 0.0.4."""
        return self._exposition.text()

    def shutdown(self) -> None:
        """Send what is left, if anything is sent, and stop. Blocks up to the timeout of a request, for each signal."""
        if self._tracers is not None and self._spans_out is not None:
            self._spans_out.is_stopping = True
            self._tracers.shutdown()
        self._meters.shutdown()


def _metric_reader(export: OwnExport) -> MetricReader:
    return PeriodicExportingMetricReader(
        export.metric_exporter(),
        export_interval_millis=export.interval_s * 1e3,
        export_timeout_millis=export.timeout_s * 1e3,
    )


@contextmanager
def _without_otel_variables() -> Iterator[None]:
    # The SDK's constructors read the environment beside their arguments (an OTLP exporter that is given no headers takes
    # those of OTEL_EXPORTER_OTLP_HEADERS), and no argument turns that off. So the variables are out of sight meanwhile.
    hidden = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("OTEL_")}
    try:
        yield
    finally:
        os.environ.update(hidden)
