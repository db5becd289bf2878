"""What disks do to a spool's file: the rest goes on, and what is lost is counted to the event."""

import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.damaged_spools import BATCHES, EVENTS, closed, drained, filled, opened
from support.spools import DAY_S, Watched, batch, emitted, outlet_of

from otel_bridge.errors import ConfigError, Unavailable
from otel_bridge.spool.opening import FILE_NAME
from otel_bridge.spool.room import Bounds

Run = Callable[[Any], Any]


def test_a_damaged_record_costs_itself(run: Run, tmp_path: Path) -> None:
    """A changed byte in a body, at rest: the record is set apart, counted, and all others come out in order."""
    run(filled(opened(tmp_path)))
    path = tmp_path / FILE_NAME
    with closing(sqlite3.connect(path)) as connection:
        (body,) = connection.execute("SELECT body FROM records WHERE number = 18").fetchone()
    data = bytearray(path.read_bytes())
    data[data.index(body) + len(body) // 2] ^= 4
    path.write_bytes(data)

    watched = Watched()
    assert run(drained(opened(tmp_path, watched))) == [n for n in range(BATCHES) if n != 17]
    assert (watched.found, dict(watched.drops)) == (BATCHES * EVENTS, {"corrupt": EVENTS})
    with closing(sqlite3.connect(path)) as connection:
        kept = connection.execute("SELECT number, events, reason FROM quarantine").fetchall()
    assert kept == [(18, EVENTS, "checksum")]
    watched = Watched()
    assert (run(drained(opened(tmp_path, watched))), watched.found, watched.drops) == ([], 0, {})


@pytest.mark.parametrize("damaged", [(), (18,), (9,)], ids=["alone", "beside a damaged body", "of a damaged body"])
@pytest.mark.parametrize("claimed", [EVENTS + 64, EVENTS - 8])
def test_a_count_that_fell_over_costs_nothing(claimed: int, damaged: tuple[int, ...], run: Run, tmp_path: Path) -> None:
    """A record that says it has other events than its body holds is read; what is lost beside it is counted to the event."""
    run(filled(opened(tmp_path), parked=3))
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection:
        assert connection.execute("UPDATE parked SET events = ? WHERE number = 2", (claimed,)).rowcount
        assert connection.execute("UPDATE records SET events = ? WHERE number = 9", (claimed,)).rowcount
        for number in damaged:
            connection.execute("UPDATE records SET body = zeroblob(length(body)) WHERE number = ?", (number,))
        connection.commit()
    watched = Watched()
    found = run(drained(opened(tmp_path, watched)))
    assert sorted(found) == [n for n in range(BATCHES) if n + 1 not in damaged]
    assert watched.found == BATCHES * EVENTS
    assert dict(watched.drops) == ({"corrupt": EVENTS} if damaged else {})


def test_books_that_make_no_sense_are_taken_from_the_mark(run: Run, tmp_path: Path) -> None:
    """A page of the books that reads as nothing keeps no spool from starting: the mark has them, and nothing is lost."""
    run(filled(opened(tmp_path)))
    path = tmp_path / FILE_NAME
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(
            "UPDATE sqlite_master SET sql = replace(sql, 'name TEXT NOT NULL', 'name TEXT') WHERE name = 'books'"
        )
        connection.commit()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE books SET name = NULL")
        connection.commit()
    watched = Watched()
    assert run(drained(opened(tmp_path, watched))) == list(range(BATCHES))
    assert (watched.found, dict(watched.drops)) == (BATCHES * EVENTS, {})


def test_the_quarantine_is_bounded(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest records leave it."""
    monkeypatch.setattr("otel_bridge.spool.file.MAX_QUARANTINE_BYTES", 1500)
    run(filled(opened(tmp_path)))
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection:
        connection.execute("UPDATE records SET checksum = 1")
        connection.commit()
    watched = Watched()
    assert run(drained(opened(tmp_path, watched))) == []
    assert watched.drops == {"corrupt": BATCHES * EVENTS}
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection:
        numbers = [number for (number,) in connection.execute("SELECT number FROM quarantine ORDER BY number")]
    assert 2 <= len(numbers) < 10
    assert numbers == list(range(BATCHES + 1 - len(numbers), BATCHES + 1))


@pytest.mark.parametrize("seed", range(12))
def test_a_damaged_page_costs_what_lies_on_it(seed: int, run: Run, tmp_path: Path) -> None:
    """Anywhere in the file but its head: it is set aside if need be, and what cannot be read is counted to the event."""
    run(filled(opened(tmp_path), parked=10))
    path = tmp_path / FILE_NAME
    data = bytearray(path.read_bytes())
    chance = random.Random(seed)  # noqa: S311 - to be the same in every run
    start = chance.randrange(4096, len(data) - 512)
    data[start : start + 512] = chance.randbytes(512)
    path.write_bytes(data)

    watched = Watched()
    found = run(drained(opened(tmp_path, watched)))
    assert len(found) == len(set(found))
    assert set(found) <= set(range(BATCHES))
    assert watched.drops.total() == (BATCHES - len(found)) * EVENTS
    assert watched.found == BATCHES * EVENTS


@pytest.mark.parametrize("seed", range(12))
def test_a_damaged_head_is_refused_or_repaired(seed: int, run: Run, tmp_path: Path) -> None:
    """The first page says what the file is, and where its tables are: nothing is claimed that cannot be known."""
    run(filled(opened(tmp_path), parked=10))
    path = tmp_path / FILE_NAME
    data = bytearray(path.read_bytes())
    chance = random.Random(seed)  # noqa: S311 - to be the same in every run
    start = chance.randrange(4096 - 64)
    data[start : start + 64] = chance.randbytes(64)
    path.write_bytes(data)

    watched = Watched()
    try:
        spool = opened(tmp_path, watched)
    except ConfigError:
        assert path.read_bytes() == data
        return
    found = run(drained(spool))
    assert set(found) <= set(range(BATCHES))
    assert watched.drops.total() == watched.found - len(found) * EVENTS
    assert watched.found <= BATCHES * EVENTS


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_a_cut_file_gives_what_is_left(share: float, run: Run, tmp_path: Path) -> None:
    """It is set aside, the loss is counted, and the spool takes new batches."""
    run(filled(opened(tmp_path)))
    path = tmp_path / FILE_NAME
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])

    watched = Watched()
    spool = opened(tmp_path, watched)
    run(spool.append(batch(1, 1000)))
    found = run(drained(spool))
    assert found[-1] == 1000
    assert watched.drops.total() == watched.found - (len(found) - 1) * EVENTS
    assert (tmp_path / f"{FILE_NAME}.damaged").stat().st_size == int(len(data) * share)


def test_a_cut_log_is_told(run: Run, tmp_path: Path) -> None:
    """A write-ahead log that lost its end is consistent, and silent: the mark beside it tells how much is missing."""
    spool, crash = opened(tmp_path / "a"), tmp_path / "b"

    async def go() -> None:
        for position in range(BATCHES):
            await spool.append(batch(EVENTS, position))

    run(go())
    crash.mkdir()
    for name in (FILE_NAME, f"{FILE_NAME}-wal", "spool.mark"):
        (crash / name).write_bytes((tmp_path / "a" / name).read_bytes())
    run(closed(spool))
    wal = crash / f"{FILE_NAME}-wal"
    wal.write_bytes(wal.read_bytes()[: wal.stat().st_size // 2])

    watched = Watched()
    found = run(drained(opened(crash, watched)))
    assert 0 < len(found) < BATCHES
    assert found == list(range(len(found)))
    assert watched.drops == {"corrupt": (BATCHES - len(found)) * EVENTS}
    assert watched.found == BATCHES * EVENTS


@pytest.mark.parametrize("missing", [("-wal",), ("", "-wal"), ("",)], ids=["log", "both", "file"])
def test_what_is_gone_as_a_whole_is_told(missing: tuple[str, ...], run: Run, tmp_path: Path) -> None:
    """Tables that are new know of nothing, as those of a first start: the mark tells what there was, once, and for whom."""
    spool, crash = opened(tmp_path / "a"), tmp_path / "b"

    async def go() -> None:
        for position in range(BATCHES):
            await spool.append(batch(EVENTS, position))
        records = await outlet_of(spool).read(EVENTS)
        await outlet_of(spool).done(records, emitted(records))
        await spool.append(batch(EVENTS, BATCHES))  # what is owed is written with it

    run(go())
    crash.mkdir()
    for name in {"", "-wal"} - {*missing}:
        (crash / f"{FILE_NAME}{name}").write_bytes((tmp_path / "a" / f"{FILE_NAME}{name}").read_bytes())
    (crash / "spool.mark").write_bytes((tmp_path / "a" / "spool.mark").read_bytes())
    run(closed(spool))

    watched = Watched()
    assert run(drained(opened(crash, watched))) == []
    assert (watched.found, dict(watched.drops)) == (BATCHES * EVENTS, {"corrupt": BATCHES * EVENTS})
    watched = Watched()
    assert (run(drained(opened(crash, watched))), watched.found, watched.drops) == ([], 0, {})


def test_a_file_that_is_damaged_while_it_is_used_ends_the_readers(run: Run, tmp_path: Path) -> None:
    """Nothing hangs: readers and senders are told, and the next start repairs what can be repaired."""
    spool = opened(tmp_path, bounds=Bounds(10**8, 0, DAY_S))

    async def go() -> None:
        for position in range(BATCHES):
            await spool.append(batch(EVENTS, position))
        await spool._stock.commits.submit(
            lambda file: file._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall(), reads=True
        )
        path = tmp_path / FILE_NAME
        path.write_bytes(path.read_bytes()[:4096] + bytes(path.stat().st_size - 4096))
        await spool._stock.commits.submit(lambda file: file._connection.execute("PRAGMA cache_size = 0").fetchall(), reads=True)
        with pytest.raises(Unavailable) as told:
            await outlet_of(spool).read(1000)
        assert told.value.reason == "spool_damaged"
        with pytest.raises(Unavailable, match="damaged"):
            await spool.append(batch(1))
        await closed(spool)

    run(go())
    watched = Watched()
    found = run(drained(opened(tmp_path, watched)))
    assert watched.drops.total() == watched.found - len(found) * EVENTS


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"not a database, but something that somebody wants to keep", "is no spool: it starts with 6e 6f 74"),
        (None, "is a database of something else"),
    ],
)
def test_a_file_of_something_else_is_refused_and_kept(content: bytes | None, told: str, tmp_path: Path) -> None:
    """Byte for byte."""
    path = tmp_path / FILE_NAME
    if content is None:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE x (y)")
        content = path.read_bytes()
    else:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=told):
        opened(tmp_path)
    assert path.read_bytes() == content


def test_a_spool_of_another_format_is_refused_and_kept(run: Run, tmp_path: Path) -> None:
    """The version that wrote it can go on."""
    run(filled(opened(tmp_path)))
    path = tmp_path / FILE_NAME
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 4")
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="has format 4, and this otel-bridge knows 3; run the version that wrote it"):
        opened(tmp_path)
    assert path.read_bytes() == before


def test_a_kill_at_the_very_first_start_costs_nothing(run: Run, tmp_path: Path) -> None:
    """A file that has no tables yet gets them."""
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    assert (tmp_path / FILE_NAME).stat().st_size
    run(filled(opened(tmp_path)))
    assert run(drained(opened(tmp_path))) == list(range(BATCHES))


def test_a_kill_during_repair_loses_nothing(run: Run, tmp_path: Path) -> None:
    """Between the two renames the new file has its other name; a log whose file is gone is not mixed into a new one."""
    run(filled(opened(tmp_path)))
    path = tmp_path / FILE_NAME
    path.rename(tmp_path / f"{FILE_NAME}.new")
    (tmp_path / f"{FILE_NAME}.damaged").write_bytes(b"")
    (tmp_path / f"{FILE_NAME}-wal").write_bytes(b"of another file")
    assert run(drained(opened(tmp_path))) == list(range(BATCHES))


def test_a_directory_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    """In the words of the settings."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"spool .*cannot be opened: .*server\.data_dir"):
        opened(tmp_path / "file")
