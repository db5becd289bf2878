"""The spool in memory keeps the protocol's promises."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from support.scenes import batch_of, execute, runtime

from otel_bridge.errors import Draining, SpoolFull
from otel_bridge.model.events import EventBatch
from otel_bridge.spool.lot import LotLimits
from otel_bridge.spool.memory import MemorySpool

LIMITS = LotLimits(60.0, 10**6, 100, 10**6, 60, max_builds=3)

Run = Callable[[Any], Any]


def batch(events: int, position: int = 0) -> EventBatch:
    """A batch of so many events."""
    return batch_of((execute(position), [runtime("e", n, n + 1) for n in range(events)]))


def test_records_come_out_in_order_and_whole(run: Run) -> None:
    """A reader gets as many whole records as it asked events for, and at least one."""

    async def go() -> list[list[int]]:
        spool = MemorySpool(10**6, LIMITS)
        for events in (3, 4, 5, 100):
            await spool.append(batch(events))
        return [[len(record.batch) for record in await spool.read(8)] for _ in range(3)]

    assert run(go()) == [[3, 4], [5], [100]]


def test_a_reader_waits_for_a_record(run: Run) -> None:
    """Several wait; each record goes to one of them."""

    async def go() -> list[int]:
        spool = MemorySpool(10**6, LIMITS)
        readers = [asyncio.create_task(spool.read(1)) for _ in range(3)]
        await asyncio.sleep(0)
        for events in (1, 2, 3):
            await spool.append(batch(events))
        return sorted(len(record.batch) for records in await asyncio.gather(*readers) for record in records)

    assert run(go()) == [1, 2, 3]


def test_a_full_spool_refuses_and_keeps_nothing_of_what_it_refused(run: Run) -> None:
    """Room counts until `done`, not until `read`: a record on its way is still the spool's."""

    async def go() -> None:
        one = batch(10)
        spool = MemorySpool(2 * one.nbytes, LIMITS)
        await spool.append(one)
        await spool.append(batch(10))
        with pytest.raises(SpoolFull) as refused:
            await spool.append(batch(10))
        assert refused.value.retry_after_s
        records = await spool.read(10)
        with pytest.raises(SpoolFull):
            await spool.append(batch(10))
        await spool.done(records)
        await spool.append(batch(10))
        assert (20, 2 * one.nbytes) == (spool.events, spool.size_bytes)

    run(go())


def test_a_batch_larger_than_the_spool_is_taken_alone(run: Run) -> None:
    """The request limit bounds it; else its sender would try for ever."""

    async def go() -> None:
        spool = MemorySpool(100, LIMITS)
        await spool.append(batch(500))
        with pytest.raises(SpoolFull):
            await spool.append(batch(1))

    run(go())


def test_a_reader_lingers_for_more_where_there_is_little(run: Run) -> None:
    """What comes within the time shares the haul; a full haul does not wait."""

    async def go() -> list[list[int]]:
        spool = MemorySpool(10**6, LIMITS)
        await spool.append(batch(1))
        reading = asyncio.create_task(spool.read(10, 0.05))
        await asyncio.sleep(0.01)
        await spool.append(batch(2))
        first = await reading
        await spool.append(batch(10))
        full = await asyncio.wait_for(spool.read(10, 3600), 10)
        return [[len(record.batch) for record in records] for records in (first, full)]

    assert run(go()) == [[1, 2], [10]]


def test_a_closed_spool_takes_nothing_and_gives_what_is_left(run: Run) -> None:
    """Readers that wait are woken; after the last record they get nothing."""

    async def go() -> list[int]:
        spool = MemorySpool(10**6, LIMITS)
        waiting = asyncio.create_task(spool.read(1))
        await asyncio.sleep(0)
        await spool.append(batch(1))
        await spool.append(batch(2))
        spool.close()
        with pytest.raises(Draining):
            await spool.append(batch(3))
        return [sum(len(r.batch) for r in records) for records in (await waiting, await spool.read(9), await spool.read(9))]

    assert run(go()) == [1, 2, 0]
