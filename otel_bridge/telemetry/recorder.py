"""
Recording: the one object by which rooms tell what happened.

Invariants
* An undeclared name, kind or label raises `Undeclared`, whether anything is recorded or not.
* A label takes at most `MAX_LABEL_VALUES` distinct values; later ones count as "other". So a device that invents reasons
  or delegates cannot grow the bridge or its back end.
* Without a meter nothing is kept.
* Counters are summed here, and the SDK asks for the sums when somebody looks: its own counters take five microseconds for each
  request that is counted, which is a tenth of a small one. A sum never falls, whichever threads add to it.
"""

import re
import threading
from collections.abc import Callable, Iterable
from functools import partial

from opentelemetry.metrics import CallbackOptions, Histogram, Meter, Observation

from otel_bridge.telemetry.instruments import INSTRUMENTS, Instrument, Kind, Undeclared

MAX_LABEL_VALUES = 100
"""Distinct values of one label of one instrument."""

MAX_LABEL_LENGTH = 64
"""Characters of a label value; the rest is cut."""

OTHER = "other"
"""What a value beyond the bound is counted as."""

Read = Callable[[], float | None]
"""The present value of something; None: not known on this system."""

_UNFIT = re.compile(r"[^ -~]")
_DECLARED = {instrument.name: instrument for instrument in INSTRUMENTS}
_LABELS = {instrument.name: frozenset(instrument.labels) for instrument in INSTRUMENTS}
_METHODS = {Kind.COUNTER: "add", Kind.HISTOGRAM: "observe", Kind.OBSERVED_GAUGE: "watch", Kind.OBSERVED_COUNTER: "watch"}


class Telemetry:
    """
    What the bridge tells about itself.

    meter    where numbers go; None: nowhere
    """

    def __init__(self, meter: Meter | None = None) -> None:
        self._meter = meter
        self._sums: dict[str, dict[tuple[str, ...], float]] = {}
        """By name, and by the values of its labels in the order of the table."""
        self._adding = threading.Lock()
        self._histograms: dict[str, Histogram] = {}
        self._watched: dict[str, dict[tuple[tuple[str, str], ...], Read]] = {}
        self._seen: dict[tuple[str, str], dict[str, str]] = {}
        if meter is not None:
            self._create(meter)

    def _create(self, meter: Meter) -> None:
        for each in INSTRUMENTS:
            if each.kind is Kind.COUNTER:
                # One without labels is there before the first event.
                self._sums[each.name] = {} if each.labels else {(): 0}
                meter.create_observable_counter(each.name, [partial(self._summed, each)], each.unit, each.description)
            elif each.kind is Kind.HISTOGRAM:
                self._histograms[each.name] = meter.create_histogram(
                    each.name, each.unit, each.description, explicit_bucket_boundaries_advisory=each.bounds
                )

    def add(self, name: str, value: float = 1, **labels: str) -> None:
        """Count. ValueError for a negative value, Undeclared for what the table does not have."""
        self.counter(name, **labels)(value)

    def counter(self, name: str, **labels: str) -> Callable[[float], None]:
        """`add` with name and labels looked up once, for what each request counts. Raises as `add` does."""
        instrument = _check(name, "add", labels)
        sums = self._sums.get(name, {})
        key: tuple[str, ...] = ()
        if self._meter is not None:
            with self._adding:
                key = tuple([self._value(name, label, labels[label]) for label in instrument.labels])

        def add(value: float) -> None:
            if value < 0:
                raise ValueError(f"{name} only grows; {value} is negative")
            if self._meter is not None:
                with self._adding:
                    sums[key] = sums.get(key, 0) + value

        return add

    def _summed(self, instrument: Instrument, _options: CallbackOptions) -> Iterable[Observation]:
        with self._adding:
            sums = list(self._sums[instrument.name].items())
        return [Observation(total, dict(zip(instrument.labels, key, strict=True))) for key, total in sums]

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Take one value of a distribution. Undeclared for what the table does not have."""
        _check(name, "observe", labels)
        if self._meter is not None:
            self._histograms[name].record(value, self._bound(name, labels))

    def watch(self, name: str, read: Read, **labels: str) -> None:
        """Ask `read` whenever somebody looks, from any thread. ValueError if these labels are watched already."""
        instrument = _check(name, "watch", labels)
        if self._meter is None:
            return
        key = tuple(sorted(self._bound(name, labels).items()))
        watched = self._watched.setdefault(name, {})
        if key in watched:
            raise ValueError(f"{name} with the labels {dict(key)} is watched already")
        watched[key] = read
        if len(watched) == 1:
            gauge = instrument.kind is Kind.OBSERVED_GAUGE
            create = self._meter.create_observable_gauge if gauge else self._meter.create_observable_counter
            create(name, [lambda _: _observations(watched)], instrument.unit, instrument.description)

    def _bound(self, name: str, labels: dict[str, str]) -> dict[str, str]:
        return {label: self._value(name, label, value) for label, value in labels.items()}

    def _value(self, name: str, label: str, value: str) -> str:
        seen = self._seen.setdefault((name, label), {})
        known = seen.get(value)
        if known is not None:
            return known
        fit = _UNFIT.sub("_", value[:MAX_LABEL_LENGTH])
        if fit not in seen:
            if len(seen) >= MAX_LABEL_VALUES:
                return OTHER
            seen[fit] = fit
        return fit


def _check(name: str, method: str, labels: dict[str, str]) -> Instrument:
    instrument = _DECLARED.get(name)
    if instrument is None:
        raise Undeclared(f"no instrument is called {name!r}; declare it in telemetry/instruments.py")
    if _METHODS[instrument.kind] != method:
        raise Undeclared(f"{name} is a {instrument.kind.value}: use `{_METHODS[instrument.kind]}`, not `{method}`")
    if labels.keys() != _LABELS[name]:
        raise Undeclared(f"{name} has the labels {instrument.labels}, not {tuple(labels)}")
    return instrument


def _observations(watched: dict[tuple[tuple[str, str], ...], Read]) -> Iterable[Observation]:
    for labels, read in list(watched.items()):
        value = read()
        if value is not None:
            yield Observation(value, dict(labels))
