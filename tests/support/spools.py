"""
Spools for tests, and what every spool must do: `LAWS`, one function a law, on empty spools of its own.

    Yard made by the test -> await law(yard)
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol

import pytest
from support.batches import equal_batches
from support.scenes import STREAM, batch_of, execute, runtime

from otel_bridge.errors import Draining, SpoolFull
from otel_bridge.model.events import EventBatch
from otel_bridge.spool.lot import LotLimits
from otel_bridge.spool.memory import MemorySpool
from otel_bridge.spool.opening import Clocks
from otel_bridge.spool.protocol import Awaited, Record, Spool
from otel_bridge.spool.room import Bounds
from otel_bridge.spool.sqlite import SqliteSpool

ROOMY = LotLimits(max_age_s=60.0, max_bytes=10**9, max_events=10**6, max_bytes_per_build=10**9, max_events_per_build=10**6)
NOTHING = LotLimits(1.0, 0, 0, 0, 0)
LIMITS = LotLimits(60.0, 10**6, 100, 10**6, 60, max_builds=3)
DAY_S = 86_400.0
BUILD = Awaited("b")


def spool_of(max_bytes: int) -> MemorySpool:
    """An empty spool with room for parked records."""
    return MemorySpool(max_bytes, ROOMY)


def batch(events: int, position: int = 0) -> EventBatch:
    """A batch of so many events."""
    return batch_of((execute(position), [runtime("e", n, n + 1) for n in range(events)]))


def positions(records: Sequence[Record]) -> list[int]:
    """Which batches these are."""
    return [block.position for record in records for block in record.batch.blocks]


class Watched:
    """A watch that remembers."""

    def __init__(self) -> None:
        """Nothing has happened."""
        self.found = 0
        self.drops: Counter[str] = Counter()

    def recovered(self, events: int) -> None:
        """Events of an earlier process."""
        self.found += events

    def dropped(self, events: int, reason: str) -> None:
        """Events were given up."""
        self.drops[reason] += events


class Make(Protocol):
    """Makes a spool; `now_s` is its clock."""

    def __call__(self, folder: Path, max_bytes: int, lot: LotLimits, now_s: Callable[[], float]) -> Spool:
        """An empty spool in an empty folder."""


def make_memory(folder: Path, max_bytes: int, lot: LotLimits, now_s: Callable[[], float]) -> Spool:  # noqa: ARG001 - as the protocol says
    """The spool in memory."""
    return MemorySpool(max_bytes, lot, now_s)


def make_sqlite(folder: Path, max_bytes: int, lot: LotLimits, now_s: Callable[[], float]) -> SqliteSpool:
    """The spool on disk, all of it in memory too."""
    clocks = Clocks(monotonic_ns=lambda: int(now_s() * 1e9))
    return SqliteSpool(folder, Bounds(max_bytes, 10**9, DAY_S), lot, Watched(), clocks=clocks)


def make_spilling(folder: Path, max_bytes: int, lot: LotLimits, now_s: Callable[[], float]) -> SqliteSpool:
    """The spool on disk, without any memory."""
    clocks = Clocks(monotonic_ns=lambda: int(now_s() * 1e9))
    return SqliteSpool(folder, Bounds(max_bytes, 0, DAY_S), lot, Watched(), clocks=clocks)


MAKERS: tuple[Make, ...] = (make_memory, make_sqlite, make_spilling)
"""Of every implementation."""


class Ground:
    """Where a law makes its spools, with a clock that it moves."""

    def __init__(self, make: Make, folder: Path) -> None:
        """Nothing is there."""
        self._make = make
        self._folder = folder
        self._made: list[Spool] = []
        self.time_s = 1000.0

    async def spool(self, max_bytes: int = 10**6, lot: LotLimits = LIMITS) -> Spool:
        """An empty spool, made off the loop since it may open files."""
        folder = self._folder / str(len(self._made))
        made = await asyncio.to_thread(self._make, folder, max_bytes, lot, lambda: self.time_s)
        self._made.append(made)
        return made

    async def leave(self) -> None:
        """Let all spools go."""
        for spool in self._made:
            spool.close()
            await spool.finish()


async def check_spool(law: "Law", make: Make, folder: Path) -> None:
    """Whether a law holds for an implementation."""
    ground = Ground(make, folder)
    try:
        await law(ground)
    finally:
        await ground.leave()


Law = Callable[[Ground], Awaitable[None]]


async def gives_whole_records_in_order(ground: Ground) -> None:
    """A reader gets as many whole records as it asked events for, at least one, and each is the batch that went in."""
    spool = await ground.spool()
    batches = [batch(events, position) for position, events in enumerate((3, 4, 5, 100))]
    for each in batches:
        await spool.append(each)
    hauls = [await spool.read(8) for _ in range(3)]
    assert [positions(haul) for haul in hauls] == [[0, 1], [2], [3]]
    read = [record.batch for haul in hauls for record in haul]
    assert all(equal_batches(a, b) for a, b in zip(read, batches, strict=True))


async def wakes_a_reader_for_each_record(ground: Ground) -> None:
    """Several wait; each record goes to one of them."""
    spool = await ground.spool()
    readers = [asyncio.create_task(spool.read(1)) for _ in range(3)]
    await asyncio.sleep(0)
    for position in range(3):
        await spool.append(batch(1, position))
    assert sorted(positions([record for haul in await asyncio.gather(*readers) for record in haul])) == [0, 1, 2]


async def keeps_what_many_append_at_once(ground: Ground) -> None:
    """In the order in which they asked."""
    spool = await ground.spool()
    await asyncio.gather(*(spool.append(batch(1, position)) for position in range(50)))
    assert positions(await spool.read(1000)) == list(range(50))


async def refuses_when_full(ground: Ground) -> None:
    """It keeps nothing of what it refused. Room counts until `done`, not until `read`: what is on its way is the spool's."""
    scale = await ground.spool()
    await scale.append(batch(10))
    spool = await ground.spool(max_bytes=2 * scale.size_bytes)
    await spool.append(batch(10, 0))
    await spool.append(batch(10, 1))
    with pytest.raises(SpoolFull) as refused:
        await spool.append(batch(10, 2))
    assert refused.value.retry_after_s
    records = await spool.read(10)
    with pytest.raises(SpoolFull):
        await spool.append(batch(10, 3))
    await spool.done(records)
    await spool.append(batch(10, 4))
    assert (20, 2 * scale.size_bytes) == (spool.events, spool.size_bytes)
    assert [positions(await spool.read(10)) for _ in range(2)] == [[1], [4]]


async def takes_a_large_batch_alone(ground: Ground) -> None:
    """Else its sender would try for ever; the request limit bounds it."""
    spool = await ground.spool(max_bytes=100)
    await spool.append(batch(500))
    with pytest.raises(SpoolFull):
        await spool.append(batch(1))


async def keeps_a_batch_of_many_bytes(ground: Ground) -> None:
    """Also one that is written off the loop."""
    spool = await ground.spool(max_bytes=10**8)
    large = batch(20_000)
    await spool.append(large)
    (record,) = await spool.read(1)
    assert equal_batches(record.batch, large)


async def lingers_where_there_is_little(ground: Ground) -> None:
    """What comes within the time shares the haul; a full haul does not wait."""
    spool = await ground.spool()
    await spool.append(batch(1, 0))
    reading = asyncio.create_task(spool.read(10, 0.3))
    await asyncio.sleep(0.01)
    await spool.append(batch(2, 1))
    assert positions(await reading) == [0, 1]
    await spool.append(batch(10, 2))
    assert positions(await asyncio.wait_for(spool.read(10, 3600), 10)) == [2]


async def ends_when_closed(ground: Ground) -> None:
    """It takes nothing more; readers that wait are woken, and after the last record they get nothing."""
    spool = await ground.spool()
    waiting = asyncio.create_task(spool.read(1))
    await asyncio.sleep(0)
    await spool.append(batch(1, 0))
    await spool.append(batch(2, 1))
    spool.close()
    with pytest.raises(Draining):
        await spool.append(batch(3))
    assert [positions(each) for each in (await waiting, await spool.read(9), await spool.read(9))] == [[0], [1], []]


async def wakes_all_readers_when_closed(ground: Ground) -> None:
    """Nobody waits for what cannot come."""
    spool = await ground.spool()
    readers = [asyncio.create_task(spool.read(1)) for _ in range(3)]
    await asyncio.sleep(0)
    spool.close()
    assert [list(haul) for haul in await asyncio.gather(*readers)] == [[], [], []]


async def releases_what_was_parked(ground: Ground) -> None:
    """Behind what waits already, in the order of before, bound to the build, and marked as having waited; once."""
    spool = await ground.spool()
    for position in range(4):
        await spool.append(batch(5, position))
    records = await spool.read(20)
    assert [await spool.park(record, BUILD) for record in records[:2]] == [None, None]
    assert await spool.park(records[2], Awaited("other")) is None
    await spool.done(records[3:])
    assert (spool.events, spool.parked_events, spool.parked_events_of(BUILD)) == (0, 15, 10)
    await spool.append(batch(5, 9))
    assert await spool.release(BUILD, "bound") == 10
    assert await spool.release(BUILD, "bound") == 0
    assert (spool.events, spool.parked_events, list(spool.awaited())) == (15, 5, [Awaited("other")])
    going = await spool.read(20)
    assert positions(going) == [9, 0, 1]
    assert [record.has_waited for record in going] == [False, True, True]
    assert [record.batch.streams[0].build for record in going] == [STREAM.build, "bound", "bound"]
    await spool.done(going)
    assert (spool.events, spool.size_bytes) == (0, 0)


async def keeps_a_binding_while_parked(ground: Ground) -> None:
    """A record that was bound before it was parked is so when its time is up."""
    spool = await ground.spool()
    await spool.append(batch(1))
    (record,) = await spool.read(1)
    assert await spool.park(record.bind("bound"), BUILD) is None
    ground.time_s += 61
    assert await spool.expire() == 1
    (record,) = await spool.read(1)
    assert (record.batch.streams[0].build, record.build) == ("bound", "bound")


async def expires_what_has_waited_long_enough(ground: Ground) -> None:
    """Each record for itself, unbound."""
    spool = await ground.spool()
    for position in range(2):
        await spool.append(batch(1, position))
        (record,) = await spool.read(1)
        await spool.park(record, BUILD)
        ground.time_s += 40
    assert [await spool.expire(), await spool.expire()] == [1, 0]
    (record,) = await spool.read(9)
    assert (positions([record]), record.has_waited, record.batch.streams[0].build) == ([0], True, STREAM.build)
    assert spool.parked_events_of(BUILD) == 1


async def bounds_what_is_parked(ground: Ground) -> None:
    """At a bound the record stays the reader's; what leaves makes room."""
    spool = await ground.spool(lot=LotLimits(60.0, 10**6, 30, 10**6, 20, max_builds=2))
    for position in range(6):
        await spool.append(batch(10, position))
    records = await spool.read(60)
    a, b, c = Awaited("a"), Awaited(name="b", version="1"), Awaited("c")
    met = [await spool.park(record, awaited) for record, awaited in zip(records, (a, a, a, b, c, b), strict=True)]
    assert met == [None, None, "events_per_build", None, "builds", "events"]
    assert (spool.events, spool.parked_events) == (30, 30)
    await spool.release(a, "x")
    assert await spool.park(records[2], c) is None


async def appends_nothing_for_one_who_left(ground: Ground) -> None:
    """A caller that is cancelled was told nothing: its batch is not kept, and the others' are."""
    spool = await ground.spool()
    calls = [asyncio.create_task(spool.append(batch(1, position))) for position in range(8)]
    await asyncio.sleep(0)
    left = [call for call in calls[::2] if call.cancel()]
    await asyncio.gather(*calls, return_exceptions=True)
    await spool.append(batch(1, 99))
    kept = [position for position, call in enumerate(calls) if not call.cancelled()]
    assert positions(await spool.read(100)) == [*kept, 99]
    assert spool.events == len(kept) + 1 == 9 - len(left)


LAWS: tuple[Law, ...] = (
    gives_whole_records_in_order,
    wakes_a_reader_for_each_record,
    keeps_what_many_append_at_once,
    refuses_when_full,
    takes_a_large_batch_alone,
    keeps_a_batch_of_many_bytes,
    lingers_where_there_is_little,
    ends_when_closed,
    wakes_all_readers_when_closed,
    releases_what_was_parked,
    keeps_a_binding_while_parked,
    expires_what_has_waited_long_enough,
    bounds_what_is_parked,
    appends_nothing_for_one_who_left,
)
