"""
Core ML, on Apple's CPUs, GPUs and Neural Engines.

* Identifiers are `<output>:<operator>`, both in the debug handle map and at run time (backends/apple/coreml/compiler/
  coreml_preprocess.py, `get_debug_symbol`; runtime/sdk/model_event_logger_impl.mm, `log_profiling_infos`).
* Times are estimates: the time of the whole prediction, shared out by the cost weights of MLComputePlan and laid end to end
  (runtime/sdk/ETCoreMLModelProfiler.mm). They are nanoseconds since the device's start, whatever the runtime's ticks are;
  operators of no cost are left out, and the rest comes in no order (model_event_logger_impl.mm).
* Metadata are a JSON object (runtime/sdk/ETCoreMLOperationProfilingInfo.mm, `get_metadata`).
"""

from otel_bridge.backends.backend import Backend, Reading, TimeQuality, Timing, Unit, shorten
from otel_bridge.model.events import Identifier

_TIMING = Timing(TimeQuality.ESTIMATED, Unit.NANOSECONDS)


def _read(identifier: Identifier) -> Reading:
    operator = identifier.rpartition(":")[2] if isinstance(identifier, str) else ""
    return Reading(operator or shorten(identifier), timing=_TIMING)


CORE_ML = Backend("Core ML", _read, decoder="coreml")
