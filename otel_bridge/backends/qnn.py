"""
Qualcomm QNN, on Hexagon NPUs and Adreno GPUs.

* Nothing it logs has a start: start is 0 and end the value (backends/qualcomm/runtime/backends/QnnProfiler.cpp, `ProfileData`).
* Values of the graph have their unit at the end of the identifier: ` (us)`, ` (bytes)`, ` (count)`; cycles, and units of the
  backend's own, have none (same place, `get_event_unit`).
* Values of nodes are logged under the bare identifier of QNN, in cycles or microseconds (same place). The NPU's identifiers
  say ` (cycles)` themselves: `aten_relu_default_3:OpId_60 (cycles)` (examples/qualcomm/util_scripts/README.md). Where an
  identifier says nothing its value may be time or not, so it is not shown as time.
* The debug handle map is `{}`, but for builds that dump tensors: then names of tensors are mapped (qnn_preprocess.py).
* It logs no metadata.
"""

import re

from otel_bridge.backends.backend import Backend, Kind, Reading, TimeQuality, Timing, Unit, key_of, shorten
from otel_bridge.model.events import Identifier

RULE = "qnn.unit_suffix"
"""The identifier without its unit is in the map."""

_UNITS = {"us": Unit.MICROSECONDS, "bytes": Unit.BYTES, "count": Unit.COUNT, "cycles": Unit.CYCLES}
_SUFFIX = re.compile(r"(.+) \((us|bytes|count|cycles)\)\Z", re.DOTALL)
_NODE = re.compile(r":OpId_\d+\Z")


def _read(identifier: Identifier) -> Reading:
    if isinstance(identifier, int):
        return Reading(shorten(identifier), Kind.COUNTER, _timing(Unit.UNSPECIFIED), counter=key_of(f"id {identifier}"))
    found = _SUFFIX.match(identifier)
    if found is None:
        return Reading(_name(identifier), Kind.COUNTER, _timing(Unit.UNSPECIFIED), counter=key_of(identifier))
    subject, word = found.groups()
    unit = _UNITS[word]
    if unit in (Unit.BYTES, Unit.COUNT):
        return Reading(_name(subject), Kind.COUNTER, _timing(unit), counter=key_of(subject, suffix=word))
    if unit is Unit.CYCLES:
        counter = key_of(subject, suffix=word)
        return Reading(_name(subject), Kind.COUNTER, _timing(unit), counter=counter, key=subject, rule=RULE)
    return Reading(_name(subject), Kind.PHASE, _timing(unit), key=subject, rule=RULE)


def _name(subject: str) -> str:
    return _NODE.sub("", subject) or subject


def _timing(unit: Unit) -> Timing:
    return Timing(TimeQuality.DURATION_ONLY, unit)


QNN = Backend("Qualcomm QNN", _read)
