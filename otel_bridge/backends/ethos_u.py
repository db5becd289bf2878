"""
Arm Ethos-U, on NPUs of microcontrollers.

* It logs no delegate events. What it logs are stretches of the runtime, by the runtime's clock, inside its call:
  `EthosUBackend::execute()`, `+EthosUBackend::execute()NPU`, `+EthosUBackend::execute()handles.input.memcpy()`, and
  `+EthosUBackend::init()...` while it loads (backends/arm/runtime/EthosUBackend.cpp, EthosUBackend_Internal.h). They have no
  identifier, so there is nothing to resolve; they go out as spans under the call.
* It has no debug handle map (backends/arm/ethosu/backend.py).
"""

from otel_bridge.backends.backend import Backend, read_unknown

ETHOS_U = Backend("Arm Ethos-U", read_unknown)
