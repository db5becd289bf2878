"""
A writer of ETDumps for tests, on `flatbuffers.Builder`.

    write_etdump([RunData("Execute", [ProfileEvent(name="DELEGATE_CALL", chain=0, instruction=1, start=10, end=20)])])

Invariants
* None: the field is not written, so a reader sees the schema's default. Anything else is written, defaults too.
* Strings may be `bytes` that are no UTF-8. Nothing is shared but vtables, as in a file of ExecuTorch's ETDumpGen.

Schema: devtools/etdump/etdump_schema_flatcc.fbs of ExecuTorch 1.5; slots in the order of its fields.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import flatbuffers

Text = str | bytes


@dataclass(frozen=True, slots=True)
class ProfileEvent:
    """A profiling event. ETDumpGen sets `name` or one of `id_int` and `id_str`, and chain -1 with instruction 0 for "none"."""

    name: Text | None = None
    chain: int | None = None
    instruction: int | None = None
    id_int: int | None = None
    id_str: Text | None = None
    metadata: bytes | None = None
    start: int | None = None
    end: int | None = None


@dataclass(frozen=True, slots=True)
class DebugEvent:
    """A logged value (the value itself is left out); `chain` is unsigned here: none is 2^64 - 1."""

    chain: int | None = None
    instruction: int | None = None
    name: Text | None = None


@dataclass(frozen=True, slots=True)
class AllocationEvent:
    """A tracked allocation, in bytes."""

    allocator: int | None = None
    size: int | None = None


@dataclass(frozen=True, slots=True)
class EmptyEvent:
    """An `Event` with nothing in it."""


Event = ProfileEvent | DebugEvent | AllocationEvent | EmptyEvent


@dataclass(frozen=True, slots=True)
class RunData:
    """An event block: "Default" holds loading, "Execute" one execution. `events` None: no vector at all."""

    name: Text | None = "Execute"
    events: Sequence[Event] | None = ()
    bundled_input: int | None = None


def write_etdump(blocks: Sequence[RunData] | None, *, size_prefixed: bool = True, trailing: bytes = b"") -> bytes:
    """An ETDump with these blocks (None: no vector of blocks at all), and `trailing` behind it, outside the size prefix."""
    builder = flatbuffers.Builder(1024)
    builder.ForceDefaults(True)
    run_data = None if blocks is None else _write_tables(builder, [_write_block(builder, block) for block in blocks])
    builder.StartObject(2)
    builder.PrependUint32Slot(0, 0, 0)
    _reference(builder, 1, run_data)
    root = builder.EndObject()
    finish = builder.FinishSizePrefixed if size_prefixed else builder.Finish
    finish(root, file_identifier=b"ED00")
    return bytes(builder.Output()) + trailing


def _write_block(builder: flatbuffers.Builder, block: RunData) -> int:
    events = None if block.events is None else _write_tables(builder, [_write_event(builder, event) for event in block.events])
    name = _write_text(builder, block.name)
    builder.StartObject(4)
    _reference(builder, 0, name)
    if block.bundled_input is not None:
        builder.PrependInt32Slot(1, block.bundled_input, -1)
    _reference(builder, 3, events)
    return int(builder.EndObject())


def _write_event(builder: flatbuffers.Builder, event: Event) -> int:
    slot, content = 0, None
    match event:
        case ProfileEvent():
            content = _write_profile_event(builder, event)
        case AllocationEvent():
            slot, content = 1, _write_allocation_event(builder, event)
        case DebugEvent():
            slot, content = 2, _write_debug_event(builder, event)
        case EmptyEvent():
            pass
    builder.StartObject(3)
    _reference(builder, slot, content)
    return int(builder.EndObject())


def _write_profile_event(builder: flatbuffers.Builder, event: ProfileEvent) -> int:
    name, id_str = _write_text(builder, event.name), _write_text(builder, event.id_str)
    metadata = None if event.metadata is None else int(builder.CreateByteVector(event.metadata))
    builder.StartObject(8)
    if event.start is not None:
        builder.PrependUint64Slot(6, event.start, 0)
    if event.end is not None:
        builder.PrependUint64Slot(7, event.end, 0)
    _reference(builder, 0, name)
    if event.chain is not None:
        builder.PrependInt32Slot(1, event.chain, 0)
    if event.instruction is not None:
        builder.PrependInt32Slot(2, event.instruction, -1)
    if event.id_int is not None:
        builder.PrependInt32Slot(3, event.id_int, -1)
    _reference(builder, 4, id_str)
    _reference(builder, 5, metadata)
    return int(builder.EndObject())


def _write_debug_event(builder: flatbuffers.Builder, event: DebugEvent) -> int:
    name = _write_text(builder, event.name)
    builder.StartObject(6)
    if event.chain is not None:
        builder.PrependUint64Slot(0, event.chain, 0)
    if event.instruction is not None:
        builder.PrependInt32Slot(1, event.instruction, -1)
    _reference(builder, 5, name)
    return int(builder.EndObject())


def _write_allocation_event(builder: flatbuffers.Builder, event: AllocationEvent) -> int:
    builder.StartObject(2)
    if event.allocator is not None:
        builder.PrependInt32Slot(0, event.allocator, 0)
    if event.size is not None:
        builder.PrependUint64Slot(1, event.size, 0)
    return int(builder.EndObject())


def _write_tables(builder: flatbuffers.Builder, tables: Sequence[int]) -> int:
    builder.StartVector(4, len(tables), 4)
    for table in reversed(tables):
        builder.PrependUOffsetTRelative(table)
    return int(builder.EndVector())


def _write_text(builder: flatbuffers.Builder, text: Text | None) -> int | None:
    return None if text is None else int(builder.CreateString(text))


def _reference(builder: flatbuffers.Builder, slot: int, target: int | None) -> None:
    if target is not None:
        builder.PrependUOffsetTRelativeSlot(slot, target, 0)
