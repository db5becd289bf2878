"""Records that come in together: kept by few statements, all or none, and in the books."""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.spools import DAY_S, ROOMY, Watched, batch, outlet_of, positions

from otel_bridge.spool import arrivals
from otel_bridge.spool.arrivals import Arrival
from otel_bridge.spool.books import Account, Books
from otel_bridge.spool.encode import encode
from otel_bridge.spool.file import SpoolFile
from otel_bridge.spool.inspection import inspect
from otel_bridge.spool.opening import SYSTEM, open_file
from otel_bridge.spool.protocol import Ended, Seen
from otel_bridge.spool.room import Bounds
from otel_bridge.spool.rows import ranges_of
from otel_bridge.spool.sqlite import SqliteSpool
from otel_bridge.spool.writer import Work, Writer

Run = Callable[[Any], Any]

MANY = 2 * arrivals.AT_ONCE + 3


def seen(number: int) -> Seen:
    """A request of its own."""
    return Seen(number.to_bytes(16, "big"), bytes(16), b"taken")


def test_many_at_once_are_kept_in_order(run: Run, tmp_path: Path) -> None:
    """More than one statement takes: each with its number, its request, if it has one, and its place in the books."""
    spool = SqliteSpool(tmp_path, Bounds(10**8, 0, DAY_S), ROOMY, Watched())

    async def go() -> list[int]:
        requests = [seen(n) if n % 3 else None for n in range(MANY)]
        await asyncio.gather(*(spool.append(batch(2, n), request) for n, request in enumerate(requests)))
        read = await outlet_of(spool).read(10 * MANY)
        spool.close()
        await spool.finish()
        return positions(read)

    assert run(go()) == list(range(MANY))
    found = inspect(tmp_path)
    (ledger,) = found.ledgers
    assert (ledger.accepted, ledger.waiting, ledger.unaccounted) == (2 * MANY, 2 * MANY, 0)
    assert (found.waiting.records, found.seen) == (MANY, MANY - len(range(0, MANY, 3)))


@pytest.mark.parametrize("count", [1, 3, MANY])
@pytest.mark.parametrize("broken", ["seen", "books"])
def test_what_fails_leaves_nothing(count: int, broken: str, tmp_path: Path) -> None:
    """Alone or beside other work: no record, no request, and the books as they were, on disk and in memory."""
    with open_file(tmp_path, ("default",), "FULL", SYSTEM).file as file:
        writer = Writer(file, tmp_path)
        writer.commit([Work(Arrival(encode(batch(4)), 4, seen(99))), Work(lambda file: file.end(1, [1], Ended(4)))])
        before = told(file)
        last = f"INSERT ON seen WHEN NEW.key = x'{seen(count - 1).key.hex()}'"
        when = {"seen": last, "books": f"UPDATE ON books WHEN NEW.accepted = {4 + count}"}[broken]
        file._connection.execute(f"CREATE TEMP TRIGGER fail BEFORE {when} BEGIN SELECT RAISE(ABORT, 'the last fails'); END")
        group = [Work(Arrival(encode(batch(1)), 1, seen(n))) for n in range(count)]
        with pytest.raises(sqlite3.IntegrityError, match="the last fails"):
            writer._transact(group)
        file._connection.execute("DROP TRIGGER fail")
        assert told(file) == before == (0, 1, [Account(1, "default", 4, 4)], [Account(1, "default", 4, 4)])
        writer.commit(group)
        assert told(file) == (
            count,
            1 + count,
            [Account(1, "default", 4 + count, 4)],
            [Account(1, "default", 4 + count, 4)],
        )


def test_what_is_told_to_have_failed_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the books, forgotten since a write failed, cannot be read: else its sender would send it once more."""

    def fail(*_: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    with closing(asyncio.new_event_loop()) as loop, open_file(tmp_path, ("default",), "FULL", SYSTEM).file as file:
        file.roll_back()
        arrival = Work(Arrival(encode(batch(1)), 1), loop.create_future())
        with monkeypatch.context() as patch:
            patch.setattr(Books, "read", fail)
            ((_, _, error),) = Writer(file, tmp_path).commit([arrival])
        assert error is not None
        assert told(file)[0] == 0


def test_the_time_is_noted_before_anything_waits(tmp_path: Path) -> None:
    """The first record of a new file gets older from its commit on, whatever ends the process then."""
    with open_file(tmp_path, ("default",), "FULL", SYSTEM).file as file:
        Writer(file, tmp_path).commit([Work(Arrival(encode(batch(1)), 1))])
        assert inspect(tmp_path).noted_ns > 0


def told(file: SpoolFile) -> tuple[int, int, list[Account], list[Account]]:
    """Records, requests, and the books as they are on disk and as they are remembered."""
    books = file._books
    return sum(held.records for held in file.waiting().values()), len(file.seen()), books.read(), list(books.now())


def test_the_file_has_no_trace_of_how_it_is_written(tmp_path: Path) -> None:
    """Whoever else opens it, an earlier version for one, finds the tables of its format and nothing more."""
    with open_file(tmp_path, ("default",), "FULL", SYSTEM).file as file:
        names = file._connection.execute("SELECT name FROM sqlite_master WHERE name LIKE 'arriv%'").fetchall()
        own = file._connection.execute("SELECT name FROM sqlite_temp_master").fetchall()
    assert (names, sorted(own)) == ([], [("arrive",), ("arriving",)])


@given(st.sets(st.integers(0, 40)))
def test_ranges_are_the_numbers(numbers: set[int]) -> None:
    """All of them, none beside, and as few ranges as there are stretches."""
    ranges = ranges_of(list(numbers))
    assert [number for first, last in ranges for number in range(first, last + 1)] == sorted(numbers)
    assert len(ranges) == sum(number - 1 not in numbers for number in numbers)
