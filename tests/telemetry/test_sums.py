"""The metrics of several processes as those of one."""

from prometheus_client.parser import text_string_to_metric_families

from otel_bridge.telemetry.provider import Provider
from otel_bridge.telemetry.sums import summed


def process(events: int, *, ready: int = 1, unaccounted: int = 0, state: str = "closed") -> bytes:
    """What one says."""
    provider = Provider(version="1")
    telemetry = provider.telemetry
    telemetry.add("otel_bridge.emitted_events", events, destination="default")
    telemetry.add("otel_bridge.emitted_events", 1, destination=f"only {events}")
    telemetry.observe("otel_bridge.exporter.send_duration", events / 100, destination="default")
    telemetry.watch("otel_bridge.spool.size_bytes", lambda: 10 * events)
    telemetry.watch("otel_bridge.ready", lambda: ready)
    telemetry.watch("otel_bridge.unaccounted_events", lambda: unaccounted, destination="default")
    for each in ("closed", "open"):
        telemetry.watch("otel_bridge.exporter.circuit", lambda each=each: int(each == state), destination="default", state=each)
    return provider.exposition()


def values(text: bytes) -> dict[tuple[str, ...], float]:
    """By name and labels."""
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_amounts_are_added_up() -> None:
    """Counters, gauges and histograms by their labels, and those that only one process has."""
    found = values(summed([process(3), process(4)]))
    assert found["otel_bridge_emitted_events_total", "default"] == 7
    assert found["otel_bridge_emitted_events_total", "only 3"] == found["otel_bridge_emitted_events_total", "only 4"] == 1
    assert found["otel_bridge_spool_size_bytes",] == 70
    assert found["otel_bridge_exporter_send_duration_seconds_count", "default"] == 2
    assert found["otel_bridge_exporter_send_duration_seconds_bucket", "default", "0.02"] == 0
    assert found["otel_bridge_exporter_send_duration_seconds_bucket", "default", "0.05"] == 2


def test_what_is_no_amount() -> None:
    """Ready while all are; in every state that one is in; the books of one do not make good for those of another."""
    found = values(summed([process(3), process(4, ready=0, state="open", unaccounted=-5), process(5, unaccounted=5)]))
    assert found["otel_bridge_ready",] == 0
    assert found["otel_bridge_exporter_circuit", "default", "closed"] == 1
    assert found["otel_bridge_exporter_circuit", "default", "open"] == 1
    assert abs(found["otel_bridge_unaccounted_events", "default"]) == 5
    assert len([name for name, *_ in found if name == "target_info"]) == 1


def test_one_process_alone() -> None:
    """It says the same in both ways."""
    one = process(3)
    assert summed([one]) == one
