"""
Core ML: a JSON object per operator (backends/apple/coreml/runtime/sdk/ETCoreMLOperationProfilingInfo.mm, `get_metadata`).

    {"preferredComputeUnit": "NE", "supportedComputeUnits": ["NE", "CPU"], "outputNames": ["x"], "operatorName": "ios17.conv",
     "estimatedCost": 0.25}
"""

from otel_bridge.metadata.builtin import read_object
from otel_bridge.metadata.decoder import Content, Scalar, declared, undecoded

_NAMES = {
    "preferredComputeUnit": "preferred_compute_unit",
    "supportedComputeUnits": "supported_compute_units",
    "outputNames": "output_names",
    "operatorName": "operator_name",
    "estimatedCost": "estimated_cost",
}
_MAX_COST = 1e300
"""Costs are weights within 0 and 1; what is beyond any is no double, or NaN."""


def decode_coreml(data: bytes) -> Content:
    """Its five keys, lists as words with commas; an object without any of them is not Core ML's."""
    said = read_object(data)
    if isinstance(said, Content):
        return said
    read = {name: _read(name, said[key]) for key, name in _NAMES.items() if key in said}
    if not read:
        return undecoded(data, "a JSON object, but not Core ML's: it has none of its keys")
    faults = [f"{name} is of another type than Core ML writes" for name, value in read.items() if value is None]
    return declared(((name, value) for name, value in read.items() if value is not None), data, faults)


def _read(name: str, value: object) -> Scalar | None:
    if name == "estimated_cost":
        return float(value) if isinstance(value, int | float) and abs(value) < _MAX_COST else None
    given = value if isinstance(value, list) else [value]
    words = [word for word in given if isinstance(word, str)]
    return ",".join(words) if len(words) == len(given) else None
