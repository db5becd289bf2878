"""
Every backend that is known, by its id.

The id is the one under which a backend registers itself (`register_backend`), and `delegate_map[...]["name"]` in an ETRecord.
Packages add their own by the entry point `otel_bridge.backends` (name: backend id, value: `module:OBJECT`, a `Backend`); one
that names a backend of this table replaces it. Cadence has no id: its operators are kernels of the runtime, whose events are
OPERATOR_CALLs in cycles (backends/cadence/runtime/etdump.py).
"""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from otel_bridge.backends.backend import Backend, Reading, read_unknown
from otel_bridge.backends.coreml import CORE_ML
from otel_bridge.backends.ethos_u import ETHOS_U
from otel_bridge.backends.nxp import NEUTRON
from otel_bridge.backends.qnn import QNN
from otel_bridge.backends.vgf import VGF
from otel_bridge.backends.vulkan import VULKAN
from otel_bridge.backends.xnnpack import XNNPACK
from otel_bridge.errors import ConfigError
from otel_bridge.model.events import Identifier

ENTRY_POINTS = "otel_bridge.backends"

WITH_RULES = {
    "XnnpackBackend": XNNPACK,
    "VulkanBackend": VULKAN,
    "CoreMLBackend": CORE_ML,
    "QnnBackend": QNN,
    "NeutronBackend": NEUTRON,
    "VgfBackend": VGF,
    "EthosUBackend": ETHOS_U,
}

CALL_ONLY = {
    # backends/mediatek/runtime/NeuronBackend.cpp
    "NeuropilotBackend": Backend("MediaTek NeuroPilot", read_unknown),
    # backends/samsung/runtime/enn_backend.cpp; its map is {}
    "EnnBackend": Backend("Samsung ENN", read_unknown),
    # backends/openvino/runtime/OpenvinoBackend.cpp
    "OpenvinoBackend": Backend("OpenVINO", read_unknown),
    # backends/apple/mps/runtime/MPSBackend.mm
    "MPSBackend": Backend("Apple MPS", read_unknown),
    # backends/mlx/runtime/backend_options.h
    "MLXBackend": Backend("Apple MLX", read_unknown),
    # backends/cuda/runtime/cuda_backend.cpp, backends/apple/metal/runtime/metal_backend.cpp; their maps are {}
    "CudaBackend": Backend("AOTInductor on CUDA", read_unknown),
    "MetalBackend": Backend("AOTInductor on Metal", read_unknown),
}
"""
Those that log nothing, so that a call of theirs is one span. Should one log events after all, they are read as those of an
unknown backend.
"""

UNKNOWN = Backend("unknown", read_unknown)


@cache
def known_backends() -> Mapping[str, Backend]:
    """
    All backends by id, those of installed packages included.

    Raises `ConfigError` where an entry point cannot be obeyed.
    """
    offered: dict[str, Backend] = {}
    for point in entry_points(group=ENTRY_POINTS):
        if point.name in offered:
            raise ConfigError(f"two packages offer the backend {point.name!r} ({ENTRY_POINTS}): uninstall one")
        offered[point.name] = _load(point)
    return WITH_RULES | CALL_ONLY | offered


def backend_of(delegate: str | None) -> Backend:
    """What is known of the backend of this id; None: not even the id is known."""
    return known_backends().get(delegate or "", UNKNOWN)


def read(delegate: str | None, identifier: Identifier) -> Reading:
    """What an identifier says that a delegate of this backend logged."""
    return backend_of(delegate).read(identifier)


def _load(point: EntryPoint) -> Backend:
    about = f"backend {point.name!r} ({ENTRY_POINTS}, {point.value})"
    try:
        backend = point.load()
    except Exception as error:
        raise ConfigError(f"{about} cannot be loaded: {type(error).__name__}: {str(error)[:200]}") from error
    if not isinstance(backend, Backend):
        raise ConfigError(f"{about} is a {type(backend).__name__}: let it name a {Backend.__module__}.Backend")
    return backend
