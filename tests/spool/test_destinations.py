"""A spool on disk over several lives, in which destinations come and go: the books say how each event ended."""

import asyncio
import os
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.spools import DAY_S, ROOMY, Watched, batch, emitted, positions

from otel_bridge.errors import ConfigError
from otel_bridge.model.destination import MAX_DESTINATIONS
from otel_bridge.spool.books import Account
from otel_bridge.spool.file import SpoolFile
from otel_bridge.spool.opening import FILE_NAME
from otel_bridge.spool.protocol import Awaited, Ended
from otel_bridge.spool.room import Bounds
from otel_bridge.spool.schema import CREATE, bit
from otel_bridge.spool.sqlite import SqliteSpool

Run = Callable[[Any], Any]

EVENTS = 10
BOTH = ("default", "archive")


def opened(folder: Path, *names: str, watched: Watched | None = None, memory_bytes: int = 10**8) -> SqliteSpool:
    """The spool in a folder."""
    bounds = Bounds(10**8, memory_bytes, DAY_S)
    return SqliteSpool(folder, bounds, ROOMY, watched or Watched(), destinations=names or BOTH)


async def closed(spool: SqliteSpool) -> dict[str, Account]:
    """The end of a process in good order; what its books say."""
    accounts = await spool._stock.commits.submit(SpoolFile.accounts)
    spool.close()
    await spool.finish()
    return {each.name: each for each in accounts}


async def fill(spool: SqliteSpool, *numbers: int) -> None:
    """Batches of these positions."""
    for position in numbers:
        await spool.append(batch(EVENTS, position))


async def drained(spool: SqliteSpool, name: str) -> list[int]:
    """Which batches a destination gets until there are no more in line."""
    outlet, found = spool.outlets[name], []
    while outlet.events:
        records = await outlet.read(1000)
        found += positions(records)
        await outlet.done(records, emitted(records))
    return found


def test_a_destination_begins_with_what_comes_from_then_on(run: Run, tmp_path: Path) -> None:
    """Also where others still have what was before, and what was before is still there for them."""
    spool = opened(tmp_path, "default")
    run(fill(spool, 0, 1))
    run(closed(spool))
    spool = opened(tmp_path, *BOTH)
    run(fill(spool, 2))
    assert (run(drained(spool, "archive")), run(drained(spool, "default"))) == ([2], [0, 1, 2])
    assert spool.size_bytes == 0
    accounts = run(closed(spool))
    assert accounts["archive"] == Account(2, "archive", EVENTS, EVENTS)
    assert accounts["default"] == Account(1, "default", 3 * EVENTS, 3 * EVENTS)


def test_what_a_removed_destination_had_not_got_is_given_up(run: Run, tmp_path: Path) -> None:
    """In line and parked, told once with its name; the others keep theirs, and where it comes back it begins anew."""
    spool = opened(tmp_path)

    async def go() -> None:
        await fill(spool, 0, 1, 2)
        for outlet in spool.outlets.values():
            records = await outlet.read(1)
            assert await outlet.park(records[0], Awaited("b")) is None
        await drained(spool, "default")
        await closed(spool)

    run(go())
    watched = Watched()
    spool = opened(tmp_path, "default", watched=watched)
    assert watched.drops_of == {("archive", "destination_removed"): 3 * EVENTS}
    assert watched.found_for == {"default": EVENTS, "archive": 3 * EVENTS}
    assert (spool.size_bytes, spool.outlets["default"].parked_events) == (0, EVENTS)
    run(fill(spool, 3))
    run(closed(spool))
    watched = Watched()
    spool = opened(tmp_path, watched=watched)
    assert (dict(watched.found_for), watched.drops) == ({"default": 2 * EVENTS}, {})
    run(fill(spool, 4))
    assert (run(drained(spool, "archive")), run(drained(spool, "default"))) == ([4], [3, 4])
    account = run(closed(spool))["archive"]
    assert account == Account(2, "archive", 4 * EVENTS, EVENTS, {"destination_removed": 3 * EVENTS})


def test_the_books_say_how_each_event_ended(run: Run, tmp_path: Path) -> None:
    """By destination and reason, over lives, and the sum is what was accepted."""
    for life in range(2):
        spool = opened(tmp_path)

        async def go(spool: SqliteSpool = spool, life: int = life) -> None:
            await fill(spool, life)
            (record,) = await spool.outlets["default"].read(1)
            await spool.outlets["default"].done([record], Ended(4, {"export_invalid": 5, "partial_success": 1}))
            await closed(spool)

        run(go())
    spool = opened(tmp_path)
    accounts = run(closed(spool))
    assert accounts["default"] == Account(1, "default", 20, 8, {"export_invalid": 10, "partial_success": 2})
    assert (accounts["archive"].accepted, accounts["archive"].here) == (20, 20)


def test_a_kill_undoes_the_books_with_what_they_are_about(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events whose end was not on disk yet end again, and count once."""
    monkeypatch.setattr("otel_bridge.spool.commits.OWED_S", 3600.0)
    spool = opened(tmp_path / "a")
    run(fill(spool, 0))
    assert run(drained(spool, "default")) == [0]
    shutil.copytree(tmp_path / "a", tmp_path / "b", ignore=shutil.ignore_patterns("*-shm"))
    run(closed(spool))
    watched = Watched()
    spool = opened(tmp_path / "b", watched=watched)
    assert watched.found_for == {"default": EVENTS, "archive": EVENTS}
    assert [outlet.unaccounted_events for outlet in spool.outlets.values()] == [0, 0]
    assert run(drained(spool, "default")) == [0]
    assert run(closed(spool))["default"] == Account(1, "default", EVENTS, EVENTS)


@pytest.mark.parametrize("memory_bytes", [0, 10**8])
def test_a_damaged_record_costs_each_destination_itself(memory_bytes: int, run: Run, tmp_path: Path) -> None:
    """Once each, whoever comes first; it is set apart once, and its bytes are free when all have met it."""
    spool = opened(tmp_path)
    run(fill(spool, 0, 1, 2))
    run(closed(spool))
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection:
        connection.execute("UPDATE records SET checksum = 1 WHERE number = 2")
        connection.commit()
    watched = Watched()
    spool = opened(tmp_path, watched=watched, memory_bytes=memory_bytes)
    assert (run(drained(spool, "archive")), run(drained(spool, "default"))) == ([0, 2], [0, 2])
    assert watched.drops_of == {(name, "corrupt"): EVENTS for name in BOTH}
    assert spool.size_bytes == 0
    assert {name: each.dropped for name, each in run(closed(spool)).items()} == {name: {"corrupt": EVENTS} for name in BOTH}
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection:
        assert connection.execute("SELECT number FROM quarantine").fetchall() == [(2,)]


def test_what_damage_took_from_a_removed_destination_is_its_loss(run: Run, tmp_path: Path) -> None:
    """All that is dropped was this process's to account for: what is lost, and what is given up."""
    spool = opened(tmp_path)
    run(fill(spool, 0, 1, 2))
    run(closed(spool))
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection:
        connection.execute("DELETE FROM records WHERE number = 2")
        connection.commit()
    watched = Watched()
    spool = opened(tmp_path, "default", watched=watched)
    assert watched.found_for == {"default": 3 * EVENTS, "archive": 3 * EVENTS}
    assert watched.drops_of == {
        ("default", "corrupt"): EVENTS,
        ("archive", "corrupt"): EVENTS,
        ("archive", "destination_removed"): 2 * EVENTS,
    }
    run(closed(spool))


def test_records_that_nobody_counted_are_accounted_for(run: Run, tmp_path: Path) -> None:
    """Damage that shows while the file is used: what leaves was found before, and no byte of it is counted for ever."""
    spool = opened(tmp_path)
    run(fill(spool, 0, 1, 2))
    run(closed(spool))
    rest = "events, size, kept_ns, build, checksum, body, pending FROM records"
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection:
        connection.execute("UPDATE records SET number = 5 WHERE number = 3")
        connection.commit()
        watched = Watched()
        spool = opened(tmp_path, watched=watched)
        connection.execute(f"INSERT INTO records SELECT waited, 4, {rest} WHERE number = 2")
        connection.commit()
    assert (run(drained(spool, "default")), run(drained(spool, "archive"))) == ([0, 1, 1, 2], [0, 1, 1, 2])
    assert watched.found_for == {"default": 4 * EVENTS, "archive": 4 * EVENTS}
    assert ([outlet.unaccounted_events for outlet in spool.outlets.values()], spool.size_bytes) == ([0, 0], 0)
    assert run(closed(spool))["default"] == Account(1, "default", 4 * EVENTS, 4 * EVENTS)


def test_what_comes_while_bytes_are_counted_anew_is_not_forgotten(run: Run, tmp_path: Path) -> None:
    """Else the spool would be full too early, or never."""
    spool = opened(tmp_path)

    async def go() -> int:
        await fill(spool, 0)
        await asyncio.gather(spool._stock.recount(), fill(spool, 1))
        return await spool._stock.commits.submit(SpoolFile.size_bytes, reads=True)

    assert run(go()) == spool.size_bytes
    run(closed(spool))


def test_books_that_are_gone_are_taken_from_the_mark(run: Run, tmp_path: Path) -> None:
    """With the names and numbers of the destinations: nobody gets what is another's, and the loss is counted."""
    spool = opened(tmp_path)
    run(fill(spool, *range(5)))
    assert run(drained(spool, "default")) == [0, 1, 2, 3, 4]
    run(fill(spool, 5))
    run(closed(spool))
    path = tmp_path / FILE_NAME
    with closing(sqlite3.connect(path)) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'books'").fetchone()
    data = bytearray(path.read_bytes())
    data[(page - 1) * 4096 : page * 4096] = os.urandom(4096)
    path.write_bytes(data)
    watched = Watched()
    spool = opened(tmp_path, watched=watched)
    assert (watched.found_for, watched.drops) == (Counter(default=EVENTS, archive=6 * EVENTS), {})
    assert (run(drained(spool, "archive")), run(drained(spool, "default"))) == ([0, 1, 2, 3, 4, 5], [5])
    assert run(closed(spool))["default"] == Account(1, "default", 6 * EVENTS, 6 * EVENTS)


def test_without_books_and_mark_only_the_first_is_known(run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whose records of a number are is not guessed: those of the destination that is always there go on."""
    spool = opened(tmp_path)
    run(fill(spool, 0, 1))
    assert run(drained(spool, "default")) == [0, 1]
    run(fill(spool, 2))
    run(closed(spool))
    (tmp_path / "spool.mark").unlink()
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection:
        connection.execute("DROP TABLE books")
    spool = opened(tmp_path, "attic", "default")
    assert "how many events are lost is not known" in caplog.text
    assert (run(drained(spool, "default")), spool.outlets["attic"].events, spool.size_bytes) == ([2], 0, 0)
    run(closed(spool))


def test_names_that_a_file_can_know_are_bounded(tmp_path: Path) -> None:
    """By the bits of a mask; one more is refused, with the way out."""
    names = [f"d{number}" for number in range(MAX_DESTINATIONS - 1)]
    spool = opened(tmp_path, "default", *names)
    assert bit(MAX_DESTINATIONS) < 2**63
    with asyncio.Runner() as runner:
        runner.run(fill(spool, 0))
        assert runner.run(drained(spool, names[-1])) == [0]
        runner.run(closed(spool))
    with pytest.raises(ConfigError, match=r"has known 62 destinations, and has no number for late; move its file away"):
        opened(tmp_path, "default", "late")
    with asyncio.Runner() as runner:
        runner.run(closed(opened(tmp_path, "default")))


@pytest.mark.parametrize("size", [300, 100_000])
def test_a_bit_is_cleared_without_writing_the_body_again(size: int, tmp_path: Path) -> None:
    """What a destination more costs the disk is one page a record, whatever its size."""
    with closing(sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(CREATE)
        connection.execute(
            "INSERT INTO records (waited, events, size, kept_ns, checksum, body, pending) VALUES (0, 1, 1, 1, 1, ?, ?)",
            (os.urandom(size), bit(1) | bit(2)),
        )
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        connection.execute("UPDATE records SET pending = pending & ?", (~bit(1),))
        assert (tmp_path / f"{FILE_NAME}-wal").stat().st_size == 32 + 24 + 4096
