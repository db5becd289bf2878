"""
Events as columns: the only form they have inside the bridge, from the door to the exporter.

Invariants
* Every column has one entry a row; rows of one block are consecutive, blocks stand in row order.
* Rows stand in the order in which events ended (children before parents), as ExecuTorch writes them.
* No sentinel of ExecuTorch is left: a name is an index into `names`, whose entries are `int` or `str`, never -1 or "".
  Two columns have one word of their own for "none": `instruction` is `NO_INSTRUCTION`, `metadata` is 0.
* `start + duration` (modulo 2^64) is the end; a duration of 2^63 and more means that the event ended before it started.
* Batches concatenate: one pass of the pipeline resolves many requests.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otel_bridge.model.stream import Attributes, Stream
from otel_bridge.model.texts import table_bytes, text_bytes
from otel_bridge.model.ticks import AnyTicks, SentTicks, join_ticks

Identifier = int | str
"""A delegate debug identifier; `1` and `"1"` are different. For other kinds of events: the event's name, a `str`."""

NO_INSTRUCTION = -1
"""In the column `instruction`: the event lies outside any instruction."""


class EventKind(IntEnum):
    """What an event is. The numbers are those of `otel_bridge.v1.EventKind`."""

    RUNTIME = 1
    """Outside any instruction: `Method::execute`, `Program::load_method`, ..."""
    CALL = 2
    """An instruction itself: `OPERATOR_CALL`, `DELEGATE_CALL`, `JF_CALL`, `MOVE_CALL`, `FREE_CALL`."""
    SCOPE = 3
    """A named stretch inside an instruction: `native_call_<op>`, ..."""
    DELEGATE = 4
    """Logged by a delegate under a delegate debug identifier."""


CALL_NAMES = frozenset({"OPERATOR_CALL", "DELEGATE_CALL", "JF_CALL", "MOVE_CALL", "FREE_CALL"})
"""Names of the events that are instructions (runtime/executor/method.cpp, `Method::execute_instruction`)."""


class BlockKind(IntEnum):
    """What a block is. The numbers are those of `otel_bridge.v1.BlockKind`."""

    LOAD = 1
    EXECUTE = 2
    OTHER = 3

    @staticmethod
    def from_name(name: str) -> "BlockKind":
        """The kind that ExecuTorch's block names stand for (runtime/executor/program.cpp, method.cpp)."""
        return {"Default": BlockKind.LOAD, "Execute": BlockKind.EXECUTE}.get(name, BlockKind.OTHER)


@dataclass(frozen=True, slots=True)
class TraceContext:
    """The span of the app that an inference belongs to, by W3C Trace Context: ids as bytes (16 and 8), flags as sent."""

    trace_id: bytes
    span_id: bytes
    flags: int
    state: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """Which part of a split inference a block is; `first_event` counts the events of earlier parts."""

    number: int
    last: bool
    first_event: int


@dataclass(slots=True, unsafe_hash=True)  # frozen, it would take six times as long to make, and a request has many
class Block:
    """
    One event block: a load, an inference, or a named stretch. Never changed once it is made.

    stream      index into `EventBatch.streams`
    position    ordinal of the block in the stream; with the stream it names the trace
    method      as the sender gave it; None: to be found from the events
    error       code of `executorch::runtime::Error` that the inference returned; None: none is known
    """

    kind: BlockKind
    name: str
    position: int
    stream: int = 0
    method: str | None = None
    context: TraceContext | None = None
    error: int | None = None
    attributes: Attributes = ()
    run_index: int | None = None
    part: Part | None = None

    def at(self, position: int, stream: int = 0) -> "Block":
        """The same block at another position of its stream, or in another stream. Ten times as fast as `replace`."""
        return Block(
            self.kind,
            self.name,
            position,
            stream,
            self.method,
            self.context,
            self.error,
            self.attributes,
            self.run_index,
            self.part,
        )


@dataclass(slots=True, eq=False)  # frozen, it would take longer to make than a small request's columns
class EventBatch:
    """
    n events of m blocks. Never changed once it is made.

    bounds       int64[m+1]   rows of block b are bounds[b] to bounds[b+1]
    kind         uint8[n]     `EventKind`
    instruction  int32[n]     instruction id, or `NO_INSTRUCTION`
    chain        uint8[n]     chain index
    name         uint32[n]    index into `names`
    ticks        of n events: when each started, and how long it took
    clock        uint8[n]     index into the clocks of the block's stream
    metadata     uint32[n]    index into `payloads`, whose entry 0 is b"": none
    occurrence   uint32[n]    completions of the instruction before, as the sender counted them; read only in blocks with a
                              `part` (the others are whole, and counted here); None: no block has one
    """

    streams: tuple[Stream, ...]
    blocks: tuple[Block, ...]
    names: tuple[Identifier, ...]
    payloads: tuple[bytes, ...]
    bounds: NDArray[np.int64]
    kind: NDArray[np.uint8]
    instruction: NDArray[np.int32]
    chain: NDArray[np.uint8]
    name: NDArray[np.uint32]
    ticks: AnyTicks
    clock: NDArray[np.uint8]
    metadata: NDArray[np.uint32]
    occurrence: NDArray[np.uint32] | None = None
    _nbytes: int = field(default=0, init=False, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def start(self) -> NDArray[np.uint64]:
        """uint64[n]: ticks."""
        return self.ticks.start

    @property
    def duration(self) -> NDArray[np.uint64]:
        """uint64[n]: ticks, modulo 2^64."""
        return self.ticks.duration

    def columns_at(self, rows: slice | NDArray[Any]) -> dict[str, Any]:
        """All columns of these rows, as `replace` takes them; `bounds` are to be changed with them."""
        columns = {column: getattr(self, column)[rows] for column in _COLUMNS}
        columns["occurrence"] = self.occurrence[rows] if self.occurrence is not None else None
        return columns

    @property
    def nbytes(self) -> int:
        """About the bytes that this batch holds in memory, Python objects included."""
        if not self._nbytes:
            self._nbytes = self._weigh()
        return self._nbytes

    def _weigh(self) -> int:
        a_row = _ROW_BYTES if self.occurrence is None else _ROW_BYTES + 4
        arrays = self.bounds.nbytes + self.ticks.nbytes + len(self) * a_row
        texts = table_bytes(self.names) + sum(map(len, self.payloads))
        texts += sum([text_bytes(stream.resource) for stream in self.streams])
        for block in self.blocks:
            if block.attributes or block.context is not None:
                texts += text_bytes(block.attributes) + len(block.context.state if block.context else "")
        objects = 500 * (len(self.blocks) + len(self.streams)) + 100 * (len(self.names) + len(self.payloads))
        return arrays + texts + objects

    @property
    def block_of(self) -> NDArray[np.int64]:
        """int64[n]: the block of each row."""
        return np.arange(len(self.blocks)).repeat(self.bounds[1:] - self.bounds[:-1])


def concatenate(batches: Sequence[EventBatch]) -> EventBatch:
    """
    One batch of all rows, in order, its ticks decoded.

    Names that occur in several batches are one name in it, so they are looked up once.
    """
    if len(batches) == 1:
        return decoded(batches[0])
    streams: list[Stream] = []
    blocks: list[Block] = []
    names: dict[Identifier, int] = {}
    numbers: dict[tuple[Identifier, ...], NDArray[np.uint32] | None] = {}  # None: as they are
    number_of: dict[int, NDArray[np.uint32] | None] = {}  # by `id`: tables are long, and mostly the same objects
    payloads: list[bytes] = [b""]
    name, metadata = [], []
    for batch in batches:
        if id(batch.names) not in number_of:
            if batch.names not in numbers:  # devices of one build send equal tables
                of_batch = [names.setdefault(each, len(names)) for each in batch.names]
                numbers[batch.names] = None if of_batch == list(range(len(of_batch))) else np.array(of_batch, np.uint32)
            number_of[id(batch.names)] = numbers[batch.names]
        number = number_of[id(batch.names)]
        name.append(batch.name if number is None else number[batch.name])
        metadata.append(_counted_from(len(payloads) - 1, batch))
        first = len(streams)
        blocks += [block.at(block.position, first + block.stream) for block in batch.blocks]
        streams += batch.streams
        payloads += batch.payloads[1:]
    rows = np.array([0, *map(len, batches)], np.int64).cumsum()
    ends = np.concatenate([batch.bounds[1:] for batch in batches])
    ends += np.repeat(rows[:-1], [len(batch.blocks) for batch in batches])
    split = any(batch.occurrence is not None for batch in batches)

    def joined(column: str) -> NDArray[Any]:
        return np.concatenate([getattr(batch, column) for batch in batches])

    return EventBatch(
        streams=tuple(streams),
        blocks=tuple(blocks),
        names=tuple(names),
        payloads=tuple(payloads),
        bounds=np.concatenate((rows[:1], ends)),
        kind=joined("kind"),
        instruction=joined("instruction"),
        chain=joined("chain"),
        name=np.concatenate(name),
        ticks=join_ticks([batch.ticks for batch in batches]),
        clock=joined("clock"),
        metadata=np.concatenate(metadata),
        occurrence=np.concatenate([_counted(batch) for batch in batches]) if split else None,
    )


def decoded(batch: EventBatch) -> EventBatch:
    """The batch with its ticks decoded; the given one stays as it came."""
    return replace(batch, ticks=join_ticks((batch.ticks,))) if isinstance(batch.ticks, SentTicks) else batch


def _counted_from(first: int, batch: EventBatch) -> NDArray[np.uint32]:
    """The column `metadata` where the payloads of a batch stand behind `first` others."""
    if not first or len(batch.payloads) == 1:
        return batch.metadata
    return np.where(batch.metadata > 0, batch.metadata + np.uint32(first), np.uint32(0))


def divide(batch: EventBatch, max_events: int) -> list[EventBatch]:
    """
    The batch in pieces of at most `max_events`, cut between blocks; a block that is larger is a piece of its own.

    Columns of the pieces are views; tables are shared.
    """
    if len(batch) <= max_events:
        return [batch]
    pieces = []
    first = 0
    while first < len(batch.blocks):
        left = max(len(batch) - int(batch.bounds[first]), 1)
        even = -(-left // -(-left // max_events))  # not a last piece of a few events, which costs as much as a large one
        fitting = int(np.searchsorted(batch.bounds, batch.bounds[first] + even, "right")) - 1
        last = max(fitting, first + 1)
        rows = slice(int(batch.bounds[first]), int(batch.bounds[last]))
        bounds = batch.bounds[first : last + 1] - batch.bounds[first]
        pieces.append(replace(batch, blocks=batch.blocks[first:last], bounds=bounds, **batch.columns_at(rows)))
        first = last
    return pieces


_ROW_BYTES = 1 + 4 + 1 + 4 + 1 + 4
"""Of the columns, without `ticks` and `occurrence`."""
_COLUMNS = ("kind", "instruction", "chain", "name", "ticks", "clock", "metadata")


def _counted(batch: EventBatch) -> NDArray[np.uint32]:
    return np.zeros(len(batch), np.uint32) if batch.occurrence is None else batch.occurrence
