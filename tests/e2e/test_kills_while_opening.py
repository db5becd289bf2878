"""
A process that is killed again and again while it opens a spool: upgrades it, repairs it, makes it small.

The code of a whole bridge takes a second to load, and these steps some milliseconds: here a process opens the spool and nothing
else, and the kill is drawn from the time that this takes.
"""

import asyncio
import gzip
import random
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from support.engines import ROOT
from support.spools import DAY_S, ROOMY, Watched, batch, emitted, outlet_of

from otel_bridge.spool.opening import FILE_NAME
from otel_bridge.spool.room import Bounds
from otel_bridge.spool.sqlite import SqliteSpool

KILLS = 8
EVENTS = 7
BATCHES = 400
SEED = random.SystemRandom().randrange(10**9)
OPEN = """
import sys
from pathlib import Path
from support.spools import ROOMY, Watched
from otel_bridge.spool.room import Bounds
from otel_bridge.spool.sqlite import SqliteSpool
print("opening", flush=True)
SqliteSpool(Path(sys.argv[1]), Bounds(10**8, 0, 1e6), ROOMY, Watched())
print("open", flush=True)
sys.stdin.read()
"""


def opened(folder: Path) -> SqliteSpool:
    """The spool in a folder."""
    return SqliteSpool(folder, Bounds(10**8, 0, DAY_S), ROOMY, Watched())


async def fill(spool: SqliteSpool, *, end: bool = False) -> None:
    """Many batches, all of which are there, or none any more; then it is closed."""
    await asyncio.gather(*(spool.append(batch(EVENTS, position)) for position in range(BATCHES)))
    outlet = outlet_of(spool)
    while end and outlet.events:
        records = await outlet.read(10_000)
        await outlet.done(records, emitted(records))
    spool.close()
    await spool.finish()


def make_damaged(folder: Path) -> None:
    """A spool with a page that is none."""
    asyncio.run(fill(opened(folder)))
    path = folder / FILE_NAME
    data = bytearray(path.read_bytes())
    middle = len(data) // 8192 * 4096
    data[middle : middle + 64] = bytes(64)
    path.write_bytes(data)


def make_large(folder: Path) -> None:
    """A spool that is large, and empty."""
    asyncio.run(fill(opened(folder), end=True))
    with closing(sqlite3.connect(folder / FILE_NAME)) as connection:
        connection.execute("CREATE TABLE filler (x)")
        connection.execute("INSERT INTO filler VALUES (zeroblob(25000000))")
        connection.commit()
        connection.execute("DROP TABLE filler")
        connection.commit()


def make_old(folder: Path) -> None:
    """A spool of format 1."""
    for path in (ROOT / "tests" / "spool" / "format_1").iterdir():
        data = path.read_bytes()
        (folder / path.name.removesuffix(".gz")).write_bytes(gzip.decompress(data) if path.suffix == ".gz" else data)


def open_and_kill(folder: Path, wait_s: float) -> tuple[bool, float]:
    """Kill a process so long after it began to open; whether it was done, and when."""
    environment = {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", OPEN, folder], stdin=pipe, stdout=pipe, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"opening\n"
        begun = time.monotonic()
        if wait_s < 0:
            process.stdout.readline()
        else:
            time.sleep(wait_s)
        took_s = time.monotonic() - begun
        process.kill()
        return b"open\n" in process.stdout.read() or wait_s < 0, took_s


@pytest.mark.timeout(120)
@pytest.mark.parametrize("make", [make_damaged, make_large, make_old], ids=["repair", "vacuum", "upgrade"])
def test_a_kill_while_it_is_opened_costs_nothing(make: Callable[[Path], None], tmp_path: Path) -> None:
    """Whatever is left is opened by the next: in the end the books say the same as without a kill."""
    books = []
    chance = random.Random(SEED)  # noqa: S311 - the seed is told where the test fails
    for name in ("whole", "killed"):
        folder = tmp_path / name
        folder.mkdir()
        make(folder)
        if name == "whole":
            _, took_s = open_and_kill(folder, -1)
        else:
            was_cut, kills = False, 0
            while kills < KILLS or not was_cut:
                wait_s = chance.uniform(0, took_s)
                was_done, _ = open_and_kill(folder, wait_s)
                was_cut, kills = was_cut or not was_done, kills + 1
                if was_done:
                    took_s = wait_s  # that is enough: the first one may have had other work beside it
                if not was_cut:  # and nothing is left to be done
                    shutil.rmtree(folder)
                    folder.mkdir()
                    make(folder)
        spool = opened(folder)
        asyncio.run(drain(spool))
        queries = ("SELECT * FROM books ORDER BY 1", "SELECT * FROM drops ORDER BY 1, 2")
        with closing(sqlite3.connect(folder / FILE_NAME)) as connection:
            books.append([connection.execute(query).fetchall() for query in queries])
    assert books[0] == books[1], SEED
    (((_, _, accepted, ended), *_), drops) = books[0]
    assert accepted == ended + sum(events for _, _, events in drops) > 0


async def drain(spool: SqliteSpool) -> None:
    """All that is in it ends."""
    outlet = outlet_of(spool)
    for awaited in spool.awaited():
        await spool.release(awaited, "build")
    spool.close()
    while records := await outlet.read(10_000):
        await outlet.done(records, emitted(records))
    assert (outlet.events, outlet.parked_events, outlet.unaccounted_events) == (0, 0, 0)
    await spool.finish()
