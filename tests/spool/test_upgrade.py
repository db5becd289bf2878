"""
A spool of an earlier format goes on as one of the present.

format_1/ was made by the code of commit 706e8ce: batches 0 to 5, of 1 to 6 events, were appended; 0 was done; 1, bound to the
build "bound", and 2 were parked for the build "b"; then the spool was closed in good order. It has no destinations yet.

format_2/ was made by the code of commit 0ce970b, with the destinations "default" and "archive": of the same batches "default"
was done with 0 and had parked 1 for the build "b".
"""

import gzip
import shutil
import sqlite3
import struct
import zlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.spools import DAY_S, ROOMY, Watched, emitted, outlet_of, positions

from otel_bridge.model.destination import DEFAULT
from otel_bridge.spool import upgrade
from otel_bridge.spool.books import Account
from otel_bridge.spool.file import SpoolFile
from otel_bridge.spool.opening import FILE_NAME
from otel_bridge.spool.protocol import Awaited
from otel_bridge.spool.room import Bounds
from otel_bridge.spool.schema import FORMAT
from otel_bridge.spool.sqlite import SqliteSpool

Run = Callable[[Any], Any]

EVENTS = 20
"""Of the one of format 1."""


def put(format_: int, folder: Path) -> Path:
    """A data directory with the spool of that format."""
    before = Path(__file__).parent / f"format_{format_}"
    (folder / FILE_NAME).write_bytes(gzip.decompress((before / "spool.db.gz").read_bytes()))
    shutil.copy(before / "spool.mark", folder)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data directory with the first spool."""
    return put(1, tmp_path)


def opened(folder: Path, watched: Watched, names: tuple[str, ...] = ("default",)) -> SqliteSpool:
    """The spool in a folder."""
    return SqliteSpool(folder, Bounds(10**8, 10**8, 1e5 * DAY_S), ROOMY, watched, destinations=names)


async def drained(spool: SqliteSpool, destination: str = DEFAULT) -> list[tuple[int, str | None]]:
    """Which batches come out, and what they are bound to."""
    outlet, found = spool.outlets[destination], []
    await spool.release(Awaited("b"), "late")
    spool.close()
    while records := await outlet.read(100):
        found += [(positions([record])[0], record.build) for record in records]
        await outlet.done(records, emitted(records))
    assert outlet.unaccounted_events == 0
    await spool.finish()
    return found


def format_of(folder: Path) -> int:
    """What the file says."""
    with closing(sqlite3.connect(folder / FILE_NAME)) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def test_all_that_was_there_is_there(run: Run, folder: Path) -> None:
    """In order, bound as it was, parked as it was; what was done is not; a destination that is new has nothing of it."""
    assert format_of(folder) == 1
    watched = Watched()
    spool = opened(folder, watched, ("default", "archive"))
    assert (dict(watched.found_for), watched.drops) == ({"default": EVENTS}, {})
    assert (spool.outlets["archive"].events, spool.outlets["archive"].parked_events) == (0, 0)
    assert (outlet_of(spool).events, outlet_of(spool).parked_events) == (15, 5)
    assert run(drained(spool)) == [(3, None), (4, None), (5, None), (1, "late"), (2, "late")]
    assert format_of(folder) == FORMAT
    watched = Watched()
    assert run(drained(opened(folder, watched))) == []
    assert watched.found == 0


def test_one_that_had_destinations_goes_on(run: Run, tmp_path: Path) -> None:
    """Each has what it had, parked as it was, to the last event; the file is of the present format then."""
    assert format_of(put(2, tmp_path)) == 2
    left = {
        DEFAULT: [(2, None), (3, None), (4, None), (5, None), (1, "late")],
        "archive": [(position, None) for position in range(6)],
    }
    for destination, found in left.items():
        assert run(drained(opened(tmp_path, Watched(), tuple(left)), destination)) == found
        assert format_of(tmp_path) == FORMAT


def test_the_books_begin_with_what_was_there(run: Run, folder: Path) -> None:
    """How earlier events ended is not known, and not made up."""
    spool = opened(folder, Watched())
    accounts = run_in(run, spool, SpoolFile.accounts)
    assert accounts == [Account(1, "default", accepted=EVENTS)]
    assert run(drained(spool))


def run_in(run: Run, spool: SqliteSpool, act: Callable[[SpoolFile], Any]) -> Any:
    """What the thread of the file answers."""

    async def ask() -> Any:
        return await spool._stock.commits.submit(act, reads=True)

    return run(ask())


@pytest.mark.parametrize("statement", range(13))
def test_a_kill_during_the_upgrade(
    statement: int, run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Before any of its statements: the files as they are then are format 1, and the next start upgrades them."""
    crash = tmp_path_factory.mktemp("crash")

    class Killed:
        """A connection that ends with a statement."""

        def __init__(self, connection: sqlite3.Connection) -> None:
            self.connection, self.left = connection, statement

        def __getattr__(self, name: str) -> Any:
            return getattr(self.connection, name)

        def execute(self, *arguments: Any) -> sqlite3.Cursor:
            """Run one, or copy the files away before."""
            if not self.left:
                for path in folder.iterdir():
                    if path.suffix != ".db-shm":
                        shutil.copy(path, crash)
            self.left -= 1
            return self.connection.execute(*arguments)

    whole = upgrade.upgrade
    monkeypatch.setattr(
        "otel_bridge.spool.opening.upgrade",
        lambda connection, mark, found: whole(Killed(connection), mark, found),  # type: ignore[arg-type]  # it is one
    )
    spool = opened(folder, Watched())
    assert run(drained(spool))
    monkeypatch.undo()
    assert format_of(crash) == 1
    watched = Watched()
    spool = opened(crash, watched)
    assert (watched.found, watched.drops) == (EVENTS, {})
    assert [position for position, _ in run(drained(spool))] == [3, 4, 5, 1, 2]


def test_what_its_log_has_lost_is_told(run: Run, folder: Path) -> None:
    """The mark of format 1 knows of more than its books: the difference is counted, once."""
    mark = folder / "spool.mark"
    kept, gone = 21 + 7, 1
    mark.write_bytes(old_mark(kept, gone))
    watched = Watched()
    spool = opened(folder, watched)
    assert (watched.found, dict(watched.drops)) == (EVENTS + 7, {"corrupt": 7})
    assert run(drained(spool))
    watched = Watched()
    run(drained(opened(folder, watched)))
    assert (watched.found, watched.drops) == (0, {})


def old_mark(kept: int, gone: int) -> bytes:
    """The mark as format 1 has it."""
    numbers = struct.pack("<QQ", kept, gone)
    return numbers + struct.pack("<I", zlib.crc32(numbers))


def test_a_damaged_one_gives_what_is_left(run: Run, folder: Path) -> None:
    """Its records go into a new file, and what cannot be read is counted."""
    path = folder / FILE_NAME
    data = bytearray(path.read_bytes())
    with closing(sqlite3.connect(path)) as connection:
        (body,) = connection.execute("SELECT body FROM records WHERE number = 5").fetchone()
        (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'parked_by_until'").fetchone()
    assert bytes(body) in data
    data[(root - 1) * 4096 : root * 4096] = bytes(4096)  # an index that is gone: the file is damaged, and no record
    path.write_bytes(data)
    watched = Watched()
    spool = opened(folder, watched)
    assert (folder / f"{FILE_NAME}.damaged").exists()
    assert (watched.found, watched.drops) == (EVENTS, {})
    assert [position for position, _ in run(drained(spool))] == [3, 4, 5, 1, 2]
    assert format_of(folder) == FORMAT
