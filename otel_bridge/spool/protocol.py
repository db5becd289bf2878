"""
Where admitted batches wait for the pipeline.

Invariants
* `append` returns only when the batch is kept; what it refuses it has not kept.
* A record is read by one reader, and is gone only when `done` says how it ended: nothing is forgotten on the way.
* Records come out in the order in which they went in.
* The spool is bounded; when full it refuses, it never drops.
* Closing wakes all readers: they get what is left, then nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from otel_bridge.model.events import EventBatch


@dataclass(frozen=True, slots=True)
class Record:
    """A batch in the spool; `number` is unique within it."""

    number: int
    batch: EventBatch


class Spool(Protocol):
    """A bounded queue of event batches."""

    async def append(self, batch: EventBatch) -> None:
        """Keep a batch. Raises `SpoolFull` when there is no room, `Draining` once the spool is closed."""

    async def read(self, max_events: int, linger_s: float = 0.0) -> Sequence[Record]:
        """
        Wait for records and take the oldest: as many whole ones as hold `max_events` events, and at least one.

        Where fewer events are there, wait up to `linger_s` for more: a pass and a request cost the same for few as for many.

        Empty only when the spool is closed and nothing is left.
        """

    async def done(self, records: Sequence[Record]) -> None:
        """Forget records whose events have all ended."""

    def close(self) -> None:
        """Take no more batches."""
