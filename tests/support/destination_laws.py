"""What every spool must do for several destinations: one function a law, as in support/spool_laws.py."""

import asyncio
import sys
import threading

import pytest
from support.batches import equal_batches
from support.spools import BUILD, ROOMY, Ground, Law, batch, emitted, positions

from otel_bridge.errors import SpoolFull
from otel_bridge.spool.lot import LotLimits
from otel_bridge.spool.protocol import Awaited, Ended

TWO = ("default", "archive")


async def gives_each_destination_everything(ground: Ground) -> None:
    """In order, at its own pace; the bytes of a record count until the last one is done with it."""
    spool = await ground.spool(destinations=TWO)
    one, other = spool.outlets.values()
    batches = [batch(3, position) for position in range(4)]
    for each in batches:
        await spool.append(each)
    size = spool.size_bytes
    first = await one.read(100)
    await one.done(first, emitted(first))
    assert (positions(first), one.events, other.events, spool.size_bytes) == ([0, 1, 2, 3], 0, 12, size)
    for position, each in enumerate(batches):
        (record,) = await other.read(3)
        assert positions([record]) == [position]
        assert equal_batches(record.batch, each)
        assert spool.size_bytes == size - position * size // 4
        await other.done([record], emitted([record]))
    assert (other.events, spool.size_bytes) == (0, 0)


async def is_full_where_one_destination_is_slow(ground: Ground) -> None:
    """One that is done with everything makes no room for one that is not."""
    scale = await ground.spool()
    await scale.append(batch(10))
    spool = await ground.spool(max_bytes=scale.size_bytes, destinations=TWO)
    one, other = spool.outlets.values()
    await spool.append(batch(10))
    records = await one.read(10)
    await one.done(records, emitted(records))
    with pytest.raises(SpoolFull):
        await spool.append(batch(10))
    records = await other.read(10)
    await other.done(records, emitted(records))
    await spool.append(batch(10))


async def parks_for_each_destination(ground: Ground) -> None:
    """Each at its turn; the mapping lets the records of all go, and one that has not come to its record finds it in line."""
    spool = await ground.spool(destinations=TWO)
    one, other = spool.outlets.values()
    for position in range(2):
        await spool.append(batch(5, position))
    mine, others = await one.read(10), await other.read(5)
    assert [await one.park(record, BUILD) for record in mine] == [None, None]
    assert await other.park(others[0], BUILD) is None
    assert [(each.events, each.parked_events) for each in (one, other)] == [(0, 10), (5, 5)]
    assert (spool.parked_events_of(BUILD), list(spool.awaited())) == (10, [BUILD])
    assert await spool.release(BUILD, "bound") == {"default": 10, "archive": 5}
    assert await spool.release(BUILD, "bound") == {}
    (mine, others) = await one.read(20), [*await other.read(5), *await other.read(5)]
    assert (positions(mine), positions(others)) == ([0, 1], [1, 0])
    assert [(record.has_waited, record.build) for record in others] == [(False, None), (True, "bound")]
    await one.done(mine, emitted(mine))
    assert spool.size_bytes > 0
    await other.done(others, emitted(others))
    assert (spool.size_bytes, one.events, other.events, spool.parked_events_of(BUILD)) == (0, 0, 0, 0)


async def parks_for_each_destination_for_its_own_reason(ground: Ground) -> None:
    """One comes to a record before an alias names a build, the other after: each is let go by what it waits for."""
    spool = await ground.spool(destinations=TWO)
    one, other = spool.outlets.values()
    await spool.append(batch(5))
    alias = Awaited(name="net", version="1")
    for each, awaited, build in ((one, alias, None), (other, BUILD, "bound")):
        (record,) = await each.read(5)
        assert await each.park(record.bind(build) if build else record, awaited) is None
    assert await spool.release(alias, "late") == {"default": 5}
    (record,) = await one.read(5)
    assert (record.build, other.events, other.parked_events) == ("late", 0, 5)
    await one.done([record], emitted([record]))
    ground.time_s += 61
    assert await spool.expire() == {"archive": 5}
    (record,) = await other.read(5)
    assert (record.build, record.has_waited) == ("bound", True)
    await other.done([record], emitted([record]))
    assert (spool.size_bytes, one.unaccounted_events, other.unaccounted_events) == (0, 0, 0)


async def bounds_what_each_destination_parks(ground: Ground) -> None:
    """What another one has parked takes no room away."""
    spool = await ground.spool(lot=LotLimits(60.0, 10**6, 10, 10**6, 10), destinations=TWO)
    one, other = spool.outlets.values()
    await spool.append(batch(10, 0))
    await spool.append(batch(10, 1))
    for each in (one, other):
        records = await each.read(20)
        assert [await each.park(record, BUILD) for record in records] == [None, "events_per_build"]
    assert (one.parked_events, other.parked_events) == (10, 10)


async def tells_how_many_events_are_unaccounted_for(ground: Ground) -> None:
    """None, whatever becomes of them; where a reader says less than the truth, or more, the difference, at its destination."""
    spool = await ground.spool(destinations=TWO)
    one, other = spool.outlets.values()
    for position in range(3):
        await spool.append(batch(4, position))
    assert (one.unaccounted_events, other.unaccounted_events) == (0, 0)
    records = await one.read(12)
    assert await one.park(records[0], BUILD) is None
    await one.done(records[1:2], Ended(1, {"partial_success": 3}))
    assert one.unaccounted_events == 0
    await one.done(records[2:], Ended(3))
    assert (one.unaccounted_events, other.unaccounted_events) == (1, 0)
    records = await other.read(1)
    await other.done(records, Ended(5))
    assert (one.unaccounted_events, other.unaccounted_events) == (1, -1)


async def keeps_for_each_or_for_none_what_nobody_waits_for(ground: Ground) -> None:
    """A caller that is cancelled was told nothing; the others' batches are kept, and each destination gets the same."""
    spool = await ground.spool(destinations=TWO)
    calls = [asyncio.create_task(spool.append(batch(1, position))) for position in range(8)]
    await asyncio.sleep(0)
    left = {position for position, call in enumerate(calls) if position % 2 and call.cancel()}
    await asyncio.gather(*calls, return_exceptions=True)
    await spool.append(batch(1, 99))
    found = []
    for outlet in spool.outlets.values():
        events = outlet.events
        records = await outlet.read(100)
        found.append(positions(records))
        await outlet.done(records, emitted(records))
        assert (events, outlet.events, outlet.unaccounted_events) == (len(records), 0, 0)
    assert found[0] == found[1]
    assert {*range(8), 99} - left <= set(found[0]) <= {*range(8), 99}
    assert spool.size_bytes == 0


async def is_seen_from_any_thread_as_it_is(ground: Ground) -> None:
    """Whoever measures, amid whatever change: no event is unaccounted for in between."""
    spool = await ground.spool(lot=ROOMY, destinations=TWO)
    one, other = spool.outlets.values()
    found: set[int] = set()
    looks, is_over = threading.Event(), threading.Event()

    def look() -> None:
        while not is_over.is_set():
            found.update(outlet.unaccounted_events for outlet in (one, other))
            looks.set()

    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    looking = threading.Thread(target=look)
    looking.start()
    try:
        assert await asyncio.to_thread(looks.wait, 20)
        for position in range(80):
            await spool.append(batch(4, position))
            for outlet in (one, other):
                for record in await outlet.read(4):
                    assert await outlet.park(record, BUILD) is None
            await spool.release(BUILD, "bound")
            for outlet in (one, other):
                await outlet.done(await outlet.read(4), Ended(3, {f"reason {position}": 1}))
    finally:
        is_over.set()
        looking.join()
        sys.setswitchinterval(interval_s)
    assert found == {0}


LAWS_OF_DESTINATIONS: tuple[Law, ...] = (
    gives_each_destination_everything,
    is_full_where_one_destination_is_slow,
    parks_for_each_destination,
    parks_for_each_destination_for_its_own_reason,
    bounds_what_each_destination_parks,
    tells_how_many_events_are_unaccounted_for,
    keeps_for_each_or_for_none_what_nobody_waits_for,
    is_seen_from_any_thread_as_it_is,
)
