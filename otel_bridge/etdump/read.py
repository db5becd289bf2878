"""
The fast reader of ETDumps: one pass over the file, straight into columns.

Invariants
* No byte outside the file is read. Every read is a `struct.unpack_from`, which refuses to pass the end; positions only grow
  from the header on, by unsigned offsets; the one signed offset, to a vtable, is checked where vtables are read; a slice is
  taken only where its length has been measured against the file.
* Structure costs the file (MalformedETDump), content costs the event (`rejected`). Structure is checked of every profiling
  event, also of what is not used of it.
* Work and memory are linear in the file (`limits.Budget`): what is shared is measured and copied once.
* `reference.read_reference` is the oracle: it accepts all that this reader accepts, with an equal result. This one is stricter
  in two things: fields of a table may not overlap, and a vtable must lie in the file whole.

A file of `MANY_BYTES` goes through numpy (bulk.py), which takes some 300 us before the first event and then a fourth of the
time; what that leaves alone, because something may be wrong with it, is read here, where errors have their words.
"""

import struct

import numpy as np

from otel_bridge.etdump.bulk import read_at_once
from otel_bridge.etdump.layout import ETDUMP, EVENT, RUN_DATA, ProfileLayout, read_profile_layout, read_vtable
from otel_bridge.etdump.limits import MAX_CHAIN, MAX_NAME_BYTES, Budget, Frame, block_name, malformed, open_frame
from otel_bridge.etdump.result import ETDump, Rejection, Rejections
from otel_bridge.model.events import CALL_NAMES, NO_INSTRUCTION, Block, BlockKind, EventBatch, EventKind, Identifier
from otel_bridge.model.stream import Stream
from otel_bridge.model.ticks import Ticks

MANY_BYTES = 16_000
"""About two hundred events."""

_CALL_NAMES = frozenset(name.encode() for name in CALL_NAMES)
_UNSET_ID = -1
_U64 = (1 << 64) - 1
# Plain ints: members of an IntEnum are slower to store.
_RUNTIME, _CALL, _SCOPE, _DELEGATE = map(int, (EventKind.RUNTIME, EventKind.CALL, EventKind.SCOPE, EventKind.DELEGATE))

_RUN_DATA = ETDUMP.index("run_data")
_BLOCK_NAME, _EVENTS = RUN_DATA.index("name"), RUN_DATA.index("events")

# Rows are packed here and dealt out to columns at the end: an append to each of seven columns costs half as much again.
_ROW = np.dtype(
    [
        ("start", np.uint64),
        ("duration", np.uint64),
        ("instruction", np.int32),
        ("name", np.uint32),
        ("metadata", np.uint32),
        ("kind", np.uint8),
        ("chain", np.uint8),
    ]
)
_pack_row = struct.Struct("=QQiIIBB").pack

_read_u32 = struct.Struct("<I").unpack_from
_read_i32 = struct.Struct("<i").unpack_from


def read(data: bytes, stream: Stream) -> ETDump:
    """
    Read an ETDump, size-prefixed or bare, as a batch of one stream: `streams=(stream,)`, clock 0 in every row.

    Raises MalformedETDump with reason `not_an_etdump`, `truncated`, `malformed_etdump`, `too_many_events` or `aliased`.
    Format and sentinels: devtools/etdump/etdump_schema_flatcc.fbs and etdump_flatcc.cpp of ExecuTorch 1.5.
    """
    frame = open_frame(data)
    dump = read_at_once(frame, stream) if len(frame.data) >= MANY_BYTES else None
    return dump or _read_one_by_one(frame, stream)


def _read_one_by_one(frame: Frame, stream: Stream) -> ETDump:
    reader = _Reader(frame.data)
    try:
        reader.read_file(frame.root_at)
    except struct.error as error:
        raise malformed(reader.where, reader.at, "an offset or a length leads outside the file") from error
    return ETDump(reader.batch(stream), reader.rejections.counts, reader.rejections.first)


class _Reader:
    """One pass over one file: the columns so far, and where the pass is (`block`, `event`, `at`)."""

    def __init__(self, data: bytes) -> None:
        self.block = self.event = -1
        self.at = 0
        self.rejections = Rejections()
        self._data = data
        self._budget = Budget(len(data))
        self._profile_fields: dict[int, int] = {}
        self._layouts: dict[int, ProfileLayout] = {}

        self._blocks: list[Block] = []
        self._bounds = [0]
        self._block_names: dict[int, str] = {0: ""}
        self._names: list[Identifier] = []
        self._numbers: dict[int | bytes, int] = {}
        self._payloads = {b"": 0}
        self._payloads_at: dict[int, int] = {}
        self._rows = bytearray()

    @property
    def where(self) -> str:
        """The place of the pass in words."""
        if self.block < 0:
            return "the header"
        return f"block {self.block}" if self.event < 0 else f"block {self.block}, event {self.event}"

    def read_file(self, root_at: int) -> None:
        """Read all blocks; raises MalformedETDump, or struct.error where an offset passes the end."""
        self.at = root = root_at + _read_u32(self._data, root_at)[0]
        run_data = self._read_fields(root, ETDUMP)[_RUN_DATA]
        first, count = self._read_vector(root, run_data)
        self._budget.claim_blocks(count)
        for self.block in range(count):
            slot = first + 4 * self.block
            self.event = -1
            self.at = table = slot + _read_u32(self._data, slot)[0]
            name_field, _, _, events_field = self._read_fields(table, RUN_DATA)
            name = self._read_block_name(table, name_field)
            self._blocks.append(Block(BlockKind.from_name(name), name, self.block))
            self._read_events(*self._read_vector(table, events_field))
            self._bounds.append(len(self._rows) // _ROW.itemsize)

    def batch(self, stream: Stream) -> EventBatch:
        """The columns so far."""
        rows = np.frombuffer(self._rows, _ROW)
        return EventBatch(
            streams=(stream,),
            blocks=tuple(self._blocks),
            names=tuple(self._names),
            payloads=tuple(self._payloads),
            bounds=np.array(self._bounds, np.int64),
            kind=np.ascontiguousarray(rows["kind"]),
            instruction=np.ascontiguousarray(rows["instruction"]),
            chain=np.ascontiguousarray(rows["chain"]),
            name=np.ascontiguousarray(rows["name"]),
            ticks=Ticks(np.ascontiguousarray(rows["start"]), np.ascontiguousarray(rows["duration"])),
            clock=np.zeros(len(rows), np.uint8),
            metadata=np.ascontiguousarray(rows["metadata"]),
        )

    def _read_events(self, first: int, count: int) -> None:
        self._budget.claim_events(count)
        data, profile_fields = self._data, self._profile_fields
        for number, offset in enumerate(struct.unpack_from(f"<{count}I", data, first)):
            self.event = number
            self.at = table = first + 4 * number + offset
            vtable = table - _read_i32(data, table)[0]
            field = profile_fields.get(vtable)
            if field is None:
                field = profile_fields[vtable] = read_vtable(data, vtable, len(EVENT))[0]
            if field:
                at = table + field
                self._read_profile(at + _read_u32(data, at)[0])
            else:
                _, allocation, debug = read_vtable(data, vtable, len(EVENT))
                reason = Rejection.ALLOCATION_EVENT if allocation else Rejection.DEBUG_EVENT if debug else Rejection.EMPTY_EVENT
                self.rejections.add(reason, self.block, number)

    def _read_profile(self, table: int) -> None:
        """Read the ProfileEvent at byte `table` as a row."""
        data, claimed = self._data, self._budget.claimed
        vtable = table - _read_i32(data, table)[0]
        layout = self._layouts.get(vtable)
        if layout is None:
            layout = self._layouts[vtable] = read_profile_layout(data, vtable)
        name, chain, instruction, identifier, id_str, metadata, start, end = layout.pick(
            layout.unpack(data, table) + layout.absent
        )
        name_bytes = id_bytes = metadata_bytes = 0  # absent and empty are the same
        if layout.name:
            name += table + layout.name
            name_bytes = _read_u32(data, name)[0]
            if name_bytes and name not in claimed:
                self._budget.claim_bytes(name, name_bytes)
        if layout.id_str:
            id_str += table + layout.id_str
            id_bytes = _read_u32(data, id_str)[0]
            if id_bytes and id_str not in claimed:
                self._budget.claim_bytes(id_str, id_bytes)
        if layout.metadata:
            metadata += table + layout.metadata
            metadata_bytes = _read_u32(data, metadata)[0]
            if metadata_bytes and metadata not in claimed:
                self._budget.claim_bytes(metadata, metadata_bytes)

        if not -1 <= chain <= MAX_CHAIN:
            self.rejections.add(Rejection.CHAIN_OUT_OF_RANGE, self.block, self.event, chain)
            return
        key: int | bytes = identifier
        kind = _DELEGATE
        if identifier == _UNSET_ID:
            if not id_bytes:
                id_str, id_bytes, kind = name, name_bytes, _SCOPE
            if id_bytes > MAX_NAME_BYTES:
                self.rejections.add(Rejection.NAME_TOO_LONG, self.block, self.event, id_bytes)
                return
            key = data[id_str + 4 : id_str + 4 + id_bytes] if id_bytes else b""
        number = self._numbers.get(key, -1)
        if number < 0:
            number = self._add_name(key)
            if number < 0:
                return
        if chain < 0 or instruction < 0:
            chain, instruction = 0, NO_INSTRUCTION
            if kind == _SCOPE:
                kind = _RUNTIME
        elif kind == _SCOPE and key in _CALL_NAMES:
            kind = _CALL
        payload = self._payload_number(metadata, metadata_bytes) if metadata_bytes else 0
        self._rows += _pack_row(start, end - start & _U64, instruction, number, payload, kind, chain)

    def _add_name(self, key: int | bytes) -> int:
        """Number of a name or identifier that is new; negative: the event is rejected."""
        name: Identifier
        if isinstance(key, int):
            name = key
        elif key:
            try:
                name = key.decode()
            except UnicodeDecodeError:
                self.rejections.add(Rejection.NOT_UTF8, self.block, self.event, len(key))
                return -1
        else:
            self.rejections.add(Rejection.UNNAMED, self.block, self.event)
            return -1
        self._names.append(name)
        number = self._numbers[key] = len(self._names) - 1
        return number

    def _payload_number(self, at: int, length: int) -> int:
        """Number of the metadata at byte `at`; it is copied once, however many events share it."""
        number = self._payloads_at.get(at)
        if number is None:
            payload = self._data[at + 4 : at + 4 + length]
            number = self._payloads_at[at] = self._payloads.setdefault(payload, len(self._payloads))
        return number

    def _read_block_name(self, table: int, field: int) -> str:
        if not field:
            return ""
        at = table + field
        at += _read_u32(self._data, at)[0]
        name = self._block_names.get(at)
        if name is None:
            length = _read_u32(self._data, at)[0]
            self._budget.claim_bytes(at, length)
            name = self._block_names[at] = block_name(self._data[at + 4 : at + 4 + length])
        return name

    def _read_fields(self, table: int, fields: tuple[str, ...]) -> tuple[int, ...]:
        """Offsets of the fields of the table at byte `table`; 0: the field is not there."""
        return read_vtable(self._data, table - _read_i32(self._data, table)[0], len(fields))

    def _read_vector(self, table: int, field: int) -> tuple[int, int]:
        """Place of the first entry, and number of entries, of the vector of references that a field leads to."""
        if not field:
            return 0, 0
        at = table + field
        at += _read_u32(self._data, at)[0]
        count = _read_u32(self._data, at)[0]
        if at + 4 + 4 * count > len(self._data):
            raise malformed(self.where, at, f"a vector of {count} entries passes the end of the file")
        return at + 4, count
