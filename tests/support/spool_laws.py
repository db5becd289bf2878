"""What every spool must do: one function a law, each on empty spools of its own."""

import asyncio

import pytest
from support.batches import equal_batches
from support.scenes import STREAM
from support.spools import BUILD, Ground, Law, batch, emitted, outlet_of, positions

from otel_bridge.errors import Draining, SpoolFull
from otel_bridge.spool.lot import LotLimits
from otel_bridge.spool.protocol import Awaited


async def gives_whole_records_in_order(ground: Ground) -> None:
    """A reader gets as many whole records as it asked events for, at least one, and each is the batch that went in."""
    spool = await ground.spool()
    out = outlet_of(spool)
    batches = [batch(events, position) for position, events in enumerate((3, 4, 5, 100))]
    for each in batches:
        await spool.append(each)
    hauls = [await out.read(8) for _ in range(3)]
    assert [positions(haul) for haul in hauls] == [[0, 1], [2], [3]]
    read = [record.batch for haul in hauls for record in haul]
    assert all(equal_batches(a, b) for a, b in zip(read, batches, strict=True))


async def wakes_a_reader_for_each_record(ground: Ground) -> None:
    """Several wait; each record goes to one of them."""
    spool = await ground.spool()
    out = outlet_of(spool)
    readers = [asyncio.create_task(out.read(1)) for _ in range(3)]
    await asyncio.sleep(0)
    for position in range(3):
        await spool.append(batch(1, position))
    assert sorted(positions([record for haul in await asyncio.gather(*readers) for record in haul])) == [0, 1, 2]


async def keeps_what_many_append_at_once(ground: Ground) -> None:
    """In the order in which they asked."""
    spool = await ground.spool()
    out = outlet_of(spool)
    await asyncio.gather(*(spool.append(batch(1, position)) for position in range(50)))
    assert positions(await out.read(1000)) == list(range(50))


async def refuses_when_full(ground: Ground) -> None:
    """It keeps nothing of what it refused. Room counts until `done`, not until `read`: what is on its way is the spool's."""
    scale = await ground.spool()
    await scale.append(batch(10))
    spool = await ground.spool(max_bytes=2 * scale.size_bytes)
    out = outlet_of(spool)
    await spool.append(batch(10, 0))
    await spool.append(batch(10, 1))
    with pytest.raises(SpoolFull) as refused:
        await spool.append(batch(10, 2))
    assert refused.value.retry_after_s
    records = await out.read(10)
    with pytest.raises(SpoolFull):
        await spool.append(batch(10, 3))
    await out.done(records, emitted(records))
    await spool.append(batch(10, 4))
    assert (20, 2 * scale.size_bytes) == (out.events, spool.size_bytes)
    assert [positions(await out.read(10)) for _ in range(2)] == [[1], [4]]


async def takes_a_large_batch_alone(ground: Ground) -> None:
    """Else its sender would try for ever; the request limit bounds it."""
    spool = await ground.spool(max_bytes=100)
    await spool.append(batch(500))
    with pytest.raises(SpoolFull):
        await spool.append(batch(1))


async def keeps_a_batch_of_many_bytes(ground: Ground) -> None:
    """Also one that is written off the loop."""
    spool = await ground.spool(max_bytes=10**8)
    out = outlet_of(spool)
    large = batch(20_000)
    await spool.append(large)
    (record,) = await out.read(1)
    assert equal_batches(record.batch, large)


async def lingers_where_there_is_little(ground: Ground) -> None:
    """What comes within the time shares the haul; a full haul does not wait."""
    for linger_s in (0.3, 3.0, 15.0):  # on a busy machine the second batch may take its time
        spool = await ground.spool()
        out = outlet_of(spool)
        await spool.append(batch(1, 0))
        reading = asyncio.create_task(out.read(10, linger_s))
        await asyncio.sleep(0.01)
        await spool.append(batch(2, 1))
        found = positions(await reading)
        if found == [0, 1]:
            break
    assert found == [0, 1]
    await spool.append(batch(10, 2))
    assert positions(await asyncio.wait_for(out.read(10, 3600), 20)) == [2]


async def ends_when_closed(ground: Ground) -> None:
    """It takes nothing more; readers that wait are woken, and after the last record they get nothing."""
    spool = await ground.spool()
    out = outlet_of(spool)
    waiting = asyncio.create_task(out.read(1))
    await asyncio.sleep(0)
    await spool.append(batch(1, 0))
    await spool.append(batch(2, 1))
    spool.close()
    with pytest.raises(Draining):
        await spool.append(batch(3))
    assert [positions(each) for each in (await waiting, await out.read(9), await out.read(9))] == [[0], [1], []]


async def wakes_all_readers_when_closed(ground: Ground) -> None:
    """Nobody waits for what cannot come."""
    spool = await ground.spool()
    out = outlet_of(spool)
    readers = [asyncio.create_task(out.read(1)) for _ in range(3)]
    await asyncio.sleep(0)
    spool.close()
    assert [list(haul) for haul in await asyncio.gather(*readers)] == [[], [], []]


async def releases_what_was_parked(ground: Ground) -> None:
    """Behind what waits already, in the order of before, bound to the build, and marked as having waited; once."""
    spool = await ground.spool()
    out = outlet_of(spool)
    for position in range(4):
        await spool.append(batch(5, position))
    records = await out.read(20)
    assert [await out.park(record, BUILD) for record in records[:2]] == [None, None]
    assert await out.park(records[2], Awaited("other")) is None
    await out.done(records[3:], emitted(records[3:]))
    assert (out.events, out.parked_events, spool.parked_events_of(BUILD)) == (0, 15, 10)
    await spool.append(batch(5, 9))
    assert await spool.release(BUILD, "bound") == {"default": 10}
    assert await spool.release(BUILD, "bound") == {}
    assert (out.events, out.parked_events, list(spool.awaited())) == (15, 5, [Awaited("other")])
    going = await out.read(20)
    assert positions(going) == [9, 0, 1]
    assert [record.has_waited for record in going] == [False, True, True]
    assert [record.batch.streams[0].build for record in going] == [STREAM.build, "bound", "bound"]
    await out.done(going, emitted(going))
    assert (out.events, spool.size_bytes) == (0, 0)


async def keeps_a_binding_while_parked(ground: Ground) -> None:
    """A record that was bound before it was parked is so when its time is up."""
    spool = await ground.spool()
    out = outlet_of(spool)
    await spool.append(batch(1))
    (record,) = await out.read(1)
    assert await out.park(record.bind("bound"), BUILD) is None
    ground.time_s += 61
    assert await spool.expire() == {"default": 1}
    (record,) = await out.read(1)
    assert (record.batch.streams[0].build, record.build) == ("bound", "bound")


async def expires_what_has_waited_long_enough(ground: Ground) -> None:
    """Each record for itself, unbound."""
    spool = await ground.spool()
    out = outlet_of(spool)
    for position in range(2):
        await spool.append(batch(1, position))
        (record,) = await out.read(1)
        await out.park(record, BUILD)
        ground.time_s += 40
    assert [await spool.expire(), await spool.expire()] == [{"default": 1}, {}]
    (record,) = await out.read(9)
    assert (positions([record]), record.has_waited, record.batch.streams[0].build) == ([0], True, STREAM.build)
    assert spool.parked_events_of(BUILD) == 1


async def bounds_what_is_parked(ground: Ground) -> None:
    """At a bound the record stays the reader's; what leaves makes room."""
    spool = await ground.spool(lot=LotLimits(60.0, 10**6, 30, 10**6, 20, max_builds=2))
    out = outlet_of(spool)
    for position in range(6):
        await spool.append(batch(10, position))
    records = await out.read(60)
    a, b, c = Awaited("a"), Awaited(name="b", version="1"), Awaited("c")
    met = [await out.park(record, awaited) for record, awaited in zip(records, (a, a, a, b, c, b), strict=True)]
    assert met == [None, None, "events_per_build", None, "builds", "events"]
    assert (out.events, out.parked_events) == (30, 30)
    await spool.release(a, "x")
    assert await out.park(records[2], c) is None


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
)
