"""A block while its events come in, and the bounds of ExecuTorch's types (runtime/core/event_tracer.h)."""

import operator

from otel_bridge.client.entry import WrongValue
from otel_bridge.client.recording import ROW_BYTES, Row, TracedBlock
from otel_bridge.client.stream import EventStream, attributes_of, sound_text
from otel_bridge.model.events import NO_INSTRUCTION, Block, BlockKind, TraceContext
from otel_bridge.model.stream import Anchor

_NO_CHAIN = -1
_MAX_CHAIN = 255
_MAX_INSTRUCTION = 2**31 - 1
_MAX_ERROR = 2**32 - 1


class OpenBlock:
    """
    One block of one thread.

    chain_id, debug_handle   the instruction that runs now; chain -1: none
    row_chain, row_instruction   the same, as rows have it
    max_rows                 rows that there is room for
    overflow                 events beyond them
    metadata_bytes           of all rows
    """

    __slots__ = (
        "attributes",
        "chain_id",
        "context",
        "debug_handle",
        "error",
        "max_rows",
        "metadata_bytes",
        "method",
        "name",
        "overflow",
        "row_chain",
        "row_instruction",
        "rows",
        "run_index",
    )

    def __init__(self, name: str, max_rows: int) -> None:
        self.name = name
        self.max_rows = max_rows
        self.method: str | None = None
        self.run_index: int | None = None
        self.context: TraceContext | None = None
        self.attributes: dict[str, object] = {}
        self.error: int | None = None
        self.rows: list[Row] = []
        self.chain_id, self.debug_handle = _NO_CHAIN, 0
        self.row_instruction, self.row_chain = NO_INSTRUCTION, 0
        self.overflow = self.metadata_bytes = 0

    def add(self, row: Row) -> None:
        """One more event, if there is room for it."""
        if len(self.rows) < self.max_rows:
            self.rows.append(row)
        else:
            self.overflow += 1

    def keep(self, metadata: bytes | bytearray | memoryview) -> bytes:
        """A copy of the metadata. Raises WrongValue for what is no bytes."""
        if not isinstance(metadata, (bytes, bytearray, memoryview)):
            raise WrongValue(f"metadata is of type {type(metadata).__name__}; it must be bytes")
        self.metadata_bytes += len(metadata)
        return bytes(metadata)  # of bytes itself no copy is made

    def enter(self, chain_id: int, debug_handle: int) -> None:
        """Another instruction runs. Raises WrongValue."""
        self.row_instruction, self.row_chain = instruction_of(chain_id, debug_handle)
        self.chain_id, self.debug_handle = chain_id, debug_handle

    def finish(self, stream: EventStream, anchor: Anchor) -> TracedBlock:
        """The block as a recording of `stream`."""
        block = Block(
            kind=BlockKind.from_name(self.name),
            name=sound_text(self.name),
            position=stream.take_position(),
            method=sound_text(self.method) if self.method is not None else None,
            context=self.context,
            error=self.error,
            attributes=attributes_of(self.attributes),
            run_index=self.run_index,
        )
        nbytes = ROW_BYTES * (1 + len(self.rows)) + self.metadata_bytes
        return TracedBlock(stream, block, self.rows, nbytes, anchor)


def instruction_of(chain_id: int, debug_handle: int) -> tuple[int, int]:
    """Instruction and chain as rows have them. Raises WrongValue."""
    if chain_id == _NO_CHAIN:
        return NO_INSTRUCTION, 0
    if not 0 <= chain_id <= _MAX_CHAIN or not 0 <= debug_handle <= _MAX_INSTRUCTION:
        raise WrongValue(
            f"chain {chain_id}, instruction {debug_handle}: a chain is -1 (none) to {_MAX_CHAIN}, an instruction 0 to 2^31 - 1"
        )
    return operator.index(debug_handle), operator.index(chain_id)


def error_code(code: int) -> int:
    """A code of `executorch::runtime::Error`. Raises WrongValue."""
    if not 0 <= code <= _MAX_ERROR:
        raise WrongValue(f"the error code is {code}; executorch::runtime::Error has 32 bits")
    return operator.index(code)
