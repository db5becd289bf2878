"""Vulkan: phases by the host's clock, shaders by the GPU's, and all that is known of a shader in its name."""

import json

import pytest
from support.delegate_runs import CALL_END, CALL_START, logged, run_delegate

GPU = 7_000_000_000_000


def shader(kernel: str, node: int, dispatch: int) -> str:
    """An identifier, as VulkanBackend.cpp and DispatchNode.cpp put it together."""
    args = [
        {"type": "TENSOR", "value_ref": 3, "dtype": "float", "sizes": [1, 3, 8, 8], "storage": "TEXTURE_3D", "packed_dim": 2}
    ]
    operator = {"name": "aten.convolution.default", "delegate_node_id": node, "args": args}
    return json.dumps({"operator": operator, "kernel_name": kernel, "operator_id": 11, "dispatch_id": dispatch})


def test_a_shader_is_named_by_its_kernel_and_keeps_its_node() -> None:
    """Arguments are left out. Its map gives node ordinals, which are never read as debug handles."""
    identifier = shader("conv2d_half", 1, 40)
    run = run_delegate("VulkanBackend", [logged(identifier, GPU, GPU + 2_000)], entries={0: [1], 1: [2]})
    assert run.events[identifier].name == "conv2d_half"
    assert run.said(identifier, "delegate.node_id", "delegate.metadata", "debug_handles", "resolution", "time.quality") == {
        "delegate.node_id": 1,
        "delegate.metadata.kernel_name": "conv2d_half",
        "delegate.metadata.operator": "aten.convolution.default",
        "delegate.metadata.operator_id": 11,
        "delegate.metadata.dispatch_id": 40,
        "resolution.status": "delegate",
        "time.quality": "foreign_clock",
    }


def test_shaders_keep_order_lengths_and_distances_inside_their_call() -> None:
    """The GPU's clock has nothing to do with the host's: raw nanoseconds stay as attributes."""
    first, second = shader("a", 0, 0), shader("b", 1, 1)
    run = run_delegate("VulkanBackend", [logged(first, GPU, GPU + 2_000), logged(second, GPU + 2_500, GPU + 3_000)])
    (start, end), (later, last) = run.times(first), run.times(second)
    assert start >= CALL_START
    assert (end - start, later - start, last - start) == (2_000, 2_500, 3_000)
    assert last <= CALL_END
    assert run.said(first, "time.start", "time.end", "time.unit") == {
        "time.start_ticks": str(GPU),
        "time.end_ticks": str(GPU + 2_000),
        "time.unit": "ns",
    }


def test_phases_are_measured_and_no_operators() -> None:
    """`ETVK_*` are spans of the host, nested as they ran."""
    events = [
        logged("ETVK_COPY_INPUTS", 200, 300),
        logged("ETVK_COMPUTE_GRAPH_EXECUTE", 300, 8_000),
        logged("ETVK_EXECUTE", 150, 9_000),
    ]
    run = run_delegate("VulkanBackend", events, entries={0: [1]})
    assert [run.said(name, "resolution", "time") for name in run.events] == [{"resolution.status": "phase"}] * 3
    assert run.times("ETVK_COMPUTE_GRAPH_EXECUTE") == (300, 8_000)
    whole = run.events["ETVK_EXECUTE"]
    assert [run.events[name].parent_span_id for name in ("ETVK_COPY_INPUTS", "ETVK_COMPUTE_GRAPH_EXECUTE")] == [
        whole.span_id
    ] * 2
    assert whole.parent_span_id == run.call.span_id


@pytest.mark.parametrize(
    ("identifier", "name"),
    [
        ('{"kernel_name": "a", ', "shader"),
        ("{" * 3000, "shader"),
        ('{"kernel_name": 7, "operator": [], "dispatch_id": -1}', "shader"),
        ('{"kernel_name": "copy", "operator_id": true, "operator": {"delegate_node_id": 4294967296}}', "copy"),
        ("something else #3", "something else"),
    ],
)
def test_a_name_that_only_looks_like_a_shaders_costs_its_attributes_only(identifier: str, name: str) -> None:
    """What cannot be read is not guessed at; the whole name stays as the identifier."""
    run = run_delegate("VulkanBackend", [logged(identifier, 200, 300)])
    (span,) = run.events.values()
    assert span.name == name
    assert "executorch.delegate.node_id" not in span.attributes
