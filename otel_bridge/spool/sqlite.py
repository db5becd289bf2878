"""
The spool on disk: what it has acknowledged is there again after any end of the process.

Invariants
* A batch is acknowledged after the commit that keeps it. `done` and `park` are owed (writer.py): a kill may undo the last of
  them, and then the same records are read again, and give the same spans.
* Records are in memory too while `Bounds.memory_bytes` allows, and then are not read from disk (line.py).
* A record whose body is damaged is set apart, counted, and costs nobody else.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from otel_bridge.errors import Unavailable
from otel_bridge.model.events import EventBatch
from otel_bridge.spool.age import AgeClock
from otel_bridge.spool.commits import Commits
from otel_bridge.spool.encode import encode
from otel_bridge.spool.file import Held, SpoolFile
from otel_bridge.spool.line import Line
from otel_bridge.spool.lot import LotLimits, Tally
from otel_bridge.spool.opening import SYSTEM, Clocks, Synchronous, open_file
from otel_bridge.spool.protocol import Awaited, Record, Seen, Watch
from otel_bridge.spool.room import Bounds, check_room
from otel_bridge.spool.rows import Row, record_of
from otel_bridge.spool.schema import ROW_BYTES

_log = logging.getLogger(__name__)

_OFF_LOOP_BYTES = 256 << 10
"""A batch over this is encoded in a thread: below it takes less than a millisecond."""

_LOAD_BYTES = 1 << 20
"""Read from disk at a time: some ten passes of the pipeline."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """What is known of a record that is in memory or on its way."""

    size: int
    events: int
    kept_ns: int


class SqliteSpool:
    """
    A `Spool` in `directory`, which no other process uses meanwhile.

    Released records are taken whatever their size. Raises `ConfigError` where the file cannot be used.
    """

    def __init__(
        self,
        directory: Path,
        bounds: Bounds,
        lot: LotLimits,
        watch: Watch,
        *,
        synchronous: Synchronous = "FULL",
        clocks: Clocks = SYSTEM,
    ) -> None:
        self._bounds = bounds
        self._max_wait_ns = int(lot.max_age_s * 1e9)
        self._watch = watch
        self._lot = Tally(lot)
        self._kept: dict[int, _Kept] = {}
        self._bytes = self._events = 0
        self._closed = False
        self._fault: Unavailable | None = None
        self._changed = asyncio.Event()
        self._loading = asyncio.Lock()
        self._line = Line(bounds.memory_bytes, Held())
        self._clock = AgeClock(0, 0)
        self._commits = Commits(lambda: self._open(directory, synchronous, clocks), directory, self._break)

    @property
    def is_durable(self) -> bool:
        """It is."""
        return True

    @property
    def size_bytes(self) -> int:
        """Bytes on disk of all records that are neither done nor parked."""
        return self._bytes

    @property
    def events(self) -> int:
        """Events of all records that are neither done nor parked."""
        return self._events

    @property
    def parked_bytes(self) -> int:
        """Bytes on disk of parked records."""
        return self._lot.size_bytes

    @property
    def parked_events(self) -> int:
        """Events of parked records."""
        return self._lot.events

    async def append(self, batch: EventBatch, seen: Seen | None = None) -> None:
        """Keep a batch; see `Spool.append`."""
        memory_bytes = batch.nbytes
        body = encode(batch) if memory_bytes < _OFF_LOOP_BYTES else await asyncio.to_thread(encode, batch)
        size, events = len(body) + ROW_BYTES, len(batch)
        if self._fault is not None:
            raise self._fault
        check_room(self._bytes, size, self._bounds.max_bytes, closed=self._closed)
        answer = self._commits.submit(lambda file: file.append(body, events), size)
        self._count(events, size)
        try:
            number = await asyncio.shield(answer)
        except asyncio.CancelledError:
            answer.add_done_callback(lambda answer: self._take_back(answer, events, size))
            raise
        except BaseException:
            self._count(-events, -size)
            raise
        if self._line.put(Record(number, batch), size, memory_bytes):
            self._kept[number] = _Kept(size, events, self._clock.now_ns())
        self._changed.set()

    def seen(self) -> Sequence[Seen]:
        """None; see `Spool.seen`."""
        return ()

    def forget_seen(self, age_ns: int) -> None:
        """There is none; see `Spool.forget_seen`."""

    async def read(self, max_events: int, linger_s: float = 0.0) -> Sequence[Record]:
        """Wait for records; see `Spool.read`. Raises `Unavailable` where the file is damaged."""
        while True:
            await self._wait(max_events, linger_s)
            async with self._loading:
                while self._line.must_load(max_events):
                    await self._load()
                taken = self._fresh(self._line.take(max_events))
            if taken or (self._closed and self._line.is_empty):
                return taken

    async def done(self, records: Sequence[Record]) -> None:
        """Forget records; see `Spool.done`."""
        if records:
            self._forget(records)

    async def park(self, record: Record, awaited: Awaited) -> str | None:
        """Move a record to the lot; see `Spool.park`. Where the spool is closed too: it waits for the next start."""
        kept = self._kept[record.number]
        met = self._lot.find_bound(awaited, kept.events, kept.size)
        if met is None:
            del self._kept[record.number]
            self._count(-kept.events, -kept.size)
            self._lot.add(awaited, kept.events, kept.size)
            until_ns = self._clock.now_ns() + self._max_wait_ns
            self._commits.owe(lambda file: file.park(record.number, awaited, record.build, until_ns))
        return met

    async def release(self, awaited: Awaited, build: str) -> int:
        """Put records back in line, bound to a build; see `Spool.release`."""
        if not self._lot.events_of(awaited):
            return 0
        return await self._move(lambda file: {awaited: file.release(awaited, build)})

    async def expire(self) -> int:
        """Put records back in line without a mapping; see `Spool.expire`."""
        return await self._move(SpoolFile.expire) if self._lot.events else 0

    def awaited(self) -> Sequence[Awaited]:
        """What parked records wait for."""
        return self._lot.awaited()

    def parked_events_of(self, awaited: Awaited) -> int:
        """Events that wait for one thing."""
        return self._lot.events_of(awaited)

    def close(self) -> int:
        """Take no more batches; parked ones stay. See `Spool.close`."""
        self._closed = True
        self._changed.set()
        return 0

    async def finish(self) -> int:
        """Write what is owed and close the file: nothing is lost. See `Spool.finish`."""
        self._commits.end()
        await asyncio.to_thread(self._commits.join)
        return 0

    def _open(self, directory: Path, synchronous: Synchronous, clocks: Clocks) -> SpoolFile:
        """In the thread of the file, while the constructor waits."""
        opened = open_file(directory, synchronous, clocks)
        self._clock = opened.clock
        waiting = opened.file.waiting()
        self._line = Line(self._bounds.memory_bytes, waiting)
        self._count(waiting.events, waiting.size)
        for awaited, held in opened.file.parked().items():
            self._lot.add(awaited, held.events, held.size, held.records)
        found = self._events + self._lot.events
        if opened.expected:
            _log.info("the spool holds %d events of before, %d of them parked", found, self._lot.events)
            self._watch.recovered(opened.expected)
        if opened.expected > found:
            self._lose(opened.expected - found)
        return opened.file

    def _take_back(self, answer: "asyncio.Future[int]", events: int, size: int) -> None:
        """Nobody was told that the batch is kept: its sender will send it again."""
        self._count(-events, -size)
        if answer.exception() is None:
            number = answer.result()
            self._commits.owe(lambda file: file.remove([number]))

    async def _wait(self, max_events: int, linger_s: float) -> None:
        """Until there is something to read, or nothing will come any more."""
        may_linger = linger_s > 0
        while self._fault is None and not self._closed:
            if self._line.is_empty:
                self._changed.clear()
                await self._changed.wait()
            elif may_linger and self._line.events < max_events:
                may_linger = False
                await asyncio.sleep(linger_s)
            else:
                break
        if self._fault is not None:
            raise self._fault

    async def _load(self) -> None:
        """Read the next records from disk into memory."""
        after, last = self._line.cursor, self._line.on_disk.last
        rows = await self._commits.submit(lambda file: file.rows(after, last, _LOAD_BYTES), reads=True)
        records = []
        for row, record in zip(rows, await asyncio.to_thread(lambda: list(map(record_of, rows))), strict=True):
            self._kept[row.number] = _Kept(row.size, row.events, row.kept_ns)
            if isinstance(record, str):
                self._set_apart(row, record)
            else:
                records.append(record)
        read = Held(
            len(rows), sum(row.events for row in rows), sum(row.size for row in rows), rows[-1].number if rows else last
        )
        missing = self._line.load(records, read)
        self._count(-missing.events, -missing.size)
        if missing.events > 0:
            self._lose(missing.events)

    def _set_apart(self, row: Row, reason: str) -> None:
        kept = self._kept.pop(row.number)
        self._count(-kept.events, -kept.size)
        self._commits.owe(lambda file: file.quarantine(row.number, reason))
        _log.error("record %d of the spool cannot be read (%s); it is in the table quarantine", row.number, reason)
        self._watch.dropped(row.events, "corrupt")

    def _fresh(self, records: Sequence[Record]) -> list[Record]:
        """The records whose time is not over; the others are given up."""
        oldest_ns = self._clock.now_ns() - int(self._bounds.max_age_s * 1e9)
        late = [record for record in records if self._kept[record.number].kept_ns < oldest_ns]
        if late:
            events = sum(self._kept[record.number].events for record in late)
            _log.warning("%d events waited for longer than spool.max_age_s, and are dropped", events)
            self._watch.dropped(events, "spool_age")
            self._forget(late)
        return [record for record in records if record.number in self._kept]

    def _forget(self, records: Sequence[Record]) -> None:
        numbers = [record.number for record in records]
        for number in numbers:
            kept = self._kept.pop(number)
            self._count(-kept.events, -kept.size)
        self._commits.owe(lambda file: file.remove(numbers))

    async def _move(self, move: Callable[[SpoolFile], dict[Awaited, Held]]) -> int:
        """Move records from the lot to the end of the line; how many events they hold."""
        answer = self._commits.submit(move)
        answer.add_done_callback(self._note_moved)  # not below: who waits may be cancelled, and the records have moved
        return sum(held.events for held in (await asyncio.shield(answer)).values())

    def _note_moved(self, answer: "asyncio.Future[dict[Awaited, Held]]") -> None:
        if answer.exception() is not None:
            return
        for awaited, held in answer.result().items():
            self._lot.add(awaited, -held.events, -held.size, -held.records)
            self._count(held.events, held.size)
            self._line.put_on_disk(held)
        self._changed.set()

    def _lose(self, events: int) -> None:
        _log.error("the spool's file was damaged: %d acknowledged events, or fewer, are lost", events)
        self._watch.dropped(events, "corrupt")

    def _break(self, fault: Unavailable) -> None:
        self._fault = fault
        self._changed.set()

    def _count(self, events: int, size: int) -> None:
        self._events += events
        self._bytes += size
