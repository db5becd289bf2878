"""
Where admitted batches wait: for their turn at each destination, and for the mapping that they need.

Invariants
* `append` returns only when the batch is kept, for every destination; what it refuses it has not kept.
* Each destination has an `Outlet`, a position of its own: what one has not got, waits for, or is done with says nothing of the
  others. The spool's bytes count until all are done.
* A record is read by one reader of an outlet, and is gone from there only when `done` says how it ended: nothing is forgotten
  on the way. At any moment, for each destination: accepted = emitted + dropped + in line or on its way + parked.
* Records come out in the order in which they went in; a released one comes out after those that wait already.
* Both the queue and the lot are bounded. When the queue is full it refuses; when the lot is, the record goes on without its
  mapping. Neither drops.
* Closing wakes all readers: they get what is left, then nothing.
* What a durable spool holds is there again when it is opened again, whatever ended the process: records that were read and not
  done come first, and are read again. One that is not durable lets go of parked records when it is closed, since they could
  not wait any longer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, Self

from otel_bridge.model.events import EventBatch

CORRUPT = "corrupt"
"""Why events are dropped that the file has lost, or that cannot be read."""

REMOVED = "destination_removed"
"""Why events are dropped whose destination the settings do not name any more."""

TOO_OLD = "spool_age"
"""Why events are dropped whose turn came too late."""


@dataclass(frozen=True, slots=True)
class Record:
    """
    A batch in the spool.

    number       unique within it
    has_waited   it goes on, with a mapping or without
    build        the build that its streams were bound to after admission; None: what admission fixed stands
    """

    number: int
    batch: EventBatch
    has_waited: bool = False
    build: str | None = None

    def bind(self, build: str) -> Self:
        """The record with the build fixed that its streams are resolved with from now on."""
        streams = tuple(replace(stream, build=build) for stream in self.batch.streams)
        return replace(self, batch=replace(self.batch, streams=streams), build=build)


@dataclass(frozen=True, order=True, slots=True)
class Awaited:
    """What an event without a mapping waits for: the mapping of a build, or, where `build` is "", that an alias names one."""

    build: str = ""
    name: str = ""
    version: str = ""
    tenant: str = ""

    def __str__(self) -> str:
        """As devices and people write it."""
        return self.build or f"{self.name}@{self.version}"


@dataclass(slots=True)
class Ended:
    """How events ended: emitted, or dropped for a reason."""

    emitted: int = 0
    dropped: dict[str, int] = field(default_factory=dict)

    @property
    def events(self) -> int:
        """All of them."""
        return self.emitted + sum(self.dropped.values())

    def add(self, other: "Ended") -> None:
        """And these."""
        self.emitted += other.emitted
        for reason, events in other.dropped.items():
            self.dropped[reason] = self.dropped.get(reason, 0) + events


@dataclass(frozen=True, slots=True)
class Seen:
    """
    A request that was acknowledged.

    key, digest   name it: whose it is and which, and what it said
    answer        what its sender was told
    age_ns        time since then by the spool's clock, which goes on over restarts; 0 in what is appended
    """

    key: bytes
    digest: bytes
    answer: bytes
    age_ns: int = 0


class Watch(Protocol):
    """Told what a spool found, and what it could not keep."""

    def recovered(self, destination: str, events: int) -> None:
        """So many acknowledged events of an earlier process are this one's to account for."""

    def dropped(self, destination: str, events: int, reason: str) -> None:
        """Acknowledged events were given up."""


class Outlet(Protocol):
    """The spool as one destination has it: a queue of records, with a lot beside it."""

    @property
    def destination(self) -> str:
        """Its name."""

    @property
    def is_durable(self) -> bool:
        """Whether what is not done is there again at the next start."""

    @property
    def events(self) -> int:
        """Events of all records that are neither done nor parked."""

    @property
    def parked_events(self) -> int:
        """Events of parked records."""

    @property
    def parked_bytes(self) -> int:
        """Bytes of parked records, as the spool keeps them."""

    @property
    def unaccounted_events(self) -> int:
        """Events that were accepted, and are neither here nor said to have ended; negative: that ended twice. Must be 0."""

    async def read(self, max_events: int, linger_s: float = 0.0) -> Sequence[Record]:
        """
        Wait for records and take the oldest: as many whole ones as hold `max_events` events, and at least one.

        Where fewer events are there, wait up to `linger_s` for more: a pass and a request cost the same for few as for many.

        Empty only when the spool is closed and nothing is left.
        """

    async def done(self, records: Sequence[Record], ended: Ended) -> None:
        """Forget records whose events have all ended, as `ended` says."""

    async def park(self, record: Record, awaited: Awaited) -> str | None:
        """
        Move a record that was read to the lot, until what it waits for is there.

        None: it is parked, and no longer the reader's. Else the bound that is met, or "closed": it is still the reader's.
        """


class Spool(Protocol):
    """A bounded queue of event batches. One event loop uses it. Counts are in events, by the names of destinations."""

    @property
    def outlets(self) -> Mapping[str, Outlet]:
        """The ways out, by the names of their destinations."""

    @property
    def is_durable(self) -> bool:
        """Whether what is not done is there again at the next start."""

    @property
    def size_bytes(self) -> int:
        """Bytes of all records that some destination has neither done nor parked, as the spool keeps them."""

    async def append(self, batch: EventBatch, seen: Seen | None = None) -> None:
        """
        Keep a batch, and with it, or not at all, that its request was seen.

        Raises `SpoolFull` when there is no room, `Draining` once the spool is closed. Where the caller is cancelled, the batch
        may be kept all the same: then, as ever, for every destination.
        """

    def seen(self) -> Sequence[Seen]:
        """The requests of before that it knew when it was opened; none where it is not durable."""

    def forget_seen(self, age_ns: int) -> None:
        """Forget requests that were seen longer ago."""

    async def release(self, awaited: Awaited, build: str) -> Mapping[str, int]:
        """Put the records that wait for this back in line, bound to `build`; how many events."""

    async def expire(self) -> Mapping[str, int]:
        """Put records back in line that have waited long enough, without a mapping; how many events."""

    def awaited(self) -> Sequence[Awaited]:
        """What parked records wait for."""

    def parked_events_of(self, awaited: Awaited) -> int:
        """Events that wait for one thing, at the destination where most do."""

    def close(self) -> Mapping[str, int]:
        """Take no more batches; returns the events of parked records that are let go."""

    async def finish(self) -> Mapping[str, int]:
        """Let go of everything, after `close` and the last reader; returns the events that are lost with it."""
