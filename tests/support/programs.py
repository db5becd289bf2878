"""
A writer of `.pte` programs for tests, on `flatbuffers.Builder`, and XNNPACK payloads for them.

    write_program({"forward": [Kernel("aten::add", "out"), Call("XnnpackBackend", xnnpack_payload([("Conv2d", 1)]))]})

Schemas: schema/program.fbs and backends/xnnpack/serialization/schema.fbs of ExecuTorch 1.5; slots in the order of their fields.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import flatbuffers

from otel_bridge.mapping.xnnpack_payload import KINDS


@dataclass(frozen=True, slots=True)
class Kernel:
    """A call of a kernel."""

    name: str | bytes
    overload: str | bytes = ""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a delegate with what it is given to run, in a segment or inline."""

    backend: str | bytes
    payload: bytes = b""
    inline: bool = False


@dataclass(frozen=True, slots=True)
class Other:
    """An instruction that is neither: 3 moves a value, 4 jumps, 5 frees a value."""

    kind: int


Step = Kernel | Call | Other
Methods = Mapping[str, Sequence[Step]]


def write_program(
    methods: Methods,
    *,
    chains: int = 1,
    identifier: bytes = b"ET12",
    header_bytes: int = 32,
    plan_references: int = 1,
    named: Sequence[tuple[str | bytes, bytes]] = (),
) -> bytes:
    """
    A program with these methods. Calls that are one object are of one delegate.

    named             named data: (key, value), each in a segment of its own
    header_bytes      of the extended header: 32, or 24 without the size of the segments; 0: none, and no segments
    plan_references   how often each method stands in the vector of methods, by references to one table
    """
    calls = _calls([step for steps in methods.values() for step in steps])
    segments = [call for call in calls if not call.inline]
    inline = [call for call in calls if call.inline]
    builder = flatbuffers.Builder(1024)
    builder.ForceDefaults(True)
    places = {id(call): place for group in (segments, inline) for place, call in enumerate(group)}
    plans = [_plan(builder, name, steps, places, chains) for name, steps in methods.items()]
    data = [_data(builder, call.payload) for call in inline]
    ranges, segment_data = _lay_out([*(call.payload for call in segments), *(value for _, value in named)])
    segment_tables = [_segment(builder, offset, size) for offset, size in ranges]
    keys = [_named(builder, key, len(segments) + number) for number, (key, _) in enumerate(named)]
    vectors = (plans * plan_references, data, segment_tables, keys)
    plan_vector, data_vector, segment_vector, key_vector = (_tables(builder, items) for items in vectors)
    builder.StartObject(8)
    builder.PrependUint32Slot(0, 0, 0)
    builder.PrependUOffsetTRelativeSlot(1, plan_vector, 0)
    builder.PrependUOffsetTRelativeSlot(3, data_vector, 0)
    builder.PrependUOffsetTRelativeSlot(4, segment_vector, 0)
    if named:
        builder.PrependUOffsetTRelativeSlot(7, key_vector, 0)
    builder.Finish(builder.EndObject(), file_identifier=identifier)
    program = bytes(builder.Output())
    return _framed(program, segment_data, header_bytes) if header_bytes else program


def xnnpack_payload(nodes: Sequence[tuple[str | int, int]], *, header: bool = True, weights: bytes = b"w" * 64) -> bytes:
    """A payload with these nodes (kind by name or number, debug handle), behind the header or bare."""
    builder = flatbuffers.Builder(1024)
    tables = []
    for kind, handle in nodes:
        builder.StartObject(3)
        content = builder.EndObject()
        builder.StartObject(4)
        builder.PrependUint8Slot(0, KINDS.index(kind) + 1 if isinstance(kind, str) else kind, 0)
        builder.PrependUOffsetTRelativeSlot(1, content, 0)
        builder.PrependUint32Slot(2, handle, 0)
        tables.append(int(builder.EndObject()))
    vector = _tables(builder, tables)
    version = builder.CreateString("0")
    builder.StartObject(9)
    builder.PrependUOffsetTRelativeSlot(0, version, 0)
    builder.PrependUOffsetTRelativeSlot(1, vector, 0)
    builder.Finish(builder.EndObject(), file_identifier=b"XN01")
    graph = bytes(builder.Output())
    if not header:
        return graph
    head = struct.pack("<4s4sHIIIQ", bytes(4), b"XH00", 30, 32, len(graph), 32 + len(graph), len(weights))
    return head.ljust(32, b"\0") + graph + weights


def _plan(builder: flatbuffers.Builder, name: str, steps: Sequence[Step], places: Mapping[int, int], chains: int) -> int:
    kernels = list(dict.fromkeys(step for step in steps if isinstance(step, Kernel)))
    calls = _calls(steps)
    operators = _tables(builder, [_texts(builder, kernel.name, kernel.overload) for kernel in kernels])
    delegates = _tables(builder, [_delegate(builder, call, places[id(call)]) for call in calls])
    numbers = {id(call): number for number, call in enumerate(calls)}
    operator_of = {kernel: number for number, kernel in enumerate(kernels)}
    instructions = []
    for step in steps:
        match step:
            case Kernel():
                instructions.append(_instruction(builder, 1, operator_of[step]))
            case Call():
                instructions.append(_instruction(builder, 2, numbers[id(step)]))
            case Other(kind):
                instructions.append(_instruction(builder, kind, 0))
    vector = _tables(builder, instructions)
    tables = []
    for _ in range(chains):
        builder.StartObject(4)
        builder.PrependUOffsetTRelativeSlot(2, vector, 0)
        tables.append(int(builder.EndObject()))
    chain_vector, own_name = _tables(builder, tables), builder.CreateString(name)
    builder.StartObject(9)
    builder.PrependUOffsetTRelativeSlot(0, own_name, 0)
    builder.PrependUOffsetTRelativeSlot(5, chain_vector, 0)
    builder.PrependUOffsetTRelativeSlot(6, operators, 0)
    builder.PrependUOffsetTRelativeSlot(7, delegates, 0)
    return int(builder.EndObject())


def _calls(steps: Sequence[Step]) -> list[Call]:
    """The calls among steps, each object once."""
    return list({id(step): step for step in steps if isinstance(step, Call)}.values())


def _delegate(builder: flatbuffers.Builder, call: Call, place: int) -> int:
    backend = builder.CreateString(call.backend)
    builder.StartObject(2)
    builder.PrependUint8Slot(0, 0 if call.inline else 1, 0)
    builder.PrependUint32Slot(1, place, 0)
    reference = builder.EndObject()
    builder.StartObject(3)
    builder.PrependUOffsetTRelativeSlot(0, backend, 0)
    builder.PrependUOffsetTRelativeSlot(1, reference, 0)
    return int(builder.EndObject())


def _instruction(builder: flatbuffers.Builder, kind: int, index: int) -> int:
    builder.StartObject(2)
    builder.PrependInt32Slot(0, index, 0)
    call = builder.EndObject()
    builder.StartObject(2)
    builder.PrependUint8Slot(0, kind, 0)
    builder.PrependUOffsetTRelativeSlot(1, call, 0)
    return int(builder.EndObject())


def _texts(builder: flatbuffers.Builder, *texts: str | bytes) -> int:
    made = [builder.CreateString(text) for text in texts]
    builder.StartObject(len(made))
    for slot, text in enumerate(made):
        builder.PrependUOffsetTRelativeSlot(slot, text, 0)
    return int(builder.EndObject())


def _data(builder: flatbuffers.Builder, payload: bytes) -> int:
    content = builder.CreateByteVector(payload)
    builder.StartObject(1)
    builder.PrependUOffsetTRelativeSlot(0, content, 0)
    return int(builder.EndObject())


def _segment(builder: flatbuffers.Builder, offset: int, size: int) -> int:
    builder.StartObject(2)
    builder.PrependUint64Slot(0, offset, 0)
    builder.PrependUint64Slot(1, size, 0)
    return int(builder.EndObject())


def _named(builder: flatbuffers.Builder, key: str | bytes, segment: int) -> int:
    text = builder.CreateString(key)
    builder.StartObject(2)
    builder.PrependUOffsetTRelativeSlot(0, text, 0)
    builder.PrependUint32Slot(1, segment, 0)
    return int(builder.EndObject())


def _tables(builder: flatbuffers.Builder, tables: Sequence[int]) -> int:
    builder.StartVector(4, len(tables), 4)
    for table in reversed(tables):
        builder.PrependUOffsetTRelative(table)
    return int(builder.EndVector())


def _lay_out(payloads: Sequence[bytes]) -> tuple[list[tuple[int, int]], bytes]:
    places, data = [], b""
    for payload in payloads:
        data += bytes(-len(data) % 16)
        places.append((len(data), len(payload)))
        data += payload
    return places, data


def _framed(program: bytes, segments: bytes, length: int) -> bytes:
    """The program with its extended header behind root and identifier, and the segments behind it."""
    root = struct.unpack_from("<I", program)[0] + length
    size = len(program) + length
    begin = size + (-size % 16)
    head = struct.pack("<I4s4sIQQ", root, program[4:8], b"eh00", length, size, begin)
    head = (head + struct.pack("<Q", len(segments)))[: 8 + length]
    return (head + program[8:]).ljust(begin, b"\0") + segments
