"""
One destination's position in a spool on disk.

Invariants
* Records are in memory too while there is room, and then are not read from disk (line.py).
* `done` and `park` are owed (writer.py): a kill may undo the last of them, and what the books say of them with them; then the
  same records are read again, and give the same spans.
* A record whose body is damaged is set apart, counted, and costs nobody else.
* The counts of events change together: whoever looks, from any thread, finds all of a change or nothing of it.
"""

import asyncio
import logging
import threading
from collections.abc import Mapping, Sequence

from otel_bridge.spool.books import Account
from otel_bridge.spool.held import Held
from otel_bridge.spool.line import Line
from otel_bridge.spool.lot import LotLimits, Tally
from otel_bridge.spool.protocol import CORRUPT, TOO_OLD, Awaited, Ended, Record
from otel_bridge.spool.rows import Row, record_of
from otel_bridge.spool.stock import Kept, Stock

_log = logging.getLogger(__name__)

_LOAD_BYTES = 1 << 20
"""Read from disk at a time: some ten passes of the pipeline."""


class SqliteOutlet:
    """
    An `Outlet` of a `SqliteSpool`.

    account         what the books said when it was opened
    waiting, parked what was here then
    """

    def __init__(
        self,
        stock: Stock,
        account: Account,
        *,
        memory_bytes: int,
        lot: LotLimits,
        waiting: Held,
        parked: Mapping[Awaited, Held],
    ) -> None:
        self.number = account.number
        self.destination = account.name
        self.lot = Tally(lot)
        self._max_wait_ns = int(lot.max_age_s * 1e9)
        self._stock = stock
        self._line = Line(memory_bytes, waiting)
        self._kept: dict[int, Kept] = {}
        self._events = waiting.events
        self._accepted = account.accepted
        self._ended = Ended(account.emitted, dict(account.dropped))
        self._counting = threading.Lock()
        self._changed = asyncio.Event()
        self._loading = asyncio.Lock()
        for awaited, held in parked.items():
            self.lot.add(awaited, held.events, held.size, held.records)

    @property
    def is_durable(self) -> bool:
        """It is."""
        return True

    @property
    def events(self) -> int:
        """Events of all records that are neither done nor parked."""
        return self._events

    @property
    def parked_events(self) -> int:
        """Events of parked records."""
        return self.lot.events

    @property
    def parked_bytes(self) -> int:
        """Bytes on disk of parked records."""
        return self.lot.size_bytes

    @property
    def unaccounted_events(self) -> int:
        """See `Outlet.unaccounted_events`."""
        with self._counting:
            return self._accepted - self._ended.events - self._events - self.lot.events

    def has(self, number: int) -> bool:
        """Whether a record is in memory or on its way, or behind what has been read."""
        return number in self._kept or number > self._line.cursor

    def expect(self, events: int) -> None:
        """Events are being kept; a negative number: they are not, after all."""
        with self._counting:
            self._accepted += events
            self._events += events

    def put(self, record: Record, kept: Kept, memory_bytes: int) -> None:
        """A record that was expected is on disk; it takes so many bytes in memory."""
        if self._line.put(record, kept.size, memory_bytes):
            self._kept[record.number] = kept
        self._changed.set()

    def return_parked(self, awaited: Awaited, held: Held) -> None:
        """Records that waited for something are at the end of those on disk."""
        with self._counting:
            self.lot.add(awaited, -held.events, -held.size, -held.records)
            self._events += held.events
        self._line.put_on_disk(held)
        self._changed.set()

    def wake(self) -> None:
        """Whether it is closed, or broken, is to be looked at."""
        self._changed.set()

    async def read(self, max_events: int, linger_s: float = 0.0) -> Sequence[Record]:
        """Wait for records; see `Outlet.read`. Raises `Unavailable` where the file is damaged."""
        while True:
            await self._wait(max_events, linger_s)
            async with self._loading:
                while self._line.must_load(max_events):
                    await self._load()
                taken = self._fresh(self._line.take(max_events))
            if taken or (self._stock.closed and self._line.is_empty):
                return taken

    async def done(self, records: Sequence[Record], ended: Ended) -> None:
        """Forget records; see `Outlet.done`."""
        if records:
            self._end(records, ended)

    async def park(self, record: Record, awaited: Awaited) -> str | None:
        """Move a record to the lot; see `Outlet.park`. Where the spool is closed too: it waits for the next start."""
        kept = self._kept[record.number]
        met = self.lot.find_bound(awaited, kept.events, kept.size)
        if met is None:
            with self._counting:
                self._leave(record.number)
                self.lot.add(awaited, kept.events, kept.size)
            until_ns = self._stock.clock.now_ns() + self._max_wait_ns
            self._stock.commits.owe(lambda file: file.park(self.number, record.number, awaited, record.build, until_ns))
        return met

    async def _wait(self, max_events: int, linger_s: float) -> None:
        """Until there is something to read, or nothing will come any more."""
        may_linger = linger_s > 0
        while self._stock.fault is None and not self._stock.closed:
            if self._line.is_empty:
                self._changed.clear()
                await self._changed.wait()
            elif may_linger and self._line.events < max_events:
                may_linger = False
                await asyncio.sleep(linger_s)
            else:
                break
        if self._stock.fault is not None:
            raise self._stock.fault

    async def _load(self) -> None:
        """Read the next records from disk into memory."""
        after, last = self._line.cursor, self._line.on_disk.last
        rows = await self._stock.commits.submit(lambda file: file.rows(self.number, after, last, _LOAD_BYTES), reads=True)
        records = []
        for row, record in zip(rows, await asyncio.to_thread(lambda: list(map(record_of, rows))), strict=True):
            self._kept[row.number] = Kept(row.size, row.events, row.kept_ns, row.pending)
            if isinstance(record, str):
                self._set_apart(row, record)
            else:
                records.append(record)
        read = Held(
            len(rows), sum(row.events for row in rows), sum(row.size for row in rows), rows[-1].number if rows else last
        )
        missing = self._line.load(records, read)
        if missing != Held():
            self._miss(missing.events)
            await self._stock.recount()

    def _set_apart(self, row: Row, reason: str) -> None:
        with self._counting:
            events = self._leave(row.number).events
            self._ended.add(Ended(dropped={CORRUPT: events}))
        self._stock.commits.owe(lambda file: file.quarantine(self.number, row.number, events, reason))
        _log.error("record %d of the spool cannot be read (%s); it is in the table quarantine", row.number, reason)
        self._stock.watch.dropped(self.destination, events, CORRUPT)

    def _fresh(self, records: Sequence[Record]) -> list[Record]:
        """The records whose time is not over; the others are given up."""
        oldest_ns = self._stock.clock.now_ns() - int(self._stock.bounds.max_age_s * 1e9)
        late = [record for record in records if self._kept[record.number].kept_ns < oldest_ns]
        if late:
            events = sum(self._kept[record.number].events for record in late)
            _log.warning("%d events for %s waited for longer than spool.max_age_s, and are dropped", events, self.destination)
            self._stock.watch.dropped(self.destination, events, TOO_OLD)
            self._end(late, Ended(dropped={TOO_OLD: events}))
        return [record for record in records if record.number in self._kept]

    def _end(self, records: Sequence[Record], ended: Ended) -> None:
        numbers = [record.number for record in records]
        with self._counting:
            for number in numbers:
                self._leave(number)
            self._ended.add(ended)
        self._stock.commits.owe(lambda file: file.end(self.number, numbers, ended))

    def _leave(self, number: int) -> Kept:
        kept = self._kept.pop(number)
        self._events -= kept.events
        self._stock.leave(number, kept, self)
        return kept

    def _miss(self, events: int) -> None:
        """Events that should have been on disk were not; a negative number: there were more, by a count that was damaged."""
        with self._counting:
            self._events -= events
            if events < 0:
                self._accepted -= events
            else:
                self._ended.add(Ended(dropped={CORRUPT: events}))
        if events < 0:
            self._stock.watch.recovered(self.destination, -events)
        else:
            _log.error(
                "the spool's file was damaged: %d acknowledged events, or fewer, are lost to %s", events, self.destination
            )
            self._stock.watch.dropped(self.destination, events, CORRUPT)
        self._stock.commits.owe(lambda file: file.miss(self.number, events))
