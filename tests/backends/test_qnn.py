"""Qualcomm QNN: values without starts, some of them times, the others counters of their call."""

import pytest
from support.delegate_runs import CALL_START, chosen, logged, run_delegate

ACCELERATOR, NODE = "Accelerator (execute) time", "aten_relu_default_3:OpId_60 (cycles)"


def test_microseconds_are_microseconds_whatever_the_hosts_ticks() -> None:
    """Durations are kept, in the order of the log, from the start of the call."""
    events = [logged("RPC (execute) time (us)", 0, 5), logged(f"{ACCELERATOR} (us)", 0, 3)]
    run = run_delegate("QnnBackend", events)
    assert run.times("RPC (execute) time (us)") == (CALL_START, CALL_START + 5_000)
    assert run.times(f"{ACCELERATOR} (us)") == (CALL_START + 5_000, CALL_START + 8_000)
    assert run.events[f"{ACCELERATOR} (us)"].name == ACCELERATOR
    assert run.said(f"{ACCELERATOR} (us)", "resolution", "time") == {
        "resolution.status": "phase",
        "time.quality": "duration_only",
        "time.start_ticks": "0",
        "time.end_ticks": "3",
        "time.unit": "us",
    }


def test_what_is_no_time_is_an_attribute_of_the_call() -> None:
    """Bytes, counts, cycles, and what has no unit: no spans, and none of the call's time is taken."""
    events = [
        logged("DSP:before_context_created (bytes)", 0, 4096),
        logged("Number of HVX threads used (count)", 0, 4),
        logged(NODE, 0, 2045),
        logged("Accelerator (execute) time", 0, 250_000),
        logged(f"{ACCELERATOR} (us)", 0, 3),
    ]
    run = run_delegate("QnnBackend", events)
    assert list(run.events) == [f"{ACCELERATOR} (us)"]
    assert run.times(f"{ACCELERATOR} (us)") == (CALL_START, CALL_START + 3_000)
    assert chosen(run.call, "delegate.counter") == {
        "delegate.counter.dsp_before_context_created_bytes": 4096,
        "delegate.counter.number_of_hvx_threads_used_count": 4,
        "delegate.counter.aten_relu_default_3_opid_60_cycles": 2045,
        "delegate.counter.accelerator_execute_time": 250_000,
    }


def test_an_identifier_without_its_unit_may_be_in_the_map() -> None:
    """Then that entry is the one meant, and no other: the rule is named."""
    events = [logged("conv_1 (us)", 0, 2), logged("conv_12 (us)", 0, 1), logged("conv (us)", 0, 1)]
    run = run_delegate("QnnBackend", events, entries={"conv_1": [2], "conv (us)": [3]})
    assert run.events["conv_1 (us)"].name == "aten.op2"
    assert run.said("conv_1 (us)", "resolution", "debug_handles") == {
        "resolution.status": "derived",
        "resolution.rule": "qnn.unit_suffix",
        "debug_handles": (2,),
    }
    assert run.said("conv_12 (us)", "resolution", "debug_handles") == {"resolution.status": "phase"}
    assert run.said("conv (us)", "resolution", "debug_handles") == {"resolution.status": "exact", "debug_handles": (3,)}


def test_of_several_values_the_last_is_shown_and_the_key_told() -> None:
    """Heaps are levels, cycles would add up: no backend says which."""
    events = [
        logged("heap (bytes)", 0, 10),
        logged("n (count)", 0, 1),
        logged("heap (bytes)", 0, 30),
        logged("heap (bytes)", 0, 20),
    ]
    run = run_delegate("QnnBackend", events)
    assert chosen(run.call, "delegate.counter") == {
        "delegate.counter.heap_bytes": 20,
        "delegate.counter.n_count": 1,
        "delegate.counters_repeated": ("heap_bytes",),
    }


def test_counters_beyond_the_bound_are_counted() -> None:
    """512 are shown, and one that has no room in an integer attribute is not; all have ended (`run_delegate` checks)."""
    events = [logged(f"node_{number:03}:OpId_{number} (cycles)", 0, number) for number in range(600)]
    run = run_delegate("QnnBackend", [logged("huge (bytes)", 0, 2**63), *events])
    said = chosen(run.call, "delegate.counter")
    assert said.pop("delegate.counters_left_out") == 600 + 1 - 512
    assert len(said) == 512
    assert said["delegate.counter.node_511_opid_511_cycles"] == 511


@pytest.mark.parametrize("identifier", [7, " (us)", "(bytes)", "a\n (count)", "é" * 90 + " (cycles)", "🜁"])
def test_any_identifier_is_read(identifier: int | str) -> None:
    """A key is cut to what a key may be; nothing is lost without a word."""
    run = run_delegate("QnnBackend", [logged(identifier, 0, 9)])
    assert len(run.events) + len(chosen(run.call, "delegate.counter.")) == 1
