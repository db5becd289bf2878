"""
XNNPACK, on CPUs.

* Identifiers are `<operator> #<n>`, where n counts equal names within one delegate
  (backends/xnnpack/runtime/profiling/XNNProfiler.cpp, `submit_trace`).
* Times are logged after the call: XNNPACK measures whole microseconds an operator, which are turned into host ticks and laid
  end to end from the start of the call. An operator under 1 us has length 0 (same place).
* It logs no phases and no metadata. Its debug handle map is `{}` (backends/xnnpack/xnnpack_preprocess.py).
"""

from otel_bridge.backends.backend import Backend, Reading, TimeQuality, Timing, shorten
from otel_bridge.model.events import Identifier

_TIMING = Timing(TimeQuality.LAID_OUT)


def _read(identifier: Identifier) -> Reading:
    return Reading(shorten(identifier), timing=_TIMING)


XNNPACK = Backend("XNNPACK", _read)
