"""
Graphs that are alive, in the form in which exir/serde/serialize.py writes them, as far as mapping/operators.py reads it.

Invariants
* Nothing is decided here: which node is an operator, what its name and its source line are, is decided where JSON is read.
* A node comes out as the serialiser would write it, and stays out where it writes none (items of tuples). Other than the
  serialiser this takes graphs with control flow and operators that it does not know.
* Weights are neither copied nor looked at.
"""

import operator
from collections.abc import Callable
from typing import Any

from otel_bridge.mapping.operators import Graph, read_graph

_CALL = "executorch_call_delegate"


def graph_of(program: Any, where: str, *, calls_only: bool = False) -> Graph:
    """
    The graph of an `ExportedProgram` in the edge dialect; of one in another dialect take the `calls_only`.

    What delegates were given stays in the edge dialect when the graph around it goes on to another.
    """
    return read_graph(_program(program, _is_call if calls_only else _is_written), where)


def _program(program: Any, is_taken: Callable[[Any], bool]) -> dict[str, Any]:
    nodes = [_node(node) for node in program.graph_module.graph.nodes if is_taken(node)]
    return {"graph_module": {"graph": {"nodes": nodes}}}


def _is_written(node: Any) -> bool:
    return node.op == "call_function" and node.target is not operator.getitem


def _is_call(node: Any) -> bool:
    return node.op == "call_function" and getattr(node.target, "__name__", "") == _CALL


def _node(node: Any) -> dict[str, Any]:
    written = {"name": node.name, "target": _target(node.target), "metadata": _metadata(node.meta)}
    if _is_call(node):
        written["inputs"] = [{"arg": {"as_string": _lowered_module(node)}}]
    return written


def _lowered_module(call: Any) -> dict[str, Any] | None:
    """What a call of a delegate calls; None where it is not a module of its graph."""
    given = call.args[0] if call.args else None
    module = getattr(call.graph.owning_module, str(getattr(given, "target", "")), None)
    if module is None or not hasattr(module, "original_module"):
        return None
    return {"backend_id": module.backend_id, "original_module": _program(module.original_module, _is_written)}


def _target(target: Any) -> str:
    """Module and name: `executorch.exir.dialects.edge.ops.aten.add.Tensor`."""
    module, name = getattr(target, "__module__", None), getattr(target, "__name__", None)
    return f"{module.replace('._ops', '.ops')}.{name}" if module and name else ""


def _metadata(meta: Any) -> dict[str, str]:
    """The texts that the serialiser makes of a node's `meta`."""
    written = {}
    if stack_trace := meta.get("stack_trace"):
        written["stack_trace"] = str(stack_trace)
    if stack := meta.get("nn_module_stack"):
        written["nn_module_stack"] = ";".join(f"{key},{path},{_class(kind)}" for key, (path, kind) in stack.items())
    if "debug_handle" in meta:
        written["debug_handle"] = str(meta["debug_handle"])
    return written


def _class(kind: Any) -> str:
    """A class by its name: some passes keep the class itself."""
    return kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"
