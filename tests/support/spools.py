"""Spools for tests, of every implementation, and `check_spool`, which holds one of them to a law of support/spool_laws.py."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol

from support.scenes import batch_of, execute, runtime

from otel_bridge.model.destination import DEFAULT
from otel_bridge.model.events import EventBatch
from otel_bridge.spool.lot import LotLimits
from otel_bridge.spool.memory import MemorySpool
from otel_bridge.spool.opening import Clocks
from otel_bridge.spool.protocol import Awaited, Ended, Outlet, Record, Spool
from otel_bridge.spool.room import Bounds
from otel_bridge.spool.sqlite import SqliteSpool

ROOMY = LotLimits(max_age_s=60.0, max_bytes=10**9, max_events=10**6, max_bytes_per_build=10**9, max_events_per_build=10**6)
NOTHING = LotLimits(1.0, 0, 0, 0, 0)
LIMITS = LotLimits(60.0, 10**6, 100, 10**6, 60, max_builds=3)
DAY_S = 86_400.0
BUILD = Awaited("b")


def outlet_of(spool: Spool) -> Outlet:
    """The way out of a spool with one destination."""
    return spool.outlets[DEFAULT]


def emitted(records: Sequence[Record]) -> Ended:
    """That all went well."""
    return Ended(sum(len(record.batch) for record in records))


def spool_of(max_bytes: int) -> MemorySpool:
    """An empty spool with room for parked records."""
    return MemorySpool(max_bytes, ROOMY)


def batch(events: int, position: int = 0) -> EventBatch:
    """A batch of so many events."""
    return batch_of((execute(position), [runtime("e", n, n + 1) for n in range(events)]))


def positions(records: Sequence[Record]) -> list[int]:
    """Which batches these are."""
    return [block.position for record in records for block in record.batch.blocks]


class Watched:
    """A watch that remembers."""

    def __init__(self) -> None:
        """Nothing has happened."""
        self.found_for: Counter[str] = Counter()
        self.drops_of: Counter[tuple[str, str]] = Counter()

    def recovered(self, destination: str, events: int) -> None:
        """Events of an earlier process."""
        self.found_for[destination] += events

    def dropped(self, destination: str, events: int, reason: str) -> None:
        """Events were given up."""
        self.drops_of[destination, reason] += events

    @property
    def found(self) -> int:
        """For the one destination."""
        return self.found_for.total()

    @property
    def drops(self) -> Counter[str]:
        """By reason, whatever the destination."""
        drops: Counter[str] = Counter()
        for (_, reason), events in self.drops_of.items():
            drops[reason] += events
        return drops


class Make(Protocol):
    """Makes a spool; `now_s` is its clock."""

    def __call__(
        self, folder: Path, max_bytes: int, lot: LotLimits, now_s: Callable[[], float], destinations: Sequence[str]
    ) -> Spool:
        """An empty spool in an empty folder."""


def make_memory(
    folder: Path,  # noqa: ARG001 - as the protocol says
    max_bytes: int,
    lot: LotLimits,
    now_s: Callable[[], float],
    destinations: Sequence[str],
) -> Spool:
    """The spool in memory."""
    return MemorySpool(max_bytes, lot, now_s, destinations)


def make_sqlite(
    folder: Path, max_bytes: int, lot: LotLimits, now_s: Callable[[], float], destinations: Sequence[str]
) -> SqliteSpool:
    """The spool on disk, all of it in memory too."""
    clocks = Clocks(monotonic_ns=lambda: int(now_s() * 1e9))
    bounds = Bounds(max_bytes, 10**9, DAY_S)
    return SqliteSpool(folder, bounds, lot, Watched(), destinations=destinations, clocks=clocks)


def make_spilling(
    folder: Path, max_bytes: int, lot: LotLimits, now_s: Callable[[], float], destinations: Sequence[str]
) -> SqliteSpool:
    """The spool on disk, without any memory."""
    clocks = Clocks(monotonic_ns=lambda: int(now_s() * 1e9))
    bounds = Bounds(max_bytes, 0, DAY_S)
    return SqliteSpool(folder, bounds, lot, Watched(), destinations=destinations, clocks=clocks)


MAKERS: tuple[Make, ...] = (make_memory, make_sqlite, make_spilling)
"""Of every implementation."""


class Ground:
    """Where a law makes its spools, with a clock that it moves."""

    def __init__(self, make: Make, folder: Path) -> None:
        """Nothing is there."""
        self._make = make
        self._folder = folder
        self._made: list[Spool] = []
        self.time_s = 1000.0

    async def spool(self, max_bytes: int = 10**6, lot: LotLimits = LIMITS, destinations: Sequence[str] = (DEFAULT,)) -> Spool:
        """An empty spool, made off the loop since it may open files."""
        folder = self._folder / str(len(self._made))
        made = await asyncio.to_thread(self._make, folder, max_bytes, lot, lambda: self.time_s, destinations)
        self._made.append(made)
        return made

    async def leave(self) -> None:
        """Let all spools go."""
        for spool in self._made:
            spool.close()
            await spool.finish()


async def check_spool(law: "Law", make: Make, folder: Path) -> None:
    """Whether a law holds for an implementation."""
    ground = Ground(make, folder)
    try:
        await law(ground)
    finally:
        await ground.leave()


Law = Callable[[Ground], Awaitable[None]]
