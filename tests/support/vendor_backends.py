"""Backends as vendors offer them by the entry point `otel_bridge.backends`, good and bad."""

from otel_bridge.backends.backend import Backend, Kind, Reading, TimeQuality, Timing, Unit, shorten
from otel_bridge.model.events import Identifier


def _read(identifier: Identifier) -> Reading:
    """Texts that start with `heap` are bytes; `raise` and `nonsense` are rules gone wrong."""
    text = str(identifier)
    if text.startswith("heap"):
        return Reading(text, Kind.COUNTER, Timing(TimeQuality.DURATION_ONLY, Unit.BYTES), counter="heap_bytes")
    if text.startswith("raise"):
        raise RuntimeError("I read \x1b[31mnothing")
    if text.startswith("nonsense"):
        return Reading("", Kind.COUNTER)
    return Reading(shorten(identifier), timing=Timing(TimeQuality.MEASURED), node_id=5, details=(("text", text),))


VENDOR = Backend("Vendor", _read, decoder="utf8")
NOT_A_BACKEND = "Vendor"


def at_500_mhz(_backend: str | None, _identifier: Identifier, ticks: int) -> int:
    """Cycles of a clock of 500 MHz in nanoseconds: a converter of times."""
    return ticks * 2
