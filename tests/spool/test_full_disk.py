"""A disk without room: senders are told to come again, what is kept goes on, and so does the spool once there is room."""

import asyncio
import contextlib
import os
import resource
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.scenes import batch_of, delegated, execute
from support.spools import DAY_S, ROOMY, Watched, batch, emitted, outlet_of, positions

from otel_bridge.errors import SpoolFull
from otel_bridge.model.events import EventBatch
from otel_bridge.spool import writer
from otel_bridge.spool.opening import FILE_NAME
from otel_bridge.spool.protocol import Awaited
from otel_bridge.spool.room import Bounds
from otel_bridge.spool.sqlite import SqliteSpool

Run = Callable[[Any], Any]


def opened(folder: Path, watched: Watched | None = None) -> SqliteSpool:
    """A spool that reads everything from disk, and has more room by its settings than the disk."""
    return SqliteSpool(folder, Bounds(10**9, 0, DAY_S), ROOMY, watched or Watched())


@contextlib.contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """No file can grow beyond `size` bytes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def large(position: int) -> EventBatch:
    """A batch of one event and 100 KB."""
    return batch_of((execute(position), [delegated("x", 0, 1, 2, metadata=position.to_bytes(4, "big") * 25_000)]))


async def fill(spool: SqliteSpool) -> int:
    """Append until it says that it is full; how many batches it kept."""
    kept = 0
    while True:
        try:
            await spool.append(large(kept))
        except SpoolFull as full:
            assert full.retry_after_s  # noqa: PT017 - what a sender is told
            return kept
        kept += 1


async def drain(spool: SqliteSpool) -> list[int]:
    """Everything that is in line."""
    found = []
    outlet = outlet_of(spool)
    while outlet.events:
        records = await outlet.read(10_000)
        found += positions(records)
        await outlet.done(records, emitted(records))
    return found


async def append_when_there_is_room(spool: SqliteSpool, position: int) -> None:
    """As a sender does that is told to come again."""
    async with asyncio.timeout(20):
        while True:
            try:
                return await spool.append(batch(1, position))
            except SpoolFull:
                await asyncio.sleep(0.05)


def test_a_file_that_cannot_grow(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is refused is not kept; what is kept is read, done and parked meanwhile; later it is as if nothing had been."""
    monkeypatch.setattr(writer, "_RETRY_AFTER_S", 0.05)
    spool = opened(tmp_path)
    outlet = outlet_of(spool)

    async def go() -> int:
        with files_of_at_most(1 << 20):
            kept = await fill(spool)
            assert kept >= 3
            records = await outlet.read(1)
            assert await outlet.park(records[0], Awaited("b")) is None
            with contextlib.suppress(SpoolFull):
                assert await spool.release(Awaited("b"), "build") == {"default": 1}
            assert positions(await outlet.read(1)) == [1]
        assert outlet.events + outlet.parked_events == kept
        await append_when_there_is_room(spool, kept)
        spool.close()
        await spool.finish()
        return kept

    kept = run(go())
    watched = Watched()
    again = opened(tmp_path, watched)

    async def rest() -> list[int]:
        await again.release(Awaited("b"), "build")
        found = await drain(again)
        again.close()
        await again.finish()
        return found

    assert sorted(run(rest())) == list(range(kept + 1))
    assert (watched.found, watched.drops) == (kept + 1, {})


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "none", disk], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("this machine lets nobody mount a small file system")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)  # lazily: a failed test leaves its spool open


def test_the_spool_never_fills_the_disk(run: Run, small_disk: Path) -> None:
    """It leaves its reserve free, so that what is done can be written, and room comes back by itself."""
    spool = opened(small_disk)

    async def go() -> None:
        kept = await fill(spool)
        assert kept > 10
        left = os.statvfs(small_disk)
        assert left.f_bavail * left.f_frsize > writer.RESERVE_BYTES / 2
        assert await drain(spool) == list(range(kept))
        await append_when_there_is_room(spool, kept)
        assert await drain(spool) == [kept]
        spool.close()
        await spool.finish()

    run(go())


def test_a_disk_that_others_fill(run: Run, small_disk: Path) -> None:
    """Nothing can be written: all that is kept is still read, and what becomes of it is written once there is room."""
    watched = Watched()
    spool = opened(small_disk)

    async def go() -> None:
        for position in range(20):
            await spool.append(large(position))
        filler = small_disk / "filler"
        with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(bytes(4096)):
                pass
        with pytest.raises(SpoolFull, match="cannot write now"):
            await spool.append(batch(1))
        assert await drain(spool) == list(range(20))
        await asyncio.to_thread(filler.unlink)
        await append_when_there_is_room(spool, 20)
        spool.close()
        await spool.finish()

    run(go())
    again = opened(small_disk, watched)
    assert watched.found == outlet_of(again).events == 1
    again.close()
    run(again.finish())


def test_a_large_file_that_is_empty_is_made_small(run: Run, tmp_path: Path) -> None:
    """At the next start: what an outage took is given back when it is over."""
    spool, path = opened(tmp_path), tmp_path / FILE_NAME

    async def fill_and_drain() -> None:
        for position in range(200):
            await spool.append(large(position))
        assert await drain(spool) == list(range(200))
        spool.close()
        await spool.finish()

    run(fill_and_drain())
    assert path.stat().st_size > 200 * 100_000
    again = opened(tmp_path)
    again.close()
    run(again.finish())
    assert path.stat().st_size < 1 << 20
