"""
Arm VGF, on GPUs with neural accelerators.

* All it logs are phases, live and nested, by the runtime's clock: `VGF_INIT_*` while it loads, `VGF_EXECUTE`,
  `VGF_COPY_INPUTS`, `VGF_DISPATCH_AND_WAIT`, `VGF_QUEUE_SUBMIT_AND_WAIT_FENCE`, `VGF_TIMESTAMP_QUERY_READBACK`,
  `VGF_COPY_OUTPUTS` (backends/arm/runtime/VGFBackend.cpp, VGFSetup.cpp).
* `VGF_NEURAL_STATISTICS` carries metadata: JSON with blobs of megabytes, where EXECUTORCH_VGF_ENABLE_NEURAL_STATISTICS is set
  (VGFBackend.cpp, VGFNeuralStatistics.cpp).
* It has no debug handle map (backends/arm/vgf/backend.py).
"""

from otel_bridge.backends.backend import Backend, Kind, Reading, TimeQuality, Timing, shorten
from otel_bridge.model.events import Identifier

_HOST = Timing(TimeQuality.MEASURED)


def _read(identifier: Identifier) -> Reading:
    if identifier == "VGF_NEURAL_STATISTICS":
        return Reading(identifier, Kind.CARRIER, _HOST)
    if isinstance(identifier, str) and identifier.startswith("VGF_"):
        return Reading(identifier, Kind.PHASE, _HOST)
    return Reading(shorten(identifier))


VGF = Backend("Arm VGF", _read, decoder="vgf_neural_statistics")
