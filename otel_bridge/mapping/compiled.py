"""
A mapping made ready for look-ups.

Invariants
* Resolution is total and exact: every (method, instruction, identifier) has one answer, and a handle is only ever given
  where the identifier's own entry lists it, or a rule leaves no other reading. `1` is not `"1"`; an entry that has lost its
  type stands for both, if canonical.
* Operators are those of the instruction: handles are unique within one method, and operators are scoped by instruction.
"""

from collections.abc import Mapping as Map
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from otel_bridge.backends.table import backend_of, read
from otel_bridge.mapping.fingerprint import Fingerprint, fingerprints, shared_handles
from otel_bridge.mapping.identity import identifiers_of, key_of
from otel_bridge.mapping.xnnpack_order import RULE, Node
from otel_bridge.mapping.xnnpack_payload import BACKEND as XNNPACK
from otel_bridge.model.events import Identifier
from otel_bridge.model.resolution import DebugHandle, Operator, Resolution, Status
from otel_bridge.v1 import mapping_pb2


@dataclass(frozen=True, slots=True)
class CompiledMethod:
    """
    One method of a mapping.

    delegates   instruction -> what the delegate call as a whole stands for (all its handles; status None)
    kernels     instruction -> what the kernel call stands for (status None)
    entries     instruction -> identifier -> what it stands for (status exact); absent where the backend gave no usable map
    nodes       instruction -> XNNPACK's nodes in order; absent where they are not known, or there is a map
    derived     instruction -> handle of a node -> what the events of that node stand for (status derived)
    """

    name: str
    delegates: Map[int, Resolution]
    kernels: Map[int, Resolution]
    entries: Map[int, Map[Identifier, Resolution]]
    nodes: Map[int, tuple[Node, ...]] = field(default_factory=dict)
    derived: Map[int, Map[DebugHandle, Resolution]] = field(default_factory=dict)

    def call(self, name: str, instruction: int) -> Resolution:
        """What an instruction stands for that ran as `name`; an empty resolution where the mapping knows no such call there."""
        known = {"DELEGATE_CALL": self.delegates, "OPERATOR_CALL": self.kernels}.get(name, {})
        return known.get(instruction) or Resolution()

    def resolve(self, instruction: int, identifier: Identifier) -> Resolution:
        """What an identifier stands for that a delegate logged at this instruction."""
        call = self.delegates.get(instruction)
        if call is None:
            return Resolution(Status.UNMAPPED_INSTRUCTION)
        entries = self.entries.get(instruction)
        if entries is not None and identifier in entries:
            return entries[identifier]
        reading = read(call.delegate, identifier)
        if entries is not None and reading.key is not None and reading.key in entries:
            return replace(entries[reading.key], status=Status.DERIVED, rule=reading.rule)
        if not reading.is_operator:
            return Resolution(Status.PHASE, call.delegate)
        return Resolution(Status.DELEGATE if entries is None else Status.UNMAPPED_IDENTIFIER, call.delegate)


@dataclass(frozen=True, slots=True)
class CompiledMapping:
    """
    A mapping by method name; `digest` is the SHA-256 of its canonical bytes, 64 hex digits.

    formats       backend id -> serialised `MetadataFormat`, which is how the mapping declares that its metadata are read
    only_backend  backend id of all delegate calls of all methods; None: there are none, or of several backends
    """

    digest: str
    methods: Map[str, CompiledMethod]
    formats: Map[str, bytes] = field(default_factory=dict)
    only_backend: str | None = None


def compile_mapping(digest: str, mapping: mapping_pb2.Mapping) -> CompiledMapping:
    """The mapping ready for look-ups; `mapping` is canonical (mapping/document.py), so nothing is checked again."""
    formats = {each.delegate: each.SerializeToString(deterministic=True) for each in mapping.metadata}
    methods = {method.name: _compile_method(method) for method in mapping.methods}
    backends = {call.delegate for method in methods.values() for call in method.delegates.values()}
    return CompiledMapping(digest, methods, formats, backends.pop() if len(backends) == 1 else None)


def _compile_method(method: mapping_pb2.Method) -> CompiledMethod:
    delegates: dict[int, Resolution] = {}
    kernels: dict[int, Resolution] = {}
    entries: dict[int, Map[Identifier, Resolution]] = {}
    nodes: dict[int, tuple[Node, ...]] = {}
    derived: dict[int, Map[DebugHandle, Resolution]] = {}
    known, shared = fingerprints(method), shared_handles(method)
    for instruction in method.instructions:
        operators = _operators(instruction, known, shared)
        handles = tuple(instruction.handles)
        named = tuple(operator for handle in handles for operator in operators.get(handle, ()))
        if not instruction.delegate:
            kernels[instruction.id] = Resolution(handles=handles, operators=named)
            continue
        delegates[instruction.id] = Resolution(delegate=instruction.delegate, handles=handles, operators=named)
        if instruction.entries and backend_of(instruction.delegate).map_holds_handles:
            entries[instruction.id] = _compile_entries(instruction, operators)
        elif instruction.nodes and instruction.delegate == XNNPACK:
            nodes[instruction.id] = tuple((node.kind, node.handle) for node in instruction.nodes)
            derived[instruction.id] = {
                handle: Resolution(Status.DERIVED, XNNPACK, (handle,), operators.get(handle, ()), RULE)
                for _, handle in nodes[instruction.id]
                if handle
            }
    return CompiledMethod(method.name, delegates, kernels, entries, nodes, derived)


def _operators(
    instruction: mapping_pb2.Instruction, known: Map[tuple[int, int], Sequence[Fingerprint]], shared: frozenset[int]
) -> dict[DebugHandle, tuple[Operator, ...]]:
    return {
        item.handle: tuple(
            Operator(
                o.name,
                o.node,
                o.file,
                o.line,
                o.module_path,
                o.module_type,
                handle=item.handle,
                id=fingerprint.id,
                is_candidate=item.handle in shared,
            )
            for o, fingerprint in zip(item.operators, known[instruction.id, item.handle], strict=True)
        )
        for item in instruction.operators
    }


def _compile_entries(
    instruction: mapping_pb2.Instruction, operators: dict[DebugHandle, tuple[Operator, ...]]
) -> dict[Identifier, Resolution]:
    compiled: dict[Identifier, Resolution] = {}
    for entry in instruction.entries:
        handles = tuple(entry.handles)
        named = tuple(operator for handle in handles for operator in operators.get(handle, ()))
        resolution = Resolution(Status.EXACT, instruction.delegate, handles, named, weights=tuple(entry.weights))
        for identifier in identifiers_of(*key_of(entry)):
            compiled[identifier] = resolution
    return compiled
