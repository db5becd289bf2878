"""
NXP eIQ Neutron, on NPUs of i.MX.

* Identifiers are integers from 0, one a kernel call; the last one of a call is the NPU's dump of its own profile. The debug
  handle map has them all, with `()` for what stands for no operator (backends/nxp/runtime/NeutronBackend.cpp, `execute`;
  backend/neutron_map.py, `get_neutron_to_edge_map`).
* Times are logged after the call from the NPU's profile: its own counter, 32 bits wide. The dump's end has host ticks added
  to it, so its length means little (NeutronBackend.cpp).
* Metadata are one byte, the function code: 0 for the dump, else the number of the kernel
  (examples/nxp/analyzing_with_inspector.py).
"""

from otel_bridge.backends.backend import Backend, Reading, TimeQuality, Timing, shorten
from otel_bridge.model.events import Identifier

_TIMING = Timing(TimeQuality.FOREIGN_CLOCK, counter_bits=32)


def _read(identifier: Identifier) -> Reading:
    return Reading(shorten(identifier), timing=_TIMING)


NEUTRON = Backend("NXP Neutron", _read, decoder="neutron")
