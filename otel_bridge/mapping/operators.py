"""
Operators and their source lines, from the JSON of an edge program (exir/serde/serialize.py), without torch.

Graphs that are alive come in the same form (otel_bridge/aot/graphs.py), so what is read of them is decided here alone.

Invariants
* A call of a delegate is never an operator: its debug handle counts in another graph than those of the nodes in its module.
* What a node does not say, or says in a form that is not known, stays unset. Operators describe; they never decide.
"""

import re
from collections import defaultdict
from dataclasses import dataclass

from otel_bridge.errors import MalformedMapping
from otel_bridge.mapping.faults import described, malformed
from otel_bridge.mapping.json_input import load_quickly
from otel_bridge.mapping.limits import MAX_HANDLE, MAX_TEXT_BYTES
from otel_bridge.v1 import mapping_pb2 as pb

Scope = dict[int, list[pb.Operator]]
"""Debug handle -> its operators in graph order. Handles mean something within one scope only."""

_EDGE = "executorch.exir.dialects.edge.ops."
_CALL = "executorch_call_delegate"
_FRAME = re.compile(r'^\s*File "([^"\n]+)", line ([0-9]{1,9}), in ', re.MULTILINE)
_FOREIGN = frozenset({"site-packages", "dist-packages", "torch"})


@dataclass(frozen=True, slots=True)
class Call:
    """A delegate call in a graph: its backend ("": not known), and the operators of its module (None: they cannot be read)."""

    backend: str
    scope: Scope | None


@dataclass(frozen=True, slots=True)
class Graph:
    """One method's edge graph: the operators outside delegates, and the calls of delegates in graph order."""

    scope: Scope
    calls: tuple[Call, ...]


def read_graph(program: object, where: str) -> Graph:
    """The graph of a loaded edge program. Raises `MalformedMapping` where it is not one."""
    nodes = _at(program, "graph_module", "graph", "nodes")
    if not isinstance(nodes, list):
        way_out = "it should be an exported program as JSON: make the ETRecord anew, or give the maps as JSON"
        raise malformed(f"{where}.graph_module.graph.nodes", described(nodes), way_out)
    return Graph(_scope(nodes), tuple(_call(node) for node in nodes if _is_call(node)))


def source_line(stack_trace: str) -> tuple[str, int]:
    """
    File and line of the innermost frame outside torch and installed packages, else of the innermost; ("", 0): there is none.

    Traces are Python's: the innermost frame stands last.
    """
    frames = [(file, int(line)) for file, line in _FRAME.findall(stack_trace)]
    own = [frame for frame in frames if not frame[0].startswith("<") and _FOREIGN.isdisjoint(re.split(r"[/\\]", frame[0]))]
    return (own or frames or [("", 0)])[-1]


def innermost_module(stack: str) -> tuple[str, str]:
    """
    Path and type of the last entry of an `nn_module_stack`; ("", "") where there is none.

    Entries are `key,path,type` joined by `;`. A type has no comma, so a path may.
    """
    fields = stack.rpartition(";")[2].split(",")
    return (",".join(fields[1:-1]), fields[-1]) if len(fields) > 2 else ("", "")  # noqa: PLR2004  # key, path, type


def _scope(nodes: list[object]) -> Scope:
    scope: Scope = defaultdict(list)
    for node in nodes:
        handle = _handle(node)
        if handle is not None and not _is_call(node) and (operator := _operator(node)) is not None:
            scope[handle].append(operator)
    return dict(scope)


def _operator(node: object) -> pb.Operator | None:
    name = _text(_at(node, "target")).removeprefix(_EDGE)
    if not name:
        return None
    file, line = source_line(_text(_at(node, "metadata", "stack_trace"), limit_bytes=1 << 20))
    path, kind = innermost_module(_text(_at(node, "metadata", "nn_module_stack"), limit_bytes=1 << 20))
    texts = {"node": _text(_at(node, "name")), "file": _text(file), "module_path": _text(path), "module_type": _text(kind)}
    return pb.Operator(name=name, line=line if texts["file"] else 0, **texts)


def _call(node: object) -> Call:
    """The lowered module is the call's first argument: as JSON inside a JSON string, or loaded."""
    inputs = _at(node, "inputs")
    module = _at(inputs[0], "arg", "as_string") if isinstance(inputs, list) and inputs else None
    try:
        module = load_quickly(module, "lowered module") if isinstance(module, str) else module
    except MalformedMapping:
        module = None
    nodes = _at(module, "original_module", "graph_module", "graph", "nodes")
    return Call(_text(_at(module, "backend_id")), _scope(nodes) if isinstance(nodes, list) else None)


def _is_call(node: object) -> bool:
    target = _at(node, "target")
    return isinstance(target, str) and target.rpartition(".")[2] == _CALL


def _handle(node: object) -> int | None:
    """Handles are written as strings; those of a node that stands for several do not come back, in ExecuTorch either."""
    text = _at(node, "metadata", "debug_handle")
    if not isinstance(text, str) or not (text.isascii() and text.isdigit() and len(text) <= len(str(MAX_HANDLE))):
        return None
    return int(text) if 0 < int(text) <= MAX_HANDLE else None


def _at(value: object, *keys: str) -> object:
    """The value below `keys`, None where any is missing."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _text(value: object, *, limit_bytes: int = MAX_TEXT_BYTES) -> str:
    """A text that a document may hold, else ""."""
    if not isinstance(value, str):
        return ""
    try:
        return value if len(value.encode()) <= limit_bytes else ""
    except UnicodeEncodeError:
        return ""
