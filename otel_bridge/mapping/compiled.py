"""
A mapping made ready for look-ups.

Invariants
* Resolution is total and exact: every (method, instruction, identifier) has one answer, and a handle is only ever given
  where the identifier's own entry lists it. `1` is not `"1"`; an entry that has lost its type stands for both, if canonical.
* Operators are those of the instruction: handles are unique within one method, and operators are scoped by instruction.
"""

from collections.abc import Mapping as Map
from dataclasses import dataclass

from otel_bridge.backends.facts import backend_of
from otel_bridge.mapping.identity import identifiers_of, key_of
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
    """

    name: str
    delegates: Map[int, Resolution]
    kernels: Map[int, Resolution]
    entries: Map[int, Map[Identifier, Resolution]]

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
        if entries is None:
            return Resolution(Status.DELEGATE, call.delegate)
        return entries.get(identifier) or Resolution(Status.UNMAPPED_IDENTIFIER, call.delegate)


@dataclass(frozen=True, slots=True)
class CompiledMapping:
    """A mapping by method name; `digest` is the SHA-256 of its canonical bytes, 64 hex digits."""

    digest: str
    methods: Map[str, CompiledMethod]


def compile_mapping(digest: str, mapping: mapping_pb2.Mapping) -> CompiledMapping:
    """The mapping ready for look-ups; `mapping` is canonical (mapping/document.py), so nothing is checked again."""
    return CompiledMapping(digest, {method.name: _compile_method(method) for method in mapping.methods})


def _compile_method(method: mapping_pb2.Method) -> CompiledMethod:
    delegates: dict[int, Resolution] = {}
    kernels: dict[int, Resolution] = {}
    entries: dict[int, Map[Identifier, Resolution]] = {}
    for instruction in method.instructions:
        operators = _operators(instruction)
        handles = tuple(instruction.handles)
        named = tuple(operator for handle in handles for operator in operators.get(handle, ()))
        if not instruction.delegate:
            kernels[instruction.id] = Resolution(handles=handles, operators=named)
            continue
        delegates[instruction.id] = Resolution(delegate=instruction.delegate, handles=handles, operators=named)
        if instruction.entries and backend_of(instruction.delegate).map_holds_handles:
            entries[instruction.id] = _compile_entries(instruction, operators)
    return CompiledMethod(method.name, delegates, kernels, entries)


def _operators(instruction: mapping_pb2.Instruction) -> dict[DebugHandle, tuple[Operator, ...]]:
    return {
        known.handle: tuple(
            Operator(o.name, o.node, o.file, o.line, o.module_path, o.module_type) for o in known.operators
        )
        for known in instruction.operators
    }  # fmt: skip


def _compile_entries(
    instruction: mapping_pb2.Instruction, operators: dict[DebugHandle, tuple[Operator, ...]]
) -> dict[Identifier, Resolution]:
    compiled: dict[Identifier, Resolution] = {}
    for entry in instruction.entries:
        handles = tuple(entry.handles)
        named = tuple(operator for handle in handles for operator in operators.get(handle, ()))
        resolution = Resolution(Status.EXACT, instruction.delegate, handles, named)
        for identifier in identifiers_of(*key_of(entry)):
            compiled[identifier] = resolution
    return compiled
