"""What can be recorded, and what cannot."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from otel_bridge.telemetry.instruments import INSTRUMENTS, Instrument, Kind, Undeclared
from otel_bridge.telemetry.recorder import MAX_LABEL_LENGTH, MAX_LABEL_VALUES, OTHER, Telemetry

REFUSED = "otel_bridge.receiver.refused_events"


def recorded() -> tuple[Telemetry, Callable[[], dict[str, list[tuple[dict[str, str], Any]]]]]:
    """A recorder, and a function that reads what it holds: by name, labels and value (count and sum of a histogram)."""
    reader = InMemoryMetricReader()
    telemetry = Telemetry(MeterProvider([reader], shutdown_on_exit=False).get_meter("test"))

    def read() -> dict[str, list[tuple[dict[str, str], Any]]]:
        data = reader.get_metrics_data()
        metrics = [] if data is None else data.resource_metrics[0].scope_metrics[0].metrics
        return {
            metric.name: [
                (dict(point.attributes or {}), point.value if hasattr(point, "value") else (point.count, point.sum))
                for point in metric.data.data_points
            ]
            for metric in metrics
        }

    return telemetry, read


def record(telemetry: Telemetry, instrument: Instrument) -> None:
    labels = dict.fromkeys(instrument.labels, "x")
    if instrument.kind is Kind.COUNTER:
        telemetry.add(instrument.name, 2, **labels)
    elif instrument.kind is Kind.HISTOGRAM:
        telemetry.observe(instrument.name, 2, **labels)
    else:
        telemetry.watch(instrument.name, lambda: 2, **labels)


def test_every_declared_instrument_can_be_recorded() -> None:
    """Each row of the table takes a value under exactly its labels, and shows it."""
    telemetry, read = recorded()
    for instrument in INSTRUMENTS:
        record(telemetry, instrument)
    assert read() == {
        each.name: [(dict.fromkeys(each.labels, "x"), (1, 2) if each.kind is Kind.HISTOGRAM else 2)] for each in INSTRUMENTS
    }


@pytest.mark.parametrize("telemetry", [Telemetry(), recorded()[0]], ids=["silent", "recording"])
def test_the_undeclared_raises(telemetry: Telemetry) -> None:
    """An unknown name, a wrong kind, and a label too many, too few or misnamed raise, whether anything is recorded or not."""
    with pytest.raises(Undeclared, match=r"otel_bridge\.made\.up"):
        telemetry.add("otel_bridge.made.up")
    with pytest.raises(Undeclared, match="is a counter: use `add`, not `observe`"):
        telemetry.observe(REFUSED, 1, reason="x")
    with pytest.raises(Undeclared, match="is a counter: use `add`, not `watch`"):
        telemetry.watch(REFUSED, lambda: 1, reason="x")
    for labels in ({}, {"reasons": "x"}, {"reason": "x", "tenant": "y"}):
        with pytest.raises(Undeclared, match="reason"):
            telemetry.add(REFUSED, 1, **labels)
    with pytest.raises(ValueError, match="only grows"):
        telemetry.add(REFUSED, -1, reason="x")


def test_names_are_unique_and_of_the_house() -> None:
    """Instruments are declared once, under `otel_bridge.`."""
    names = [each.name for each in INSTRUMENTS]
    assert len(set(names)) == len(names)
    assert all(name.startswith("otel_bridge.") for name in names)


def test_counts_add_up() -> None:
    """A counter is the sum of what it was told, by label; one without labels is there from the start, as 0."""
    telemetry, read = recorded()
    for reason, events in (("a", 2), ("b", 3)):
        telemetry.add(REFUSED, events, reason=reason)
    telemetry.counter(REFUSED, reason="a")(5)
    assert read()[REFUSED] == [({"reason": "a"}, 7), ({"reason": "b"}, 3)]
    assert read()["otel_bridge.receiver.accepted_events"] == [({}, 0)]


def test_labels_are_bounded() -> None:
    """However many values a label is given, it keeps `MAX_LABEL_VALUES`; the rest counts as "other", and nothing is lost."""
    telemetry, read = recorded()
    for number in range(2 * MAX_LABEL_VALUES):
        telemetry.add(REFUSED, 1, reason=f"reason {number}")
    points = {labels["reason"]: value for labels, value in read()[REFUSED]}
    assert len(points) == MAX_LABEL_VALUES + 1
    assert points[OTHER] == MAX_LABEL_VALUES
    assert sum(points.values()) == 2 * MAX_LABEL_VALUES


@given(st.text())
def test_labels_are_printable_and_short(text: str) -> None:
    """Whatever a device calls its reason, the label is printable ASCII of bounded length."""
    telemetry, read = recorded()
    telemetry.add(REFUSED, 1, reason=text)
    ((labels, value),) = read()[REFUSED]
    assert value == 1
    assert len(labels["reason"]) == min(len(text), MAX_LABEL_LENGTH)
    assert labels["reason"].isascii()
    assert labels["reason"].isprintable()


def test_gauges_are_asked_when_somebody_looks() -> None:
    """An observed instrument shows the present value at each look, and nothing while the value is not known."""
    telemetry, read = recorded()
    values = iter([1.0, 4.0, None])
    telemetry.watch("otel_bridge.spool.size_bytes", lambda: next(values))
    assert read()["otel_bridge.spool.size_bytes"] == [({}, 1.0)]
    assert read()["otel_bridge.spool.size_bytes"] == [({}, 4.0)]
    assert "otel_bridge.spool.size_bytes" not in read()


def test_a_gauge_has_one_owner() -> None:
    """Watching the same series twice is refused: one of the two would be wrong."""
    telemetry, _ = recorded()
    telemetry.watch("otel_bridge.spool.size_bytes", lambda: 1)
    with pytest.raises(ValueError, match="watched already"):
        telemetry.watch("otel_bridge.spool.size_bytes", lambda: 2)


def test_the_silent_recorder_takes_everything() -> None:
    """Without a meter every declared recording is accepted and kept nowhere."""
    telemetry = Telemetry()
    for instrument in INSTRUMENTS:
        record(telemetry, instrument)
        record(telemetry, instrument)
    assert not telemetry._seen
