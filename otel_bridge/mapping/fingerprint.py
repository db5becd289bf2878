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
from functools import lru_cache

from otel_bridge.v1 import mapping_pb2 as pb

_DIGITS = 16
_REMEMBERED, _REMEMBERED_CHARACTERS = 8192, 512
"""Ids that are remembered, and the longest path and target of one, together: usually some 2 MB, at most about 20."""
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
    later = ordinals(method)
    return {
        (instruction, handle): [
            Fingerprint(operator.module_path, operator.name, later.get((instruction, handle, position), 0))
            for position, operator in enumerate(listed)
        ]
        for instruction, handle, listed in _listed(method)
    }


def ordinals(method: pb.Method) -> Mapping[tuple[int, int, int], int]:
    """(instruction, handle, position among its operators) -> ordinal, where it is not 0: few operators have equals."""
    times = Counter(
        [(each.module_path, each.name) for call in method.instructions for known in call.operators for each in known.operators]
    )
    places: dict[_Kind, list[tuple[int, int, int, str]]] = {kind: [] for kind, count in times.items() if count > 1}
    later: dict[tuple[int, int, int], int] = {}
    if not places:
        return later
    for instruction, handle, listed in _listed(method):
        for position, (kind, node) in enumerate(_nodes(listed)):
            if kind in places:
                places[kind].append((instruction, handle, position, node))
    for of_kind in places.values():
        number = _numbered(of_kind)
        for instruction, handle, position, node in of_kind:
            if ordinal := number[handle, node]:
                later[instruction, handle, position] = ordinal
    return later


def _numbered(of_kind: Iterable[tuple[int, int, int, str]]) -> dict[_Node, int]:
    """Handle and node of operators of one kind -> ordinal, in graph order."""
    first: dict[_Node, int] = {}
    for _, handle, position, node in of_kind:
        first[handle, node] = min(position, first.get((handle, node), position))
    in_graph_order = sorted((handle, position, node) for (handle, node), position in first.items())
    return {(handle, node): ordinal for ordinal, (handle, _, node) in enumerate(in_graph_order)}


def id_of(module_path: str, target: str, ordinal: int) -> str:
    """`Fingerprint.id` of an operator, remembered: builds of a model have most of their operators in common."""
    if len(module_path) + len(target) > _REMEMBERED_CHARACTERS:
        return Fingerprint(module_path, target, ordinal).id
    return _remembered_id(module_path, target, ordinal)


@lru_cache(_REMEMBERED)
def _remembered_id(module_path: str, target: str, ordinal: int) -> str:
    return Fingerprint(module_path, target, ordinal).id


def shared_handles(method: pb.Method) -> frozenset[int]:
    """
    Handles that stand for several operators and that several things list: kernels, entries of a map, nodes of a delegate.

    An operator of the model that was decomposed leaves all its nodes under one handle, and they may run one by one.
    """
    several = {known.handle for call in method.instructions for known in call.operators if len(known.operators) > 1}
    if not several:
        return frozenset()
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
        number = instruction.id
        for known in instruction.operators:
            yield number, known.handle, known.operators


def _nodes(operators: Sequence[pb.Operator]) -> Iterator[tuple[_Kind, str]]:
    """Module path and target of each operator, and what tells it from its equals: its node, else its number among them."""
    seen: dict[_Kind, int] = {}
    for operator in operators:
        kind = (operator.module_path, operator.name)
        number = seen[kind] = seen.get(kind, -1) + 1
        yield kind, operator.node or f"#{number}"
