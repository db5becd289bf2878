"""
The spool on disk: what it has acknowledged is there again after any end of the process.

Invariants
* A batch is acknowledged after the commit that keeps it, for every destination at once.
* Each destination goes its own way from there (outlet.py). A batch that is in memory is there once, whoever waits for it.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from otel_bridge.errors import Unavailable
from otel_bridge.model.destination import DEFAULT
from otel_bridge.model.events import EventBatch
from otel_bridge.spool.arrivals import Arrival
from otel_bridge.spool.commits import Commits
from otel_bridge.spool.encode import encode
from otel_bridge.spool.file import SpoolFile
from otel_bridge.spool.held import Shares, share_of, total
from otel_bridge.spool.lot import LotLimits
from otel_bridge.spool.opening import SYSTEM, Clocks, Opened, Synchronous, open_file, tell_lost
from otel_bridge.spool.outlet import SqliteOutlet
from otel_bridge.spool.protocol import Awaited, Record, Seen, Watch
from otel_bridge.spool.room import Bounds, check_room
from otel_bridge.spool.schema import bit
from otel_bridge.spool.stock import Kept, Stock

_log = logging.getLogger(__name__)

_OFF_LOOP_BYTES = 256 << 10
"""A batch over this is encoded in a thread: below it takes less than a millisecond."""


class SqliteSpool:
    """
    A `Spool` in `directory`, which no other process uses meanwhile.

    bounds         memory is shared out evenly among the destinations: one that is away leaves the others theirs
    lot            what may be parked, for each destination
    destinations   whoever else has events in the file gives them up

    Released records are taken whatever their size. Raises `ConfigError` where the file cannot be used.
    """

    def __init__(
        self,
        directory: Path,
        bounds: Bounds,
        lot: LotLimits,
        watch: Watch,
        *,
        destinations: Sequence[str] = (DEFAULT,),
        synchronous: Synchronous = "FULL",
        clocks: Clocks = SYSTEM,
    ) -> None:
        opened: list[Opened] = []

        def open_it() -> SpoolFile:
            """In the thread of the file, while the constructor waits."""
            opened.append(open_file(directory, destinations, synchronous, clocks))
            return opened[0].file

        commits = Commits(open_it, directory, self._break)
        self._stock = Stock(commits, opened[0].clock, bounds, watch)
        self._outlets = {each.destination: each for each in self._open_outlets(opened[0], lot)}
        self._stock.holders = list(self._outlets.values())
        self._pending = sum(bit(each.number) for each in self._stock.holders)
        self._stock.size_bytes = total(opened[0].waiting).size
        self._seen = opened[0].seen
        self._tell(opened[0])

    @property
    def outlets(self) -> Mapping[str, SqliteOutlet]:
        """The ways out, by the names of their destinations."""
        return self._outlets

    @property
    def is_durable(self) -> bool:
        """It is."""
        return True

    @property
    def size_bytes(self) -> int:
        """Bytes on disk of all records that some destination has neither done nor parked."""
        return self._stock.size_bytes

    async def append(self, batch: EventBatch, seen: Seen | None = None) -> None:
        """Keep a batch; see `Spool.append`."""
        memory_bytes = batch.nbytes
        body = encode(batch) if memory_bytes < _OFF_LOOP_BYTES else await asyncio.to_thread(encode, batch)
        if self._stock.fault is not None:
            raise self._stock.fault
        arrival = Arrival(body, len(batch), seen)
        size = arrival.size
        check_room(self._stock.size_bytes, size, self._stock.bounds.max_bytes, closed=self._stock.closed)
        told = partial(self._note_kept, batch, size, memory_bytes)
        answer: asyncio.Future[int] = self._stock.commits.submit(arrival, size, told=told)
        self._expect(len(batch), size)
        await answer

    def seen(self) -> Sequence[Seen]:
        """The requests that it knew when it was opened; see `Spool.seen`."""
        return self._seen

    def forget_seen(self, age_ns: int) -> None:
        """Forget requests that were seen longer ago."""
        self._stock.commits.owe(lambda file: file.forget_seen(age_ns))

    async def release(self, awaited: Awaited, build: str) -> Mapping[str, int]:
        """Put records back in line, bound to a build; see `Spool.release`."""
        if not self.parked_events_of(awaited):
            return {}
        return await self._move(lambda file: {awaited: file.release(awaited, build)})

    async def expire(self) -> Mapping[str, int]:
        """Put records back in line without a mapping; see `Spool.expire`."""
        return await self._move(SpoolFile.expire) if self.awaited() else {}

    def awaited(self) -> Sequence[Awaited]:
        """What parked records wait for."""
        return list(dict.fromkeys(awaited for outlet in self._outlets.values() for awaited in outlet.lot.awaited()))

    def parked_events_of(self, awaited: Awaited) -> int:
        """Events that wait for one thing; see `Spool.parked_events_of`."""
        return max(outlet.lot.events_of(awaited) for outlet in self._outlets.values())

    def close(self) -> Mapping[str, int]:
        """Take no more batches; parked ones stay. See `Spool.close`."""
        self._stock.closed = True
        self._wake()
        return {}

    async def finish(self) -> Mapping[str, int]:
        """Write what is owed and close the file: nothing is lost. See `Spool.finish`."""
        self._stock.commits.end()
        await asyncio.to_thread(self._stock.commits.join)
        return {}

    def _open_outlets(self, opened: Opened, lot: LotLimits) -> Iterator[SqliteOutlet]:
        for account in opened.accounts:
            parked = {awaited: share_of(shares, account.number) for awaited, shares in opened.parked.items()}
            yield SqliteOutlet(
                self._stock,
                account,
                memory_bytes=self._stock.bounds.memory_bytes // len(opened.accounts),
                lot=lot,
                waiting=share_of(opened.waiting, account.number),
                parked={awaited: held for awaited, held in parked.items() if held.records},
            )

    def _tell(self, opened: Opened) -> None:
        """Say what was found, what should have been, and what nobody wants any more."""
        watch = self._stock.watch
        for name, outlet in self._outlets.items():
            if here := outlet.events + outlet.parked_events:
                _log.info("the spool holds %d events of before for %s, %d of them parked", here, name, outlet.parked_events)
                watch.recovered(name, here)
        tell_lost(opened, watch)

    def _expect(self, events: int, size: int) -> None:
        self._stock.size_bytes += size
        for outlet in self._outlets.values():
            outlet.expect(events)

    def _note_kept(self, batch: EventBatch, size: int, memory_bytes: int, number: int, error: BaseException | None) -> None:
        if error is not None:
            self._expect(-len(batch), -size)
            return
        record = Record(number, batch)
        kept = Kept(size, len(batch), self._stock.clock.now_ns(), self._pending)
        for outlet in self._outlets.values():
            outlet.put(record, kept, memory_bytes)

    async def _move(self, move: Callable[[SpoolFile], dict[Awaited, Shares]]) -> Mapping[str, int]:
        """Move records from the lot to the end of the line; how many events they hold, by destination."""
        moved = await self._stock.commits.submit(move, told=self._note_moved)
        events = {
            name: sum(share_of(shares, outlet.number).events for shares in moved.values())
            for name, outlet in self._outlets.items()
        }
        return {name: some for name, some in events.items() if some}

    def _note_moved(self, moved: dict[Awaited, Shares], error: BaseException | None) -> None:
        if error is not None:
            return
        for awaited, shares in moved.items():
            self._stock.size_bytes += total(shares).size
            for outlet in self._outlets.values():
                held = share_of(shares, outlet.number)
                if held.records:
                    outlet.return_parked(awaited, held)

    def _break(self, fault: Unavailable) -> None:
        self._stock.fault = fault
        self._wake()

    def _wake(self) -> None:
        for outlet in self._outlets.values():
            outlet.wake()
