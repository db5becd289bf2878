"""What can be seen of a spool's file from outside."""

import asyncio
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.spools import DAY_S, ROOMY, Watched, batch, emitted, outlet_of

from otel_bridge.errors import ConfigError
from otel_bridge.spool.inspection import inspect
from otel_bridge.spool.opening import FILE_NAME
from otel_bridge.spool.protocol import Awaited, Ended
from otel_bridge.spool.room import Bounds
from otel_bridge.spool.sqlite import SqliteSpool

Run = Callable[[Any], Any]


def opened(folder: Path, names: tuple[str, ...] = ("default", "slow")) -> SqliteSpool:
    """The spool in a folder."""
    return SqliteSpool(folder, Bounds(10**8, 10**8, 1e5 * DAY_S), ROOMY, Watched(), destinations=names)


def files_in(folder: Path) -> dict[str, bytes]:
    """Every file of a folder, but for the one in which SQLite notes who reads."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.endswith("-shm")}


def test_all_that_is_kept(tmp_path: Path, run: Run) -> None:
    """Beside an open spool: what waits and what is parked, by destination, tenant and build, and books that balance."""
    spool = opened(tmp_path)

    async def main() -> None:
        for events in (1, 2, 3, 4):
            await spool.append(batch(events))
        default = outlet_of(spool)
        records = await default.read(10)
        await default.done(records[:1], emitted(records[:1]))
        await default.done(records[1:2], Ended(dropped={"export_rejected": 2}))
        await default.park(records[2], Awaited("b", tenant="acme"))
        await spool.append(batch(5))  # what is above need not be written yet; this is, and all before it
        before = await asyncio.to_thread(files_in, tmp_path)
        found = await asyncio.to_thread(inspect, tmp_path)
        assert await asyncio.to_thread(files_in, tmp_path) == before
        assert (found.format, found.waiting.records, found.waiting.events) == (3, 5, 15)
        (parked,) = found.parked
        assert (parked.tenant, parked.awaited, parked.amount.records, parked.amount.events) == ("acme", "b", 1, 3)
        assert 0 <= parked.amount.oldest_s < parked.goes_s
        ledgers = {each.destination: each for each in found.ledgers}
        ours, slow = ledgers["default"], ledgers["slow"]
        assert (ours.accepted, ours.emitted, ours.dropped, ours.waiting, ours.parked) == (15, 1, {"export_rejected": 2}, 9, 3)
        assert (slow.accepted, slow.emitted, slow.dropped, slow.waiting, slow.parked) == (15, 0, {}, 15, 0)
        assert {each.unaccounted for each in found.ledgers} == {0}
        assert found.noted_ns > 0
        await spool.append(batch(6))  # the bridge was not disturbed
        assert (await asyncio.to_thread(inspect, tmp_path)).waiting.events == 21
        spool.close()
        await spool.finish()

    run(main())


def test_a_closed_spool_is_left_as_it_is(tmp_path: Path, run: Run) -> None:
    """Looking at a spool that nobody has open makes no file beside it, which the next bridge might not be allowed to open."""
    spool = opened(tmp_path)

    async def main() -> None:
        await spool.append(batch(7))
        spool.close()
        await spool.finish()

    run(main())
    before = files_in(tmp_path)
    assert inspect(tmp_path).waiting.events == 7
    assert files_in(tmp_path) == before
    assert not list(tmp_path.glob("*-shm"))


def test_books_that_do_not_balance(tmp_path: Path, run: Run) -> None:
    """A record that went without a word is told to the event."""
    test_a_closed_spool_is_left_as_it_is(tmp_path, run)
    with closing(sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)) as connection:
        connection.execute("DELETE FROM records").close()
    assert [each.unaccounted for each in inspect(tmp_path).ledgers] == [7, 7]


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("PRAGMA user_version = 1", "has format 1: the next start of this otel-bridge makes it format 3"),
        ("PRAGMA user_version = 9", "has format 9, and this otel-bridge knows 3"),
        ("PRAGMA application_id = 5", "is a database of something else"),
        ("DROP TABLE books", "cannot be read: no such table: books"),
    ],
)
def test_what_cannot_be_read(tmp_path: Path, run: Run, statement: str, told: str) -> None:
    """Another format, another database and a damaged one are told apart, with the way out."""
    test_a_closed_spool_is_left_as_it_is(tmp_path, run)
    with closing(sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)) as connection:
        connection.execute(statement).close()
    with pytest.raises(ConfigError, match=told):
        inspect(tmp_path)


def test_no_spool(tmp_path: Path) -> None:
    """A directory without a spool is told, and stays empty; so is a file that is none."""
    with pytest.raises(ConfigError, match=r"spool\.db is missing"):
        inspect(tmp_path)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / FILE_NAME).write_bytes(b"nothing of the kind" * 99)
    with pytest.raises(ConfigError, match="cannot be read: file is not a database"):
        inspect(tmp_path)


def test_half_of_a_transaction_is_not_shown(tmp_path: Path, run: Run) -> None:
    """What a kill has left of a spool that was being taken over is what its journal undoes, at the next start."""

    async def live(folder: Path, batches: int) -> None:
        spool = await asyncio.to_thread(opened, folder)
        for position in range(batches):
            await spool.append(batch(1000, position))
        spool.close()
        await spool.finish()

    run(live(tmp_path / "whole", 20))
    with closing(sqlite3.connect(tmp_path / "whole" / FILE_NAME, isolation_level=None)) as connection:
        for statement in ("PRAGMA journal_mode = DELETE", "PRAGMA cache_size = 1", "BEGIN"):
            connection.execute(statement).close()
        connection.execute("UPDATE records SET events = events - 1").close()
        shutil.copytree(tmp_path / "whole", tmp_path / "killed")
        connection.execute("ROLLBACK").close()
    with pytest.raises(ConfigError, match="readonly"):
        inspect(tmp_path / "killed")
    run(live(tmp_path / "killed", 0))
    assert inspect(tmp_path / "killed").waiting.events == 20_000
