"""The Prometheus text form of the bridge's own instruments, from a registry of its own."""

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest


class Exposition:
    """What `/metrics` answers. `reader` belongs into a meter provider."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        # Scope labels would stand on every series and always say the same.
        self.reader = PrometheusMetricReader(scope_info_enabled=False, registry=self._registry)

    def text(self) -> bytes:
        """All series now, in the text form of Prometheus."""
        return generate_latest(self._registry)
