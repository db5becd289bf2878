"""The spool in memory: fast, bounded, and gone with the process. Also the model that other spools are tested against."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from otel_bridge.model.events import EventBatch
from otel_bridge.spool.lot import Lot, LotLimits
from otel_bridge.spool.protocol import Awaited, Record, Seen
from otel_bridge.spool.room import check_room


class MemorySpool:
    """
    A `Spool` of at most `max_bytes`, counted until `done`; parked records count against `lot` instead. One event loop uses it.

    A batch that is larger than `max_bytes` is taken when nothing else is there: the request limit bounds it. Released records
    are taken whatever their size: they were acknowledged long ago.
    """

    def __init__(self, max_bytes: int, lot: LotLimits, now_s: Callable[[], float] = time.monotonic) -> None:
        self._max_bytes = max_bytes
        self._lot = Lot(lot)
        self._now_s = now_s
        self._waiting: deque[Record] = deque()
        self._waiting_events = 0
        self._sizes: dict[int, tuple[int, int]] = {}
        self._next = 0
        self._bytes = 0
        self._events = 0
        self._closed = False
        self._changed = asyncio.Event()

    @property
    def is_durable(self) -> bool:
        """It is not."""
        return False

    @property
    def size_bytes(self) -> int:
        """Bytes of all records that are neither done nor parked."""
        return self._bytes

    @property
    def events(self) -> int:
        """Events of all records that are neither done nor parked."""
        return self._events

    @property
    def parked_bytes(self) -> int:
        """Bytes of parked records."""
        return self._lot.tally.size_bytes

    @property
    def parked_events(self) -> int:
        """Events of parked records."""
        return self._lot.tally.events

    async def append(self, batch: EventBatch, seen: Seen | None = None) -> None:
        """Keep a batch; see `Spool.append`."""
        size = batch.nbytes
        check_room(self._bytes, size, self._max_bytes, closed=self._closed)
        self._put(Record(self._next, batch), size)
        self._next += 1

    def seen(self) -> Sequence[Seen]:
        """None; see `Spool.seen`."""
        return ()

    def forget_seen(self, age_ns: int) -> None:
        """There is none; see `Spool.forget_seen`."""

    async def read(self, max_events: int, linger_s: float = 0.0) -> Sequence[Record]:
        """Wait for records; see `Spool.read`."""
        lingered = False
        while not self._closed and (not self._waiting or (self._waiting_events < max_events and linger_s and not lingered)):
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

    async def done(self, records: Sequence[Record]) -> None:
        """Forget records; see `Spool.done`."""
        for record in records:
            size, events = self._sizes.pop(record.number)
            self._bytes -= size
            self._events -= events

    async def park(self, record: Record, awaited: Awaited) -> str | None:
        """Move a record to the lot; see `Spool.park`."""
        if self._closed:
            return "closed"
        met = self._lot.offer(awaited, record, self._sizes[record.number][0], self._now_s())
        if met is None:
            await self.done([record])
        return met

    async def release(self, awaited: Awaited, build: str) -> int:
        """Put records back in line, bound to a build; see `Spool.release`."""
        return self._return([record.bind(build) for record in self._lot.take(awaited)])

    async def expire(self) -> int:
        """Put records back in line without a mapping; see `Spool.expire`."""
        return self._return(self._lot.take_expired(self._now_s()))

    def awaited(self) -> Sequence[Awaited]:
        """What parked records wait for."""
        return self._lot.tally.awaited()

    def parked_events_of(self, awaited: Awaited) -> int:
        """Events that wait for one thing."""
        return self._lot.tally.events_of(awaited)

    def close(self) -> int:
        """Take no more batches, and let parked ones go; see `Spool.close`."""
        self._closed = True
        released = sum(self._return(self._lot.take(each)) for each in self._lot.tally.awaited())
        self._changed.set()
        return released

    async def finish(self) -> int:
        """What was not done is lost; see `Spool.finish`."""
        return self._events

    def _return(self, records: Sequence[Record]) -> int:
        for record in records:
            self._put(replace(record, has_waited=True), record.batch.nbytes)
        return sum(len(record.batch) for record in records)

    def _put(self, record: Record, size: int) -> None:
        events = len(record.batch)
        self._sizes[record.number] = (size, events)
        self._bytes += size
        self._events += events
        self._waiting_events += events
        self._waiting.append(record)
        self._changed.set()
