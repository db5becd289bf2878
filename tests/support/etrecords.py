"""ETRecords made by hand."""

from typing import Any

from support.mappings import etrecord_of, node_of, program_of

GRAPH = "edge_dialect_exported_program"

MAPS: dict[str, Any] = {
    "debug_handle_map": {"forward": {"0": [1, 2], "1": 1}},
    "delegate_map": {"forward": {"0": {"name": "Toy", "delegate_map": {"7": [1], "conv": [2]}}}},
}


def record_of(
    calls: dict[int, tuple[str, list[int]]], nodes: list[dict[str, Any]], kernels: dict[int, int] | None = None
) -> bytes:
    """An ETRecord of one method: instruction -> (backend, handles), the graph's nodes, and kernel instruction -> handle."""
    return etrecord_of(
        {
            "debug_handle_map": {
                "forward": {str(key): handles for key, (_, handles) in calls.items()}
                | {str(k): h for k, h in (kernels or {}).items()}
            },
            "delegate_map": {
                "forward": {str(key): {"name": backend, "delegate_map": None} for key, (backend, _) in calls.items()}
            },
            f"{GRAPH}/forward": program_of(nodes),
        }
    )


ADD, MUL, SUB = node_of("a", "aten.add.Tensor", 1), node_of("m", "aten.mul.Tensor", 1), node_of("s", "aten.sub.Tensor", 1)
