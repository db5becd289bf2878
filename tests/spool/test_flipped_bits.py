"""Bits that fall over at random places of a spool at rest: the rest goes on, and what is lost is counted to the event."""

import asyncio
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.spools import DAY_S, ROOMY, Watched, batch, emitted, outlet_of, positions

from otel_bridge.errors import ConfigError
from otel_bridge.spool.opening import FILE_NAME
from otel_bridge.spool.protocol import Awaited
from otel_bridge.spool.room import Bounds
from otel_bridge.spool.sqlite import SqliteSpool

Run = Callable[[Any], Any]

BATCHES, EVENTS = 24, 7
SEEDS = 40
HEAD_BYTES = 4096
"""The first page: what the file is, and where its tables are."""


def opened(folder: Path, watched: Watched | None = None) -> SqliteSpool:
    """The spool in a folder, all of which is read from disk."""
    return SqliteSpool(folder, Bounds(10**8, 0, DAY_S), ROOMY, watched or Watched())


async def filled(spool: SqliteSpool) -> None:
    """Batches of which the first are parked; then it is closed in good order, so all is in one file."""
    for position in range(BATCHES):
        await spool.append(batch(EVENTS, position))
    outlet = outlet_of(spool)
    for record in await outlet.read(5 * EVENTS):
        assert await outlet.park(record, Awaited("b")) is None
    spool.close()
    await spool.finish()


async def drained(spool: SqliteSpool) -> list[int]:
    """Which batches come out, and with how many events in all."""
    found: list[int] = []
    outlet = outlet_of(spool)
    for awaited in spool.awaited():
        await spool.release(awaited, "build")
    spool.close()
    while records := await outlet.read(1000):
        assert {len(record.batch) for record in records} == {EVENTS}
        found += positions(records)
        await outlet.done(records, emitted(records))
    assert (outlet.events, outlet.parked_events, outlet.unaccounted_events) == (0, 0, 0)
    await spool.finish()
    return found


def flip(data: bytearray, chance: random.Random, first: int, count: int) -> None:
    """Turn some bits over, behind the first bytes."""
    for _ in range(count):
        data[chance.randrange(first, len(data))] ^= 1 << chance.randrange(8)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of an undamaged spool."""
    folder = tmp_path_factory.mktemp("whole")
    spool = opened(folder)
    asyncio.run(filled(spool))
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def laid_out(whole: dict[str, bytes], folder: Path) -> Path:
    """Those files in a folder."""
    for name, data in whole.items():
        (folder / name).write_bytes(data)
    return folder / FILE_NAME


def assert_counted(found: list[int], watched: Watched, path: Path) -> None:
    """
    What did not come out is counted as lost, to the event.

    A record whose count was hit, and grew, is lost by that count: nothing says that it is not true. One whose time was hit may
    be too old.
    """
    assert len(found) == len(set(found))
    assert set(found) <= set(range(BATCHES))
    assert set(watched.drops) <= {"corrupt", "spool_age"}
    assert watched.drops.total() == watched.found - EVENTS * len(found)
    query = "SELECT coalesce(sum(events - ?), 0) FROM quarantine WHERE events != ?"
    with closing(sqlite3.connect(path)) as connection:
        (miscounted,) = connection.execute(query, (EVENTS, EVENTS)).fetchone()
    assert watched.found == BATCHES * EVENTS + max(miscounted, 0)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_is_lost_is_counted(seed: int, whole: dict[str, bytes], run: Run, tmp_path: Path) -> None:
    """One bit, or some: each batch comes out whole or is counted as lost, and the two make up what was there."""
    path, chance = laid_out(whole, tmp_path), random.Random(seed)  # noqa: S311 - to be the same in every run
    data = bytearray(path.read_bytes())
    flip(data, chance, HEAD_BYTES, chance.choice([1, 1, 3, 20]))
    path.write_bytes(data)
    watched = Watched()
    found = run(drained(opened(tmp_path, watched)))
    assert_counted(found, watched, path)
    again = Watched()
    assert (run(drained(opened(tmp_path, again))), again.found, again.drops) == ([], 0, {})


@pytest.mark.parametrize("seed", range(SEEDS // 2))
def test_a_head_is_repaired_or_refused(seed: int, whole: dict[str, bytes], run: Run, tmp_path: Path) -> None:
    """A bit of the first page: the start is refused and the file left as it is, or the rule above holds."""
    path, chance = laid_out(whole, tmp_path), random.Random(seed)  # noqa: S311 - as above
    data = bytearray(path.read_bytes())
    data[chance.choice([chance.randrange(100), chance.randrange(HEAD_BYTES)])] ^= 1 << chance.randrange(8)
    path.write_bytes(data)
    watched = Watched()
    try:
        spool = opened(tmp_path, watched)
    except ConfigError as error:
        told = str(error)
    else:
        assert_counted(run(drained(spool)), watched, path)
        return
    assert str(path) in told
    assert path.read_bytes() == data
