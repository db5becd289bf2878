"""
NXP Neutron: one byte, the function code of a kernel call (backends/nxp/runtime/NeutronBackend.cpp, `execute`).

0 is the NPU's dump of its profile, all else the number of the kernel (examples/nxp/analyzing_with_inspector.py).
"""

from otel_bridge.metadata.decoder import Content, declared, undecoded


def decode_neutron(data: bytes) -> Content:
    """What was called; bytes of another length are not Neutron's."""
    if len(data) != 1:
        return undecoded(data, f"{len(data)} bytes, where a function code has 1")
    code = data[0]
    return declared([("function", "kernel"), ("kernel_code", code)] if code else [("function", "profiling_dump")], data)
