"""
Programs (`.pte`): what a model file says of its own instructions, read without ExecuTorch.

Source: schema/program.fbs. The frame around a program is read by mapping/pte_file.py.

Invariants
* Read are the program's instructions and XNNPACK's graphs, in place; weights are neither copied nor looked at.
* What the program says it holds is there: a file that was cut is refused, wherever it was cut.
* A program knows no debug handle maps and no operators: those are the ETRecord's (mapping/merge.py brings them together).
"""

from dataclasses import dataclass
from typing import BinaryIO

from otel_bridge.mapping.document import FORMAT, canonical
from otel_bridge.mapping.faults import malformed
from otel_bridge.mapping.limits import MAX_METHODS
from otel_bridge.mapping.pte_file import FOREIGN, IDENTIFIER, ProgramFile, item, open_program
from otel_bridge.mapping.pte_tables import I32, U8, U32, Table
from otel_bridge.mapping.xnnpack_payload import BACKEND as XNNPACK
from otel_bridge.mapping.xnnpack_payload import NODE_BYTES, read_nodes
from otel_bridge.v1 import mapping_pb2 as pb

_PLANS, _INLINE = 1, 3  # Program
_NAME, _CHAINS, _OPERATORS, _DELEGATES = 0, 5, 6, 7  # ExecutionPlan
_INSTRUCTIONS = 2  # Chain
_CALL_TYPE, _CALL = 0, 1  # Instruction
_KERNEL_CALL, _DELEGATE_CALL, _JUMP_FALSE_CALL = 1, 2, 4  # InstructionArguments
_INDEX = 0  # KernelCall.op_index, DelegateCall.delegate_index
_OVERLOAD = 1  # Operator
_ID, _PROCESSED = 0, 1  # BackendDelegate
_LOCATION, _PLACE = 0, 1  # BackendDelegateDataReference
_IN_SEGMENT = 1
_DATA = 0  # BackendDelegateInlineData

_INSTRUCTION_BYTES = 256


@dataclass(frozen=True, slots=True)
class Program:
    """
    What a `.pte` says.

    mapping   canonical: methods, kernel names, backends, XNNPACK's nodes; a call's handles are those of its nodes
    jumping   names of the methods with conditional jumps: bodies of control flow, which debug handle maps leave out
    build_id  what a device that has the file can know it by: see `build_id_of`
    """

    mapping: pb.Mapping
    jumping: frozenset[str]
    build_id: str


def is_program(head: bytes) -> bool:
    """Whether a file that begins so calls itself a program, of whichever version."""
    return head[4:6] == IDENTIFIER[:2] and head[6:8].isdigit()


def read_program(source: bytes | BinaryIO) -> Program:
    """The program in a `.pte`, given as bytes or as an open, seekable file. Raises `MalformedMapping`."""
    return _Reader(open_program(source)).read()


def build_id_of(source: bytes | BinaryIO) -> str:
    """
    The build id of a `.pte`, given as bytes or as an open, seekable file.

    It is the named data `otel_bridge.build_id` where the export has written it (otel_bridge.aot), and then little of the file
    is read; else the SHA-256 of the whole file, 64 hex digits. Raises `MalformedMapping`.
    """
    return open_program(source).build_id()


class _Reader:
    """One pass over a program."""

    def __init__(self, file: ProgramFile) -> None:
        self._file = file
        self._allowance = file.allowance
        self._plans, self._inline = file.root.tables(_PLANS), file.root.tables(_INLINE)
        self._nodes: dict[tuple[int, int], list[pb.DelegateNode]] = {}

    def read(self) -> Program:
        if len(self._plans) > MAX_METHODS:  # before any is read: one without a name and instructions claims no allowance
            way_out = f"at most {MAX_METHODS} are taken: {FOREIGN}"
            raise malformed(".pte: execution_plan", f"{len(self._plans)} methods", way_out)
        self._file.check_segments()
        mapping, jumping = pb.Mapping(format=FORMAT), set()
        for number, plan in enumerate(self._plans):
            method = pb.Method(name=self._text(plan, _NAME))
            if self._read_chain(plan, method, f".pte: execution_plan[{number}]"):
                jumping.add(method.name)
            mapping.methods.append(method)
        return Program(canonical(mapping), frozenset(jumping), self._file.build_id())

    def _read_chain(self, plan: Table, method: pb.Method, where: str) -> bool:
        """Reads a method's instructions; whether there are jumps among them."""
        chains = plan.tables(_CHAINS)
        if len(chains) > 1:
            way_out = "instructions of several chains share their ids: give the maps of the ETRecord alone"
            raise malformed(f"{where}.chains", f"{len(chains)} chains", way_out)
        if not len(chains):
            return False
        kernels: dict[int, str] = {}
        calls: dict[int, pb.Instruction] = {}
        jumps = False
        for number, instruction in enumerate(chains[0].tables(_INSTRUCTIONS)):
            self._allowance.claim(_INSTRUCTION_BYTES, where)
            kind, call = instruction.number(_CALL_TYPE, U8), instruction.table(_CALL)
            jumps |= kind == _JUMP_FALSE_CALL
            if call is None or kind not in (_KERNEL_CALL, _DELEGATE_CALL):
                continue
            place = f"{where}.instructions[{number}]"
            index = call.number(_INDEX, I32)
            if kind == _KERNEL_CALL:
                if index not in kernels:
                    kernels[index] = self._kernel(plan, index, place)
                self._allowance.claim(len(kernels[index]), where)
                method.instructions.add(id=number, kernel=kernels[index])
                continue
            if index not in calls:
                calls[index] = self._delegate(plan, index, place)
            self._allowance.claim(calls[index].ByteSize() + NODE_BYTES * len(calls[index].nodes), place)
            method.instructions.add(id=number).MergeFrom(calls[index])
        return jumps

    def _kernel(self, plan: Table, index: int, where: str) -> str:
        operator = item(plan.tables(_OPERATORS), index, where, "operator")
        name, overload = self._text(operator, _NAME), self._text(operator, _OVERLOAD)
        return f"{name}.{overload}" if overload else name

    def _delegate(self, plan: Table, index: int, where: str) -> pb.Instruction:
        """What an instruction says that calls this delegate, without its id."""
        delegate = item(plan.tables(_DELEGATES), index, where, "delegate")
        backend = self._text(delegate, _ID)
        if not backend:
            raise malformed(f"{where}.delegate", "no backend id", FOREIGN)
        call = pb.Instruction(delegate=backend)
        if backend == XNNPACK:
            call.nodes.extend(self._nodes_of(delegate, f"{where}.delegate.processed"))
            call.handles.extend(sorted({node.handle for node in call.nodes if node.handle}))
        return call

    def _nodes_of(self, delegate: Table, where: str) -> list[pb.DelegateNode]:
        reference = delegate.table(_PROCESSED)
        if reference is None:
            return []
        key = location, place = reference.number(_LOCATION, U8), reference.number(_PLACE, U32)
        if key not in self._nodes:
            if location == _IN_SEGMENT:
                payload = self._file.segment(place, where)
            else:
                payload = item(self._inline, place, where, "inline payload").bytes_at(_DATA)
            self._nodes[key] = read_nodes(payload, where, self._allowance)
        return self._nodes[key]

    def _text(self, table: Table, slot: int) -> str:
        text = table.text(slot)
        self._allowance.claim(len(text), ".pte")
        return text
