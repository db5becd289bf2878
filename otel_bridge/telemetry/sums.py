"""
What several processes say of themselves, as one: the exposition of a bridge that has workers.

Invariants
* Series are added up by name and labels, buckets of histograms too; of a few, which are no amounts, one value stands for all.
* What a process says of its identity (`target_info`) is that of the first.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

Join = Callable[[Sequence[float]], float]
Labels = tuple[tuple[str, str], ...]

_IDENTITY = "target_info"

_JOINED: dict[str, Join] = {
    "otel_bridge_ready": min,
    "otel_bridge_process_uptime_seconds": max,
    "otel_bridge_exporter_circuit": max,
    "otel_bridge_unaccounted_events": lambda values: max(values, key=abs),
}
"""Those that are not added up: ready while all are, up as long as the oldest, in a state while one is."""


def summed(texts: Sequence[bytes]) -> bytes:
    """The expositions of processes, in the text form of Prometheus, as that of one."""
    return generate_latest(_registry_of(_Sums(texts)))


class _Sums(Collector):
    def __init__(self, texts: Sequence[bytes]) -> None:
        self._families = list(_families(texts))

    def collect(self) -> Iterator[Metric]:
        yield from self._families


def _registry_of(collector: Collector) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    return registry


def _families(texts: Iterable[bytes]) -> Iterator[Metric]:
    found: dict[str, Metric] = {}
    values: dict[str, dict[tuple[str, Labels], list[float]]] = {}
    for text in texts:
        for family in text_string_to_metric_families(text.decode()):
            if family.name == _IDENTITY and _IDENTITY in found:
                continue
            found.setdefault(family.name, family)
            of_family = values.setdefault(family.name, {})
            for sample in family.samples:
                of_family.setdefault((sample.name, tuple(sorted(sample.labels.items()))), []).append(sample.value)
    for name, family in found.items():
        joined = Metric(name, family.documentation, family.type)
        join = _JOINED.get(name, sum)
        series = list(values[name].items())
        joined.samples = [Sample(each, dict(labels), join(some)) for (each, labels), some in series]
        yield joined
