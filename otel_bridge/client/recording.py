"""
What goes from the app's threads to the client's: events as they were recorded, cheap to make and worked on later.

Invariants
* A recording belongs to one stream and is complete: its blocks have ended, and nobody adds to it.
* Making one costs the app's thread no encoding; `read_batch` runs in the client's, and what it raises costs itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from otel_bridge.client.stream import EventStream, sound_text
from otel_bridge.model.events import Block, EventBatch, EventKind, Identifier
from otel_bridge.model.stream import Anchor
from otel_bridge.model.ticks import Ticks

Row = tuple[int, int, int, Identifier, int, int, int, bytes]
"""Kind, instruction, chain, name or identifier, start tick, end tick, clock, metadata (b"": none)."""

ROW_BYTES = 250
"""About what a row takes in memory, its tuple and integers included."""

_U64 = 2**64 - 1


class Recording(Protocol):
    """
    Finished blocks of one stream.

    events   how many, as far as is known
    nbytes   about the memory that they take
    anchor   a reading of the host's clock near the end of them; None: there is none
    """

    stream: EventStream
    events: int
    nbytes: int
    anchor: Anchor | None

    def read_batch(self) -> EventBatch:
        """The events as columns."""
        ...


@dataclass(slots=True, eq=False)
class TracedBlock:
    """One block of an `EventTracer`, as rows."""

    stream: EventStream
    block: Block
    rows: list[Row]
    nbytes: int
    anchor: Anchor | None
    events: int = field(init=False)

    def __post_init__(self) -> None:
        self.events = len(self.rows)

    def read_batch(self) -> EventBatch:
        """See `Recording`."""
        return batch_of_blocks((self,))


def batch_of_blocks(traced: Sequence[TracedBlock]) -> EventBatch:
    """The events of blocks of one stream as columns, each distinct name and byte string once."""
    rows = [row for each in traced for row in each.rows]
    kind, instruction, chain, name, start, end, clock, metadata = zip(*rows, strict=True) if rows else ((),) * 8
    names: dict[Identifier, int] = {}
    payloads = {b"": 0}
    return EventBatch(
        streams=(traced[0].stream.model_stream(),),
        blocks=tuple(each.block for each in traced),
        name=np.array([names.setdefault(each, len(names)) for each in name], np.uint32),
        metadata=np.array([payloads.setdefault(each, len(payloads)) for each in metadata], np.uint32),
        names=tuple(sound_text(each) if isinstance(each, str) else each for each in names),
        payloads=tuple(payloads),
        bounds=np.cumsum([0, *(len(each.rows) for each in traced)], dtype=np.int64),
        kind=np.array(kind, np.uint8),
        instruction=np.array(instruction, np.int32),
        chain=np.array(chain, np.uint8),
        ticks=Ticks(
            np.array(start, np.uint64),
            np.array([last - first & _U64 for first, last in zip(start, end, strict=True)], np.uint64),
        ),
        clock=np.array(clock, np.uint8),
    )


RUNTIME, CALL, SCOPE, DELEGATE = (int(kind) for kind in EventKind)
"""The kinds as plain integers: members of an `IntEnum` are slower to store."""
