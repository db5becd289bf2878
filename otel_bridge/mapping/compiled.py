"""
A mapping made ready for look-ups.

Invariants
* Resolution is total and exact: every (method, instruction, identifier) has one answer, and a handle is only ever given
  where the identifier's own entry lists it, or a rule leaves no other reading. `1` is not `"1"`; an entry that has lost its
  type stands for both, if canonical.
* Operators are those of the instruction: handles are unique within one method, and operators are scoped by instruction.
* Nothing is made for an entry before it is asked for: a mapping is its parsed document, which is searched where it lies, and
  what needs all of it is made once. Answers are made anew each time, and hold on to no part of the document.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from collections.abc import Mapping as Map
from dataclasses import dataclass, field
from operator import attrgetter
from sys import intern

from otel_bridge.backends.table import backend_of, read
from otel_bridge.mapping.entries import Entries
from otel_bridge.mapping.fingerprint import id_of, ordinals, shared_handles
from otel_bridge.mapping.xnnpack_order import RULE, Node
from otel_bridge.mapping.xnnpack_payload import BACKEND as XNNPACK
from otel_bridge.model.events import Identifier
from otel_bridge.model.resolution import DebugHandle, Operator, Resolution, Status
from otel_bridge.v1 import mapping_pb2

_INSTRUCTION_BYTES, _NODE_BYTES, _ENTRY_BYTES, _HANDLE_BYTES, _OPERATOR_BYTES, _LATER_BYTES = 800, 120, 130, 100, 120, 130
"""What each takes in memory, about, beside its bytes in the document: as measured."""

_HANDLE: Callable[[mapping_pb2.HandleOperators], int] = attrgetter("handle")


class CompiledMethod:
    """
    One method of a mapping; `method` is canonical (mapping/document.py).

    name        as events may name it
    delegates   instruction -> backend id, of delegate calls
    kernels     instructions that call a kernel
    nodes       instruction -> XNNPACK's nodes in order; absent where they are not known, or there is a map
    size_bytes  in memory, about, beside what its document takes
    """

    def __init__(self, method: mapping_pb2.Method) -> None:
        self.name = method.name
        self.delegates = {each.id: each.delegate for each in method.instructions if each.delegate}
        self.kernels = frozenset(each.id for each in method.instructions if not each.delegate)
        self._instructions = {each.id: each for each in method.instructions}
        self._maps = {
            each.id: Entries(each.entries)
            for each in method.instructions
            if each.entries and backend_of(each.delegate).map_holds_handles
        }
        self.nodes: Map[int, tuple[Node, ...]] = {
            each.id: tuple((intern(node.kind), node.handle) for node in each.nodes)
            for each in method.instructions
            if each.nodes and each.delegate == XNNPACK and each.id not in self._maps
        }
        self._later = ordinals(method)
        self._shared = shared_handles(method)
        self.size_bytes = _LATER_BYTES * len(self._later) + sum(map(_size, method.instructions))

    def call(self, name: str, instruction: int) -> Resolution:
        """
        What an instruction stands for that ran as `name`, status None.

        An empty resolution where the mapping knows no such call there.
        """
        known = {"DELEGATE_CALL": self.delegates.keys(), "OPERATOR_CALL": self.kernels}.get(name, frozenset())
        if instruction not in known:
            return Resolution()
        said = self._instructions[instruction]
        operators: list[Operator] = []
        for listed in said.operators:  # of `said.handles`, and in their order
            self._read(instruction, listed, operators)
        return Resolution(None, said.delegate or None, tuple(said.handles), tuple(operators))

    def resolve(self, instruction: int, identifier: Identifier) -> Resolution:
        """What an identifier stands for that a delegate logged at this instruction."""
        delegate = self.delegates.get(instruction)
        if delegate is None:
            return Resolution(Status.UNMAPPED_INSTRUCTION)
        entries = self._maps.get(instruction)
        entry = entries.find(identifier) if entries is not None else None
        if entry is not None:
            return self._exact(instruction, entry)
        reading = read(delegate, identifier)
        entry = entries.find(reading.key) if entries is not None and reading.key is not None else None
        if entry is not None:
            return self._exact(instruction, entry, Status.DERIVED, reading.rule)
        if not reading.is_operator:
            return Resolution(Status.PHASE, delegate)
        return Resolution(Status.DELEGATE if entries is None else Status.UNMAPPED_IDENTIFIER, delegate)

    def derive(self, instruction: int, handle: DebugHandle) -> Resolution:
        """What the events of the node with this handle stand for, at an instruction of `nodes`."""
        operators = self._operators(self._instructions[instruction], (handle,))
        return Resolution(Status.DERIVED, XNNPACK, (handle,), operators, RULE)

    def _exact(
        self, instruction: int, entry: mapping_pb2.MapEntry, status: Status = Status.EXACT, rule: str | None = None
    ) -> Resolution:
        said = self._instructions[instruction]
        handles = tuple(entry.handles)
        return Resolution(status, said.delegate, handles, self._operators(said, handles), rule, tuple(entry.weights))

    def _operators(self, said: mapping_pb2.Instruction, handles: Iterable[DebugHandle]) -> tuple[Operator, ...]:
        found: list[Operator] = []
        listed = said.operators
        for handle in handles:
            place = bisect_left(listed, handle, key=_HANDLE)
            if place < len(listed) and listed[place].handle == handle:
                self._read(said.id, listed[place], found)
        return tuple(found)

    def _read(self, instruction: int, listed: mapping_pb2.HandleOperators, found: list[Operator]) -> None:
        handle = listed.handle
        is_candidate = handle in self._shared
        for position, said in enumerate(listed.operators):
            name, path = said.name, said.module_path
            known = id_of(path, name, self._later.get((instruction, handle, position), 0))
            found.append(Operator(name, said.node, said.file, said.line, path, said.module_type, handle, known, is_candidate))


def _size(said: mapping_pb2.Instruction) -> int:
    operators = sum([len(known.operators) for known in said.operators])
    return (
        _INSTRUCTION_BYTES
        + _NODE_BYTES * len(said.nodes)
        + _ENTRY_BYTES * len(said.entries)
        + _HANDLE_BYTES * len(said.operators)
        + _OPERATOR_BYTES * operators
    )


@dataclass(frozen=True, slots=True)
class CompiledMapping:
    """
    A mapping by method name; `digest` is the SHA-256 of its canonical bytes, 64 hex digits.

    formats       backend id -> serialised `MetadataFormat`, which is how the mapping declares that its metadata are read
    only_backend  backend id of all delegate calls of all methods; None: there are none, or of several backends
    """

    digest: str
    methods: Map[str, CompiledMethod] = field(compare=False)  # what the digest says
    formats: Map[str, bytes] = field(default_factory=dict)
    only_backend: str | None = None

    @property
    def size_bytes(self) -> int:
        """In memory, about, beside what its document takes."""
        return sum(method.size_bytes for method in self.methods.values())


def compile_mapping(digest: str, mapping: mapping_pb2.Mapping) -> CompiledMapping:
    """The mapping ready for look-ups; `mapping` is canonical (mapping/document.py), so nothing is checked again."""
    formats = {each.delegate: each.SerializeToString(deterministic=True) for each in mapping.metadata}
    methods = {method.name: CompiledMethod(method) for method in mapping.methods}
    backends = {delegate for method in methods.values() for delegate in method.delegates.values()}
    return CompiledMapping(digest, methods, formats, backends.pop() if len(backends) == 1 else None)
