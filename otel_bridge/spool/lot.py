"""
The lot: records that wait for their mapping. `Tally` knows how much waits for what, `Lot` holds records in memory.

Invariants
* Bounded by age, and by events and bytes for each thing that is awaited and in total. Of a tenant by bytes, and by the number
  of these things, which its devices choose: no tenant takes another's room for them.
* Records that wait for the same leave in the order in which they came.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from otel_bridge.spool.protocol import Awaited, Record


def _no_bound(_tenant: str) -> float:
    return math.inf


@dataclass(frozen=True, slots=True)
class LotLimits:
    """
    How much may wait, and how long.

    max_builds         things that are awaited, of one tenant
    bytes_per_tenant   tenant -> bytes that may wait of it
    """

    max_age_s: float
    max_bytes: int
    max_events: int
    max_bytes_per_build: int
    max_events_per_build: int
    max_builds: int = 10_000
    bytes_per_tenant: Callable[[str], float] = _no_bound


@dataclass(slots=True)
class _Sum:
    records: int = 0
    events: int = 0
    size_bytes: int = 0


@dataclass(slots=True)
class _Share:
    builds: int = 0
    size_bytes: int = 0


class Tally:
    """How many events and bytes wait, for each thing, of each tenant and in all."""

    def __init__(self, limits: LotLimits) -> None:
        self._limits = limits
        self._sums: dict[Awaited, _Sum] = {}
        self._shares: dict[str, _Share] = {}
        self.events = 0
        self.size_bytes = 0

    def find_bound(self, awaited: Awaited, events: int, size_bytes: int) -> str | None:
        """The bound that one more record would break."""
        held, limits = self._sums.get(awaited, _Sum()), self._limits
        share = self._shares.get(awaited.tenant, _Share())
        for now, more, most, bound in (
            (share.builds, awaited not in self._sums, limits.max_builds, "builds"),
            (held.events, events, limits.max_events_per_build, "events_per_build"),
            (held.size_bytes, size_bytes, limits.max_bytes_per_build, "bytes_per_build"),
            (share.size_bytes, size_bytes, limits.bytes_per_tenant(awaited.tenant), "bytes_per_tenant"),
            (self.events, events, limits.max_events, "events"),
            (self.size_bytes, size_bytes, limits.max_bytes, "bytes"),
        ):
            if now + more > most:
                return bound
        return None

    def add(self, awaited: Awaited, events: int, size_bytes: int, records: int = 1) -> None:
        """Records begin to wait, or, with negative numbers, go."""
        share = self._shares.setdefault(awaited.tenant, _Share())
        share.size_bytes += size_bytes
        if awaited not in self._sums:
            share.builds += 1
            self._sums[awaited] = _Sum()
        held = self._sums[awaited]
        held.records += records
        held.events += events
        held.size_bytes += size_bytes
        self.events += events
        self.size_bytes += size_bytes
        if not held.records:
            del self._sums[awaited]
            share.builds -= 1
        if not share.builds:
            del self._shares[awaited.tenant]

    def awaited(self) -> list[Awaited]:
        """What records wait for."""
        return list(self._sums)

    def events_of(self, awaited: Awaited) -> int:
        """Events that wait for one thing."""
        return self._sums.get(awaited, _Sum()).events


@dataclass(frozen=True, slots=True)
class _Parked:
    record: Record
    size_bytes: int
    until_s: float


class Lot:
    """Parked records by what they wait for. `now_s` arguments are readings of one monotonic clock."""

    def __init__(self, limits: LotLimits) -> None:
        self._max_age_s = limits.max_age_s
        self._queues: dict[Awaited, deque[_Parked]] = {}
        self.tally = Tally(limits)

    def offer(self, awaited: Awaited, record: Record, size_bytes: int, now_s: float) -> str | None:
        """Park a record; None, or the bound that is met."""
        met = self.tally.find_bound(awaited, len(record.batch), size_bytes)
        if met is None:
            self.tally.add(awaited, len(record.batch), size_bytes)
            self._queues.setdefault(awaited, deque()).append(_Parked(record, size_bytes, now_s + self._max_age_s))
        return met

    def take(self, awaited: Awaited) -> list[Record]:
        """All records that wait for one thing, which leave the lot."""
        return list(self._take_until(awaited, math.inf))

    def take_expired(self, now_s: float) -> list[Record]:
        """The records whose time is up, which leave the lot."""
        return [record for awaited in list(self._queues) for record in self._take_until(awaited, now_s)]

    def _take_until(self, awaited: Awaited, now_s: float) -> Iterator[Record]:
        queue = self._queues.get(awaited, deque())
        while queue and queue[0].until_s <= now_s:
            parked = queue.popleft()
            self.tally.add(awaited, -len(parked.record.batch), -parked.size_bytes, -1)
            yield parked.record
        if not queue:
            self._queues.pop(awaited, None)
