"""
Programs (`.pte`): what a model file says of its own instructions, read without ExecuTorch.

    [root: u32]["ET12"]["eh00"][length of this header: u32][program bytes: u64][segments at: u64][their bytes: u64]
    ... the program, a FlatBuffer that this very header lies in ... the segments: weights, and what delegates are given

Sources: schema/program.fbs, exir/_serialize/_program.py (`_ExtendedHeader`).

Invariants
* Read are the program's instructions and XNNPACK's graphs, in place; weights are neither copied nor looked at.
* What the program says it holds is there: a file that was cut is refused, wherever it was cut.
* A program knows no debug handle maps and no operators: those are the ETRecord's (mapping/merge.py brings them together).
"""

import hashlib
import io
import mmap
from dataclasses import dataclass
from typing import BinaryIO

from otel_bridge.errors import MalformedMapping
from otel_bridge.mapping.document import FORMAT, canonical
from otel_bridge.mapping.faults import malformed, quoted
from otel_bridge.mapping.limits import MAX_METHODS
from otel_bridge.mapping.pte_tables import I32, U8, U32, U64, Allowance, Buffer, Table, Vector
from otel_bridge.mapping.xnnpack_payload import BACKEND as XNNPACK
from otel_bridge.mapping.xnnpack_payload import NODE_BYTES, read_nodes
from otel_bridge.v1 import mapping_pb2 as pb

IDENTIFIER = b"ET12"
"""File identifier, at byte 4 (schema/program.fbs)."""

_EXTENDED = b"eh00"
_EXTENDED_AT, _LENGTH_AT, _PROGRAM_BYTES_AT, _SEGMENTS_AT, _SEGMENTS_BYTES_AT = 8, 12, 16, 24, 32
_WITH_SEGMENTS_BYTES = 32
"""Length of the extended header from which on it says how many bytes the segments have."""

_PLANS, _INLINE, _SEGMENTS = 1, 3, 4  # Program
_NAME, _CHAINS, _OPERATORS, _DELEGATES = 0, 5, 6, 7  # ExecutionPlan
_INSTRUCTIONS = 2  # Chain
_CALL_TYPE, _CALL = 0, 1  # Instruction
_KERNEL_CALL, _DELEGATE_CALL, _JUMP_FALSE_CALL = 1, 2, 4  # InstructionArguments
_INDEX = 0  # KernelCall.op_index, DelegateCall.delegate_index
_OVERLOAD = 1  # Operator
_ID, _PROCESSED = 0, 1  # BackendDelegate
_LOCATION, _PLACE = 0, 1  # BackendDelegateDataReference
_IN_SEGMENT = 1
_OFFSET, _SIZE = 0, 1  # DataSegment
_DATA = 0  # BackendDelegateInlineData

_INSTRUCTION_BYTES = 256
_SEGMENT_BYTES = 16
_FOREIGN = "is it a program of ExecuTorch (.pte), and whole?"


@dataclass(frozen=True, slots=True)
class Program:
    """
    What a `.pte` says.

    mapping   canonical: methods, kernel names, backends, XNNPACK's nodes; a call's handles are those of its nodes
    jumping   names of the methods with conditional jumps: bodies of control flow, which debug handle maps leave out
    build_id  SHA-256 of the whole file, 64 hex digits: what a device that has the file can know it by
    """

    mapping: pb.Mapping
    jumping: frozenset[str]
    build_id: str


def is_program(head: bytes) -> bool:
    """Whether a file that begins so calls itself a program, of whichever version."""
    return head[4:6] == IDENTIFIER[:2] and head[6:8].isdigit()


def read_program(source: bytes | BinaryIO) -> Program:
    """The program in a `.pte`, given as bytes or as an open, seekable file. Raises `MalformedMapping`."""
    data = memoryview(source) if isinstance(source, bytes) else _view(source)
    if bytes(data[4:8]) != IDENTIFIER:
        found = f"the identifier {quoted(bytes(data[4:8]).decode('latin-1'))} at byte 4"
        raise malformed(".pte", found, f"only {quoted(IDENTIFIER.decode())} is known: {_FOREIGN}")
    return _Reader(data).read()


class _Reader:
    """One pass over a program."""

    def __init__(self, data: memoryview) -> None:
        self._allowance = Allowance()
        self._data = data
        self._program, self._segments_at = _frame(data)
        root = self._program.root()
        self._plans, self._inline, self._segments = root.tables(_PLANS), root.tables(_INLINE), root.tables(_SEGMENTS)
        self._nodes: dict[tuple[int, int], list[pb.DelegateNode]] = {}

    def read(self) -> Program:
        if len(self._plans) > MAX_METHODS:  # before any is read: one without a name and instructions claims no allowance
            way_out = f"at most {MAX_METHODS} are taken: {_FOREIGN}"
            raise malformed(".pte: execution_plan", f"{len(self._plans)} methods", way_out)
        self._check_segments()
        mapping, jumping = pb.Mapping(format=FORMAT), set()
        for number, plan in enumerate(self._plans):
            method = pb.Method(name=self._text(plan, _NAME))
            if self._read_chain(plan, method, f".pte: execution_plan[{number}]"):
                jumping.add(method.name)
            mapping.methods.append(method)
        return Program(canonical(mapping), frozenset(jumping), hashlib.sha256(self._data).hexdigest())

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
        operator = _item(plan.tables(_OPERATORS), index, where, "operator")
        name, overload = self._text(operator, _NAME), self._text(operator, _OVERLOAD)
        return f"{name}.{overload}" if overload else name

    def _delegate(self, plan: Table, index: int, where: str) -> pb.Instruction:
        """What an instruction says that calls this delegate, without its id."""
        delegate = _item(plan.tables(_DELEGATES), index, where, "delegate")
        backend = self._text(delegate, _ID)
        if not backend:
            raise malformed(f"{where}.delegate", "no backend id", _FOREIGN)
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
                begin, end = self._segment(_item(self._segments, place, where, "segment"), where)
                payload = self._data[begin:end]
            else:
                payload = _item(self._inline, place, where, "inline payload").bytes_at(_DATA)
            self._nodes[key] = read_nodes(payload, where, self._allowance)
        return self._nodes[key]

    def _check_segments(self) -> None:
        """Refuses a file that ends before its segments do. An empty one, as of a program without constants, lies nowhere."""
        self._allowance.claim(_SEGMENT_BYTES * len(self._segments), ".pte: segments")
        for number, segment in enumerate(self._segments):
            self._segment(segment, f".pte: segments[{number}]")

    def _segment(self, segment: Table, where: str) -> tuple[int, int]:
        begin = self._segments_at + segment.number(_OFFSET, U64)
        end = begin + segment.number(_SIZE, U64)
        if end > len(self._data) or (end > begin and not self._segments_at):
            raise _cut(where, end, len(self._data))
        return begin, end

    def _text(self, table: Table, slot: int) -> str:
        text = table.text(slot)
        self._allowance.claim(len(text), ".pte")
        return text


def _view(file: BinaryIO) -> memoryview:
    """The bytes of an open file in place: programs with their weights may be larger than memory."""
    if isinstance(file, io.BytesIO):
        return file.getbuffer().toreadonly()
    try:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError) as error:  # no file of its own, or an empty one
        raise malformed(".pte", "what is no file that can be mapped into memory", "give a regular file") from error


def _frame(data: memoryview) -> tuple[Buffer, int]:
    """The program's FlatBuffer, and where its segments begin (0: it has none)."""
    head = Buffer(data, ".pte")
    if bytes(data[_EXTENDED_AT:_LENGTH_AT]) != _EXTENDED:
        return head, 0
    size, segments_at = head.number(U64, _PROGRAM_BYTES_AT), head.number(U64, _SEGMENTS_AT)
    end = segments_at
    if head.number(U32, _LENGTH_AT) >= _WITH_SEGMENTS_BYTES:
        end += head.number(U64, _SEGMENTS_BYTES_AT)
    if max(size, end) > len(data):
        raise _cut(".pte", max(size, end), len(data))
    return Buffer(data[:size], ".pte"), segments_at


def _item(items: Vector, index: int, where: str, what: str) -> Table:
    if not 0 <= index < len(items):
        raise malformed(where, f"{what} {index} of {len(items)}", _FOREIGN)
    return items[index]


def _cut(where: str, promised: int, size: int) -> MalformedMapping:
    return malformed(where, f"it reaches to byte {promised}, and the file has {size}", "it was cut: copy or export it again")
