"""
The lot: records that wait for their mapping, in memory.

Invariants
* Bounded by age, and by events and bytes for each thing that is awaited and in total, and by the number of these, which devices
  choose.
* Records that wait for the same leave in the order in which they came.
"""

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass

from otel_bridge.spool.protocol import Awaited, Record


@dataclass(frozen=True, slots=True)
class LotLimits:
    """How much may wait, and how long."""

    max_age_s: float
    max_bytes: int
    max_events: int
    max_bytes_per_build: int
    max_events_per_build: int
    max_builds: int = 10_000


@dataclass(frozen=True, slots=True)
class _Parked:
    record: Record
    size_bytes: int
    until_s: float


@dataclass(slots=True)
class _Queue:
    parked: deque[_Parked]
    size_bytes: int = 0
    events: int = 0


class Lot:
    """Parked records by what they wait for. `now_s` arguments are readings of one monotonic clock."""

    def __init__(self, limits: LotLimits) -> None:
        self._limits = limits
        self._queues: OrderedDict[Awaited, _Queue] = OrderedDict()
        self.size_bytes = 0
        self.events = 0

    def offer(self, awaited: Awaited, record: Record, size_bytes: int, now_s: float) -> str | None:
        """Park a record; None, or the bound that is met."""
        events, limits = len(record.batch), self._limits
        queue = self._queues.get(awaited) or _Queue(deque())
        for held, more, most, bound in (
            (len(self._queues), awaited not in self._queues, limits.max_builds, "builds"),
            (queue.events, events, limits.max_events_per_build, "events_per_build"),
            (queue.size_bytes, size_bytes, limits.max_bytes_per_build, "bytes_per_build"),
            (self.events, events, limits.max_events, "events"),
            (self.size_bytes, size_bytes, limits.max_bytes, "bytes"),
        ):
            if held + more > most:
                return bound
        self._queues[awaited] = queue
        queue.parked.append(_Parked(record, size_bytes, now_s + limits.max_age_s))
        self._count(queue, size_bytes, events)
        return None

    def take(self, awaited: Awaited) -> list[Record]:
        """All records that wait for one thing, which leave the lot."""
        queue = self._queues.pop(awaited, None)
        if queue is None:
            return []
        self._count(None, -queue.size_bytes, -queue.events)
        return [parked.record for parked in queue.parked]

    def take_expired(self, now_s: float) -> list[Record]:
        """The records whose time is up, which leave the lot."""
        expired: list[Record] = []
        for each in list(self._queues):
            expired += self._take_expired_of(each, now_s)
        return expired

    def awaited(self) -> list[Awaited]:
        """What records wait for."""
        return list(self._queues)

    def events_of(self, awaited: Awaited) -> int:
        """Events that wait for one thing."""
        queue = self._queues.get(awaited)
        return queue.events if queue is not None else 0

    def _take_expired_of(self, awaited: Awaited, now_s: float) -> Iterator[Record]:
        queue = self._queues[awaited]
        while queue.parked and queue.parked[0].until_s <= now_s:
            parked = queue.parked.popleft()
            self._count(queue, -parked.size_bytes, -len(parked.record.batch))
            yield parked.record
        if not queue.parked:
            del self._queues[awaited]

    def _count(self, queue: _Queue | None, size_bytes: int, events: int) -> None:
        self.size_bytes += size_bytes
        self.events += events
        if queue is not None:
            queue.size_bytes += size_bytes
            queue.events += events
