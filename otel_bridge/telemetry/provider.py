"""
The parts of the OpenTelemetry SDK that the bridge uses for itself, put together.

Invariants
* Nothing is global: two providers in one process share no state, and none is registered as the process's own.
* Nothing is read from `OTEL_*`: those variables are for the spans of devices. Above all their headers, which may hold
  a back end's key, never go to the endpoint of own telemetry.
* Without an `OwnExport` nothing leaves the process but what `/metrics` is asked for.
"""

import os
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from grpc import Compression
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource

from otel_bridge.telemetry.process import cpu_seconds, memory_rss_bytes
from otel_bridge.telemetry.prometheus import Exposition
from otel_bridge.telemetry.recorder import Telemetry

SCOPE = "otel_bridge.telemetry"
"""Name of the instrumentation scope of the bridge's own telemetry."""


@dataclass(frozen=True, slots=True)
class OwnExport:
    """
    Where the bridge sends telemetry about itself, by OTLP/gRPC.

    endpoint     "http://HOST:PORT", or "https://HOST:PORT" for TLS with the system's roots
    headers      sent with each request
    interval_s   seconds between two sendings of all instruments
    timeout_s    seconds for one request
    """

    endpoint: str
    headers: Mapping[str, str] = field(default_factory=dict)
    interval_s: float = 60.0
    timeout_s: float = 10.0


class Provider:
    """
    Own telemetry of one bridge, from its start to `shutdown`.

    version      of the bridge
    export       where else it goes than to `/metrics`; None: nowhere
    telemetry    what the rooms record with
    """

    def __init__(self, *, version: str, export: OwnExport | None = None) -> None:
        self._exposition = Exposition()
        readers: list[MetricReader] = [self._exposition.reader]
        with _without_otel_variables():
            resource = Resource(
                {"service.name": "otel-bridge", "service.version": version, "service.instance.id": str(uuid.uuid4())}
            )
            if export is not None:
                readers.append(_metric_reader(export))
            self._meters = MeterProvider(readers, resource=resource, shutdown_on_exit=False)
        self.telemetry = Telemetry(self._meters.get_meter(SCOPE, version))
        started = time.monotonic()
        self.telemetry.watch("otel_bridge.process.uptime", lambda: time.monotonic() - started)
        self.telemetry.watch("otel_bridge.process.cpu_seconds", cpu_seconds)
        self.telemetry.watch("otel_bridge.process.memory_rss", memory_rss_bytes)

    def exposition(self) -> bytes:
        """All own instruments in the text form of Prometheus, version 0.0.4."""
        return self._exposition.text()

    def shutdown(self) -> None:
        """Send what is left, if anything is sent, and stop. Blocks up to the timeout of a request."""
        self._meters.shutdown()


def _metric_reader(export: OwnExport) -> MetricReader:
    exporter = OTLPMetricExporter(
        endpoint=export.endpoint,
        headers=dict(export.headers),
        timeout=export.timeout_s,
        compression=Compression.Gzip,
    )
    return PeriodicExportingMetricReader(
        exporter, export_interval_millis=export.interval_s * 1e3, export_timeout_millis=export.timeout_s * 1e3
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
