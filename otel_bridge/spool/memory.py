"""
The spool in memory: fast, bounded, and gone with the process. Also the model that other spools are tested against.

Invariant: the counts of events change together: whoever looks, from any thread, finds all of a change or nothing of it.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from otel_bridge.model.destination import DEFAULT
from otel_bridge.model.events import EventBatch
from otel_bridge.spool.lot import Lot, LotLimits
from otel_bridge.spool.protocol import Awaited, Ended, Record, Seen
from otel_bridge.spool.room import check_room


@dataclass(slots=True)
class _Stock:
    """Shared by the outlets: how many of them have a record, and the bytes of those that any has."""

    holders: dict[int, int] = field(default_factory=dict)
    size_bytes: int = 0
    closed: bool = False

    def enter(self, record: Record) -> None:
        holders = self.holders.get(record.number, 0)
        if not holders:
            self.size_bytes += record.batch.nbytes
        self.holders[record.number] = holders + 1

    def leave(self, record: Record) -> None:
        holders = self.holders.pop(record.number) - 1
        if holders:
            self.holders[record.number] = holders
        else:
            self.size_bytes -= record.batch.nbytes


class MemoryOutlet:
    """An `Outlet` of a `MemorySpool`."""

    def __init__(self, destination: str, stock: _Stock, lot: LotLimits, now_s: Callable[[], float]) -> None:
        self.destination = destination
        self.lot = Lot(lot)
        self._stock = stock
        self._now_s = now_s
        self._waiting: deque[Record] = deque()
        self._waiting_events = 0
        self._events = 0
        self._accepted = 0
        self._ended = Ended()
        self._counting = threading.Lock()
        self._changed = asyncio.Event()

    @property
    def is_durable(self) -> bool:
        """It is not."""
        return False

    @property
    def events(self) -> int:
        """Events of all records that are neither done nor parked."""
        return self._events

    @property
    def parked_events(self) -> int:
        """Events of parked records."""
        return self.lot.tally.events

    @property
    def parked_bytes(self) -> int:
        """Bytes of parked records."""
        return self.lot.tally.size_bytes

    @property
    def unaccounted_events(self) -> int:
        """See `Outlet.unaccounted_events`."""
        with self._counting:
            return self._accepted - self._ended.events - self._events - self.parked_events

    async def read(self, max_events: int, linger_s: float = 0.0) -> Sequence[Record]:
        """Wait for records; see `Outlet.read`."""
        lingered = False
        while not self._stock.closed and (
            not self._waiting or (self._waiting_events < max_events and linger_s and not lingered)
        ):
            if self._waiting:
                lingered = True
                await asyncio.sleep(linger_s)
            else:
                self._changed.clear()
                await self._changed.wait()
        taken: list[Record] = []
        events = 0
        while self._waiting and (not taken or events + len(self._waiting[0].batch) <= max_events):
            taken.append(self._waiting.popleft())
            events += len(taken[-1].batch)
        self._waiting_events -= events
        return taken

    async def done(self, records: Sequence[Record], ended: Ended) -> None:
        """Forget records; see `Outlet.done`."""
        with self._counting:
            for record in records:
                self._leave(record)
            self._ended.add(ended)

    async def park(self, record: Record, awaited: Awaited) -> str | None:
        """Move a record to the lot; see `Outlet.park`."""
        if self._stock.closed:
            return "closed"
        with self._counting:
            met = self.lot.offer(awaited, record, record.batch.nbytes, self._now_s())
            if met is None:
                self._leave(record)
        return met

    def put(self, record: Record) -> None:
        """A new record, at the end of the line."""
        with self._counting:
            self._accepted += len(record.batch)
            self._enter(record)

    def return_parked(self, take: Callable[[Lot], Sequence[Record]]) -> int:
        """Records that are taken from the lot go to the end of the line; how many events."""
        with self._counting:
            records = take(self.lot)
            for record in records:
                self._enter(replace(record, has_waited=True))
        return sum(len(record.batch) for record in records)

    def wake(self) -> None:
        """Whether it is closed is to be looked at."""
        self._changed.set()

    def _enter(self, record: Record) -> None:
        self._stock.enter(record)
        self._events += len(record.batch)
        self._waiting_events += len(record.batch)
        self._waiting.append(record)
        self._changed.set()

    def _leave(self, record: Record) -> None:
        self._stock.leave(record)
        self._events -= len(record.batch)


class MemorySpool:
    """
    A `Spool` of at most `max_bytes`, counted until all are done; parked records count against `lot` instead. One event loop
    uses it.

    A batch that is larger than `max_bytes` is taken when nothing else is there: the request limit bounds it. Released records
    are taken whatever their size: they were acknowledged long ago.
    """

    def __init__(
        self,
        max_bytes: int,
        lot: LotLimits,
        now_s: Callable[[], float] = time.monotonic,
        destinations: Sequence[str] = (DEFAULT,),
    ) -> None:
        self._max_bytes = max_bytes
        self._stock = _Stock()
        self._outlets = {name: MemoryOutlet(name, self._stock, lot, now_s) for name in destinations}
        self._next = 0
        self._now_s = now_s

    @property
    def outlets(self) -> Mapping[str, MemoryOutlet]:
        """The ways out, by the names of their destinations."""
        return self._outlets

    @property
    def is_durable(self) -> bool:
        """It is not."""
        return False

    @property
    def size_bytes(self) -> int:
        """Bytes of all records that some destination has neither done nor parked."""
        return self._stock.size_bytes

    async def append(self, batch: EventBatch, seen: Seen | None = None) -> None:  # noqa: ARG002 - as the protocol says
        """Keep a batch; see `Spool.append`."""
        check_room(self._stock.size_bytes, batch.nbytes, self._max_bytes, closed=self._stock.closed)
        record = Record(self._next, batch)
        self._next += 1
        for outlet in self._outlets.values():
            outlet.put(record)

    def seen(self) -> Sequence[Seen]:
        """None: it knows of nothing that was before."""
        return ()

    def forget_seen(self, age_ns: int) -> None:
        """Nothing is remembered."""

    async def release(self, awaited: Awaited, build: str) -> Mapping[str, int]:
        """Put records back in line, bound to a build; see `Spool.release`."""
        return self._return(lambda lot: [record.bind(build) for record in lot.take(awaited)])

    async def expire(self) -> Mapping[str, int]:
        """Put records back in line without a mapping; see `Spool.expire`."""
        return self._return(lambda lot: lot.take_expired(self._now_s()))

    def awaited(self) -> Sequence[Awaited]:
        """What parked records wait for."""
        return list(dict.fromkeys(awaited for outlet in self._outlets.values() for awaited in outlet.lot.tally.awaited()))

    def parked_events_of(self, awaited: Awaited) -> int:
        """Events that wait for one thing; see `Spool.parked_events_of`."""
        return max(outlet.lot.tally.events_of(awaited) for outlet in self._outlets.values())

    def close(self) -> Mapping[str, int]:
        """Take no more batches, and let parked ones go; see `Spool.close`."""
        self._stock.closed = True
        released = self._return(lambda lot: [record for awaited in lot.tally.awaited() for record in lot.take(awaited)])
        for outlet in self._outlets.values():
            outlet.wake()
        return released

    async def finish(self) -> Mapping[str, int]:
        """What was not done is lost; see `Spool.finish`."""
        return {name: outlet.events for name, outlet in self._outlets.items() if outlet.events}

    def _return(self, take: Callable[[Lot], Sequence[Record]]) -> Mapping[str, int]:
        returned = {name: outlet.return_parked(take) for name, outlet in self._outlets.items()}
        return {name: events for name, events in returned.items() if events}
