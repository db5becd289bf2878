"""
Who an operator is, in every build of a model: what handles and node names cannot say, since they are numbered anew.

Invariants
* The derivation is an interface: tests pin it with golden values, and a change of it is breaking.
* An operator is (path of its module, its target, its ordinal among those equal in both, in graph order). So neither a layer
  that is added elsewhere, nor another handle, node, source line or delegate, changes it.
* Graph order is that of handles, which ExecuTorch counts along the graph (exir/passes/debug_handle_generator_pass.py), and
  within one handle that of its nodes. An operator that several instructions list is one operator.

id = first 16 hex digits of SHA-256 over the UTF-8 of the JSON array [module path, target, ordinal], without spaces.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from otel_bridge.v1 import mapping_pb2 as pb

_DIGITS = 16
_Kind = tuple[str, str]
_Node = tuple[int, str]


@dataclass(frozen=True, slots=True, order=True)
class Fingerprint:
    """
    One operator: `ordinal` counts from 0 among those of equal `module_path` and `target`.

    module_path   "": the root module, or not known
    target        edge operator, e.g. "aten.convolution.default"
    id            16 hex digits
    """

    module_path: str
    target: str
    ordinal: int
    id: str = field(init=False)

    def __post_init__(self) -> None:
        text = json.dumps([self.module_path, self.target, self.ordinal], ensure_ascii=False, separators=(",", ":"))
        object.__setattr__(self, "id", hashlib.sha256(text.encode()).hexdigest()[:_DIGITS])

    def __str__(self) -> str:
        """For people: "layer1.0.conv aten.convolution.default", with " #1" from the second of its kind on."""
        ordinal = f" #{self.ordinal}" if self.ordinal else ""
        return f"{self.module_path} {self.target}".lstrip() + ordinal


def fingerprints(method: pb.Method) -> Mapping[tuple[int, int], Sequence[Fingerprint]]:
    """(instruction, handle) -> the fingerprints of the operators that it lists there, in their order."""
    places: dict[_Kind, dict[_Node, int]] = {}
    for _, handle, listed in _listed(method):
        for position, (kind, node) in enumerate(_nodes(listed)):
            of_kind = places.setdefault(kind, {})
            of_kind[handle, node] = min(position, of_kind.get((handle, node), position))
    known: dict[tuple[_Kind, _Node], Fingerprint] = {}
    for kind, of_kind in places.items():
        in_graph_order = sorted((handle, position, name) for (handle, name), position in of_kind.items())
        for ordinal, (handle, _, name) in enumerate(in_graph_order):
            known[kind, (handle, name)] = Fingerprint(*kind, ordinal)
    return {
        (instruction, handle): [known[kind, (handle, node)] for kind, node in _nodes(listed)]
        for instruction, handle, listed in _listed(method)
    }


def shared_handles(method: pb.Method) -> frozenset[int]:
    """
    Handles that stand for several operators and that several things list: kernels, entries of a map, nodes of a delegate.

    An operator of the model that was decomposed leaves all its nodes under one handle, and they may run one by one.
    """
    several = {handle for _, handle, listed in _listed(method) if len(listed) > 1}
    times: Counter[int] = Counter()
    for instruction in method.instructions:
        parts: list[Iterable[int]] = [entry.handles for entry in instruction.entries] or [
            [node.handle] for node in instruction.nodes
        ]
        for handles in parts or [instruction.handles]:
            times.update(several.intersection(handles))
    return frozenset(handle for handle, count in times.items() if count > 1)


def _listed(method: pb.Method) -> Iterator[tuple[int, int, Sequence[pb.Operator]]]:
    for instruction in method.instructions:
        for known in instruction.operators:
            yield instruction.id, known.handle, known.operators


def _nodes(operators: Sequence[pb.Operator]) -> Iterator[tuple[_Kind, str]]:
    """Module path and target of each operator, and what tells it from its equals: its node, else its number among them."""
    seen: dict[_Kind, int] = {}
    for operator in operators:
        kind = (operator.module_path, operator.name)
        number = seen[kind] = seen.get(kind, -1) + 1
        yield kind, operator.node or f"#{number}"
