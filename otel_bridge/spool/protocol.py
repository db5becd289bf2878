"""
Where admitted batches wait: for the pipeline, and for the mapping that they need.

Invariants
* `append` returns only when the batch is kept; what it refuses it has not kept.
* A record is read by one reader, and is gone only when `done` says how it ended: nothing is forgotten on the way.
* Records come out in the order in which they went in; a released one comes out after those that wait already.
* Both the queue and the lot are bounded. When the queue is full it refuses; when the lot is, the record goes on without its
  mapping. Neither drops.
* Closing wakes all readers: they get what is left, the parked records among it, then nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from otel_bridge.model.events import EventBatch


@dataclass(frozen=True, slots=True)
class Record:
    """A batch in the spool; `number` is unique within it. `has_waited`: it goes on, with a mapping or without."""

    number: int
    batch: EventBatch
    has_waited: bool = False


@dataclass(frozen=True, order=True, slots=True)
class Awaited:
    """What an event without a mapping waits for: the mapping of a build, or, where `build` is "", that an alias names one."""

    build: str = ""
    name: str = ""
    version: str = ""

    def __str__(self) -> str:
        """As devices and people write it."""
        return self.build or f"{self.name}@{self.version}"


class Spool(Protocol):
    """A bounded queue of event batches, with a lot beside it."""

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

    async def park(self, record: Record, awaited: Awaited) -> str | None:
        """
        Move a record that was read to the lot, until what it waits for is there.

        None: it is parked, and no longer the reader's. Else the bound that is met, or "closed": it is still the reader's.
        """

    async def release(self, awaited: Awaited, build: str) -> int:
        """Put the records that wait for this back in line, bound to `build`; how many events they hold."""

    async def expire(self) -> int:
        """Put records back in line that have waited long enough, without a mapping; how many events they hold."""

    def awaited(self) -> Sequence[Awaited]:
        """What parked records wait for."""

    def close(self) -> int:
        """Take no more batches, and let parked ones go; returns the events of these."""
