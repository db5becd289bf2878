"""
The obvious reader of ETDumps, on the `flatbuffers` package: the oracle of the fast one, in tests and in the benchmark.

Invariants
* Every table is an object, every field is read by its slot, every event is an object: nothing is compiled or packed.
* It shares with the fast reader what a file may be and claim (`limits`) and the words for rejected events (`result`). How
  tables are read, what an event is and how the tables of names and payloads come about is written here a second time.
* It is as safe: `flatbuffers` verifies nothing in Python, so each position is checked here; what is shared is copied once.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from flatbuffers import number_types
from flatbuffers.table import Table

from otel_bridge.etdump.layout import ETDUMP, EVENT, PROFILE_EVENT, RUN_DATA
from otel_bridge.etdump.limits import MAX_CHAIN, MAX_NAME_BYTES, Budget, block_name, malformed, open_frame
from otel_bridge.etdump.result import ETDump, Rejection, Rejections
from otel_bridge.model.events import CALL_NAMES, NO_INSTRUCTION, Block, BlockKind, EventBatch, EventKind, Identifier
from otel_bridge.model.stream import Stream
from otel_bridge.model.ticks import Ticks

_I32, _U32, _U64 = number_types.Int32Flags, number_types.UOffsetTFlags, number_types.Uint64Flags


def read_reference(data: bytes, stream: Stream) -> ETDump:
    """Read an ETDump as `read.read` does: an equal result, and the same errors (but for two niceties, see there)."""
    frame = open_frame(data)
    source = _Source(frame.data)
    root = _Node(source, frame.root_at + source.get(_U32, frame.root_at), ETDUMP)
    rejections = Rejections()
    blocks: list[Block] = []
    rows: list[list[_Row]] = []
    for block, run in enumerate(root.nodes("run_data", RUN_DATA, source.budget.claim_blocks)):
        name = block_name(run.content("name"))
        blocks.append(Block(BlockKind.from_name(name), name, position=block))
        rows.append([])
        for number, event in enumerate(run.nodes("events", EVENT, source.budget.claim_events)):
            outcome = _read_event(event)
            if isinstance(outcome, _Row):
                rows[-1].append(outcome)
            else:
                reason, found = outcome
                rejections.add(reason, block, number, found)
    return ETDump(_columns(stream, blocks, rows), rejections.counts, rejections.first)


class _Source:
    """The bytes of a file, read within bounds and budget."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.budget = Budget(len(data))
        self._contents: dict[int, bytes] = {}

    def get(self, flags: Any, at: int) -> int:
        """The number at byte `at`."""
        try:
            value: int = Table(self.data, 0).Get(flags, at)
        except (TypeError, struct.error) as error:  # a negative position, one past the end
            raise malformed("a number", at, "it stands outside the file") from error
        return value

    def content(self, at: int) -> bytes:
        """The string or byte vector at byte `at`."""
        if at not in self._contents:
            length = self.get(_U32, at)
            self.budget.claim_bytes(at, length)
            self._contents[at] = self.data[at + 4 : at + 4 + length]
        return self._contents[at]


class _Node:
    """A table of the file at byte `at`; `fields` are the names of its slots."""

    def __init__(self, source: _Source, at: int, fields: tuple[str, ...]) -> None:
        self._source = source
        self._at = at
        self._fields = fields

    def number(self, field: str, flags: Any, default: int) -> int:
        """A scalar."""
        at = self._find(field)
        return default if at is None else self._source.get(flags, at)

    def content(self, field: str) -> bytes:
        """A string or a byte vector; b"" where the field is not there."""
        at = self._follow(field)
        return b"" if at is None else self._source.content(at)

    def node(self, field: str, fields: tuple[str, ...]) -> "_Node | None":
        """A table inside this one."""
        at = self._follow(field)
        return None if at is None else _Node(self._source, at, fields)

    def nodes(self, field: str, fields: tuple[str, ...], claim: Callable[[int], None]) -> list["_Node"]:
        """A vector of tables, whose number is claimed from the budget first."""
        at = self._follow(field)
        if at is None:
            return []
        count = self._source.get(_U32, at)
        if at + 4 + 4 * count > len(self._source.data):
            raise malformed(f"the vector {field}", at, f"its {count} entries pass the end of the file")
        claim(count)
        slots = range(at + 4, at + 4 + 4 * count, 4)
        return [_Node(self._source, slot + self._source.get(_U32, slot), fields) for slot in slots]

    def has(self, field: str) -> bool:
        """Whether the field is there."""
        return self._find(field) is not None

    def _find(self, field: str) -> int | None:
        try:
            offset: int = Table(self._source.data, self._at).Offset(4 + 2 * self._fields.index(field))
        except (TypeError, struct.error) as error:  # a negative position, one past the end
            raise malformed("a table", self._at, "it or its vtable stands outside the file") from error
        return self._at + offset if offset else None

    def _follow(self, field: str) -> int | None:
        at = self._find(field)
        return None if at is None else at + self._source.get(_U32, at)


@dataclass(frozen=True, slots=True)
class _Row:
    kind: EventKind
    instruction: int
    chain: int
    name: Identifier
    start: int
    duration: int
    metadata: bytes


def _read_event(event: _Node) -> _Row | tuple[Rejection, int]:
    """An event as a row, or why it is none and the number that tells (bytes, or chain index)."""
    profile = event.node("profile_event", PROFILE_EVENT)
    if profile is None:
        if event.has("allocation_event"):
            return Rejection.ALLOCATION_EVENT, 0
        return Rejection.DEBUG_EVENT if event.has("debug_event") else Rejection.EMPTY_EVENT, 0
    chain = profile.number("chain_index", _I32, 0)
    instruction = profile.number("instruction_id", _I32, -1)
    id_int = profile.number("delegate_debug_id_int", _I32, -1)
    start = profile.number("start_time", _U64, 0)
    end = profile.number("end_time", _U64, 0)
    name = profile.content("name")
    id_str = profile.content("delegate_debug_id_str")
    metadata = profile.content("delegate_debug_metadata")

    if not -1 <= chain <= MAX_CHAIN:
        return Rejection.CHAIN_OUT_OF_RANGE, chain
    identifier = id_int if id_int != -1 else _decode(id_str or name)
    if isinstance(identifier, tuple):
        return identifier
    inside = chain != -1 and instruction >= 0
    if id_int != -1 or id_str:
        kind = EventKind.DELEGATE
    elif not inside:
        kind = EventKind.RUNTIME
    else:
        kind = EventKind.CALL if identifier in CALL_NAMES else EventKind.SCOPE
    return _Row(
        kind=kind,
        instruction=instruction if inside else NO_INSTRUCTION,
        chain=chain if inside else 0,
        name=identifier,
        start=start,
        duration=(end - start) % 2**64,
        metadata=metadata,
    )


def _decode(text: bytes) -> str | tuple[Rejection, int]:
    if not text:
        return Rejection.UNNAMED, 0
    if len(text) > MAX_NAME_BYTES:
        return Rejection.NAME_TOO_LONG, len(text)
    try:
        return text.decode()
    except UnicodeDecodeError:
        return Rejection.NOT_UTF8, len(text)


def _columns(stream: Stream, blocks: list[Block], rows_of: list[list[_Row]]) -> EventBatch:
    rows = [row for block in rows_of for row in block]
    names = {name: number for number, name in enumerate(dict.fromkeys(row.name for row in rows))}
    payloads = {payload: number for number, payload in enumerate(dict.fromkeys([b"", *(row.metadata for row in rows)]))}
    return EventBatch(
        streams=(stream,),
        blocks=tuple(blocks),
        names=tuple(names),
        payloads=tuple(payloads),
        bounds=np.cumsum([0, *map(len, rows_of)], dtype=np.int64),
        kind=np.array([row.kind for row in rows], np.uint8),
        instruction=np.array([row.instruction for row in rows], np.int32),
        chain=np.array([row.chain for row in rows], np.uint8),
        name=np.array([names[row.name] for row in rows], np.uint32),
        ticks=Ticks(np.array([row.start for row in rows], np.uint64), np.array([row.duration for row in rows], np.uint64)),
        clock=np.zeros(len(rows), np.uint8),
        metadata=np.array([payloads[row.metadata] for row in rows], np.uint32),
    )
