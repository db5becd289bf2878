"""
Vulkan, on GPUs.

* Phases are spans of the host, logged live: `ETVK_EXECUTE`, `ETVK_COPY_INPUTS`, `ETVK_RESIZE`, `ETVK_COMPUTE_GRAPH_EXECUTE`,
  `ETVK_COPY_OUTPUTS` (backends/vulkan/runtime/VulkanBackend.cpp, `execute`).
* Shaders are logged after the graph has run. Their identifier is JSON: `{"operator": {"name": ..., "delegate_node_id": ...,
  "args": [...]}, "kernel_name": ..., "operator_id": ..., "dispatch_id": ...}`, `operator` only where there is one
  (VulkanBackend.cpp; runtime/graph/ops/DispatchNode.cpp, `encode`; runtime/graph/Logging.cpp, `make_operator_json`).
* Their times are GPU ticks times the period, which is rounded to whole nanoseconds: a clock of its own
  (runtime/vk_api/QueryPool.cpp, `extract_results`).
* The debug handle map gives ordinals of nodes: `process_node` overwrites the node's debug handle before the entry is made
  (serialization/vulkan_graph_builder.py). They look like debug handles and are none.
* It logs no metadata. The WebGPU backend goes by the same id and logs no events (backends/webgpu/runtime/WebGPUBackend.cpp).
"""

import json

from otel_bridge.backends.backend import Backend, Kind, Reading, TimeQuality, Timing, Unit, shorten
from otel_bridge.model.events import Identifier

_PHASE = "ETVK_"
_HOST = Timing(TimeQuality.MEASURED)
_GPU = Timing(TimeQuality.FOREIGN_CLOCK, Unit.NANOSECONDS)
_MAX_ORDINAL = 2**32


def _read(identifier: Identifier) -> Reading:
    if isinstance(identifier, int) or not identifier.startswith("{"):
        if isinstance(identifier, str) and identifier.startswith(_PHASE):
            return Reading(identifier, Kind.PHASE, _HOST)
        return Reading(shorten(identifier))
    try:
        said = json.loads(identifier)
    except (ValueError, RecursionError):
        return Reading("shader", timing=_GPU)
    operator = said.get("operator")
    operator = operator if isinstance(operator, dict) else {}
    kernel = _word(said.get("kernel_name"))
    details = (
        ("kernel_name", kernel),
        ("operator", _word(operator.get("name"))),
        ("operator_id", _ordinal(said.get("operator_id"))),
        ("dispatch_id", _ordinal(said.get("dispatch_id"))),
    )
    return Reading(
        kernel or "shader",
        timing=_GPU,
        node_id=_ordinal(operator.get("delegate_node_id")),
        details=tuple((key, value) for key, value in details if value is not None),
    )


def _word(value: object) -> str | None:
    """Text that is not empty; None where it is none."""
    return value if isinstance(value, str) and value else None


def _ordinal(value: object) -> int | None:
    """A uint32; None where it is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MAX_ORDINAL else None


VULKAN = Backend("Vulkan", _read, map_holds_handles=False)
