"""Backends that log nothing of their own, and those of which nothing is known."""

import pytest
from support.delegate_runs import logged, run_delegate

from otel_bridge.backends.table import CALL_ONLY


@pytest.mark.parametrize("backend", CALL_ONLY)
def test_their_call_is_one_span(backend: str) -> None:
    """It bears the handles of the whole call."""
    run = run_delegate(backend, [])
    assert run.events == {}
    assert run.call.name == f"delegate {backend}"
    assert run.call.attributes["executorch.debug_handles"] == (1, 2, 3)


@pytest.mark.parametrize("backend", ["EnnBackend", "EthosUBackend", "SomebodysBackend"])
def test_should_one_log_after_all_its_map_holds_and_its_times_are_not_trusted(backend: str) -> None:
    """An identifier resolves by the map like any other; nothing is said of what its ticks mean."""
    run = run_delegate(backend, [logged("conv #4", 200, 300), logged("relu #1", 300, 400)], entries={"conv #4": [2]})
    assert run.said("conv #4", "resolution", "debug_handles", "time.quality") == {
        "resolution.status": "exact",
        "debug_handles": (2,),
        "time.quality": "unknown",
    }
    assert run.events["relu #1"].name == "relu"
    assert run.said("relu #1", "resolution") == {"resolution.status": "unmapped_identifier"}
