"""A spool that takes over another: books, rows and what was seen, in one transaction over both files."""

import asyncio
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.spools import DAY_S, ROOMY, Watched, batch, emitted, positions

from otel_bridge.errors import ConfigError
from otel_bridge.spool.adoption import adopt
from otel_bridge.spool.inspection import Inspection, inspect, summed
from otel_bridge.spool.opening import FILE_NAME, Clocks
from otel_bridge.spool.protocol import Awaited, Ended, Seen
from otel_bridge.spool.room import Bounds
from otel_bridge.spool.sqlite import SqliteSpool

Run = Callable[[Any], Any]

EVENTS = 10
OURS, THEIRS = ("default", "archive"), ("archive", "late", "default")
BUILD = Awaited("b")


def opened(folder: Path, names: tuple[str, ...], clocks: Clocks | None = None) -> SqliteSpool:
    """The spool in a folder."""
    bounds = Bounds(10**8, 10**8, DAY_S)
    return SqliteSpool(folder, bounds, ROOMY, Watched(), destinations=names, clocks=clocks or Clocks())


async def life(folder: Path, names: tuple[str, ...], first: int, clocks: Clocks | None = None) -> None:
    """Four batches from `first` on: one is done with everywhere, one for the first destination, one is parked, one waits."""
    spool = await asyncio.to_thread(opened, folder, names, clocks)
    for position in range(first, first + 4):
        await spool.append(batch(EVENTS, position), Seen(b"k" * 15 + bytes([position]), b"d" * 16, b"answer"))
    for name in names:
        outlet = spool.outlets[name]
        done, own, parked, *_ = await outlet.read(1000)
        await outlet.done([done], emitted([done]))
        if name == names[0]:
            await outlet.done([own], Ended(dropped={"export_invalid": EVENTS}))
        assert await outlet.park(parked, BUILD) is None
    spool.close()
    await spool.finish()


def told(found: Inspection) -> dict[str, tuple[int, int, dict[str, int], int, int]]:
    """The books."""
    return {one.destination: (one.accepted, one.emitted, dict(one.dropped), one.waiting, one.parked) for one in found.ledgers}


def test_nothing_is_lost_or_counted_twice(run: Run, tmp_path: Path) -> None:
    """The books are the sum of both; whatever the destinations were numbered, each gets what it had not got, ours first."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    run(life(ours, OURS, 0))
    run(life(theirs, THEIRS, 10))
    before = summed([inspect(ours), inspect(theirs)])
    watched = Watched()
    adopt(ours, theirs, [*OURS, "late"], watched)
    after = inspect(ours)
    assert told(after) == told(before)
    assert (after.seen, after.waiting.events, after.parked[0].amount.events) == (8, before.waiting.events, 2 * EVENTS)
    assert not (theirs / FILE_NAME).exists()
    assert not watched.drops_of

    async def drain() -> dict[str, list[int]]:
        spool = await asyncio.to_thread(opened, ours, (*OURS, "late"))
        assert {seen.key[-1] for seen in spool.seen()} == {*range(4), *range(10, 14)}
        await spool.release(BUILD, "b")
        got = {}
        for name, outlet in spool.outlets.items():
            records = await outlet.read(1000)
            got[name] = positions(records)
            await outlet.done(records, emitted(records))
            assert outlet.unaccounted_events == 0
        spool.close()
        await spool.finish()
        return got

    assert run(drain()) == {"default": [3, 11, 13, 2, 12], "archive": [1, 3, 13, 2, 12], "late": [11, 13, 12]}
    assert all(ledger.unaccounted == ledger.waiting == ledger.parked == 0 for ledger in inspect(ours).ledgers)


def test_what_waits_has_waited_as_long(run: Run, tmp_path: Path) -> None:
    """Ages go on, though the clocks of the two files do not show the same."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    run(life(ours, OURS, 0))
    hour_ns = 3600 * 10**9
    before = Clocks(lambda: time.time_ns() - hour_ns, lambda: time.monotonic_ns() - hour_ns)
    run(life(theirs, OURS, 10, before))
    adopt(ours, theirs, OURS, Watched())
    assert 3590 < inspect(ours).waiting.oldest_s < 3700
    assert 3590 < inspect(ours).parked[0].amount.oldest_s < 3700


def test_again_and_of_nothing(run: Run, tmp_path: Path) -> None:
    """Where there is no other spool nothing happens, and one that was emptied by a kill's transaction adds nothing."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    run(life(ours, OURS, 0))
    books = told(inspect(ours))
    adopt(ours, theirs, OURS, Watched())
    opened_once = opened(theirs, OURS)

    async def close() -> None:
        opened_once.close()
        await opened_once.finish()

    run(close())
    adopt(ours, theirs, OURS, Watched())
    assert told(inspect(ours)) == books


def test_what_a_repair_left_halfway_is_taken_over_too(run: Run, tmp_path: Path) -> None:
    """A kill between the renames of a repair leaves no `spool.db`, but its events in the file that was to take its place."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    run(life(ours, OURS, 0))
    run(life(theirs, THEIRS, 10))
    before = told(summed([inspect(ours), inspect(theirs)]))
    shutil.copy(theirs / FILE_NAME, theirs / f"{FILE_NAME}.new")
    (theirs / FILE_NAME).rename(theirs / f"{FILE_NAME}.damaged")
    adopt(ours, theirs, [*OURS, "late"], Watched())
    assert told(inspect(ours)) == before


def test_values_that_fell_over_do_not_stop_the_start(run: Run, tmp_path: Path) -> None:
    """What no check of SQLite finds, a text that is none or a number that is one, is taken over as it is read elsewhere."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    run(life(ours, OURS, 0))
    run(life(theirs, THEIRS, 10))
    before = summed([inspect(ours), inspect(theirs)])
    with closing(sqlite3.connect(theirs / FILE_NAME)) as connection:
        connection.execute("UPDATE drops SET reason = CAST(x'ff' AS TEXT)")
        connection.execute("UPDATE records SET pending = CAST(pending AS BLOB)")
        connection.commit()
    adopt(ours, theirs, [*OURS, "late"], Watched())
    after = inspect(ours)
    assert after.waiting.events == before.waiting.events
    assert all(ledger.unaccounted == 0 for ledger in after.ledgers)
    assert sum(ledger.accepted for ledger in after.ledgers) == sum(ledger.accepted for ledger in before.ledgers)


KILLED = """
import os, signal, sqlite3, sys
from pathlib import Path
from support.spools import Watched
from otel_bridge.spool.adoption import adopt

ours, theirs, at = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]

def stop(statement):
    if statement.startswith(at):
        os.kill(os.getpid(), signal.SIGKILL)

def traced(*arguments, connect=sqlite3.connect, **options):
    connection = connect(*arguments, **options)
    connection.execute("PRAGMA cache_size = 1").close()  # so that some of the move is in the file before its commit
    connection.set_trace_callback(stop)
    return connection

def unlink(path, missing_ok=False, unlink=Path.unlink):
    stop(f"unlink {path.name}")
    unlink(path, missing_ok)

sqlite3.connect, Path.unlink = traced, unlink
adopt(ours, theirs, ["default", "archive", "late"], Watched())
"""


@pytest.mark.parametrize(
    "at", ["unlink spool.mark", "ATTACH", "INSERT INTO main.seen", "DELETE FROM theirs.drops", "unlink spool.db"]
)
def test_a_kill_leaves_each_record_once(run: Run, tmp_path: Path, at: str) -> None:
    """Wherever it comes, before the move, between its statements or after its commit, the next start has everything once."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    run(life(ours, OURS, 0))
    run(life(theirs, THEIRS, 10))
    before = told(summed([inspect(ours), inspect(theirs)]))
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, ours, theirs, at],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    if at == "DELETE FROM theirs.drops":  # on the way
        with pytest.raises(ConfigError, match="cannot be read"):
            inspect(ours)
    watched = Watched()
    adopt(ours, theirs, [*OURS, "late"], watched)
    assert told(inspect(ours)) == before
    assert not watched.drops_of
    with closing(sqlite3.connect(ours / FILE_NAME)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
