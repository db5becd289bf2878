"""Core ML: operators by output and operator name, estimated times, metadata in JSON."""

import json

import pytest
from support.delegate_runs import logged, run_delegate

BOOT_NS = 90_000_000_000_000
SAID = {
    "preferredComputeUnit": "NE",
    "supportedComputeUnits": ["NE", "CPU"],
    "outputNames": ["x_1"],
    "operatorName": "ios17.conv",
    "estimatedCost": 1,
}


def test_an_identifier_in_the_map_has_its_handles_and_its_metadata() -> None:
    """Costs are double whatever they look like; lists are words."""
    event = logged("x_1:ios17.conv", BOOT_NS, BOOT_NS + 3_000, json.dumps(SAID).encode())
    run = run_delegate("CoreMLBackend", [event], entries={"x_1:ios17.conv": [2, 3]})
    assert run.events["x_1:ios17.conv"].name == "aten.op2, aten.op3"
    assert run.said("x_1:ios17.conv", "resolution", "debug_handles", "time.quality", "delegate.metadata") == {
        "resolution.status": "exact",
        "debug_handles": (2, 3),
        "time.quality": "estimated",
        "delegate.metadata.preferred_compute_unit": "NE",
        "delegate.metadata.supported_compute_units": "NE,CPU",
        "delegate.metadata.output_names": "x_1",
        "delegate.metadata.operator_name": "ios17.conv",
        "delegate.metadata.estimated_cost": 1.0,
    }
    start, end = run.times("x_1:ios17.conv")
    assert end - start == 3_000


def test_one_that_is_not_is_named_by_its_operator() -> None:
    """Outputs are numbered, so their names would make as many names of spans."""
    run = run_delegate("CoreMLBackend", [logged("y_7:ios17.relu", BOOT_NS, BOOT_NS + 5)], entries={"x_1:ios17.conv": [2]})
    assert run.events["y_7:ios17.relu"].name == "ios17.relu"
    assert run.said("y_7:ios17.relu", "resolution", "debug_handles") == {"resolution.status": "unmapped_identifier"}


@pytest.mark.parametrize(
    ("metadata", "error"),
    [
        (b"\x00", "not JSON"),
        (b'{"op":"tan"}', "not Core ML's"),
        (b'{"operatorName":"a","estimatedCost":NaN}', "estimated_cost is of another type"),
        (b'{"operatorName":"a","estimatedCost":1' + b"0" * 400 + b"}", "estimated_cost is of another type"),
        (b'{"operatorName":"a","outputNames":[1]}', "output_names is of another type"),
    ],
)
def test_metadata_of_another_backend_cost_themselves_only(metadata: bytes, error: str) -> None:
    """The event keeps its handles and times."""
    run = run_delegate("CoreMLBackend", [logged("x:op", BOOT_NS, BOOT_NS + 5, metadata)], entries={"x:op": [1]})
    assert error in str(run.events["x:op"].attributes["executorch.delegate.metadata_error"])
    assert run.said("x:op", "resolution", "debug_handles") == {"resolution.status": "exact", "debug_handles": (1,)}
