"""
What the outlets of a spool on disk share: the thread that writes, and how many bytes there are.

Invariant: a record counts from its commit until no destination waits for it, reads it, or has it on its way.
"""

from dataclasses import dataclass
from typing import Protocol

from otel_bridge.spool.age import AgeClock
from otel_bridge.spool.commits import Commits
from otel_bridge.spool.protocol import Watch
from otel_bridge.spool.room import Bounds
from otel_bridge.spool.schema import bit


@dataclass(frozen=True, slots=True)
class Kept:
    """
    What is known of a record that is in memory or on its way.

    pending   mask of the destinations that were not done with it when it came into memory
    """

    size: int
    events: int
    kept_ns: int
    pending: int


class Holder(Protocol):
    """Whoever may still have a record."""

    number: int
    """Of the destination."""

    def has(self, number: int) -> bool:
        """Whether a record waits here, or is on its way, if this destination ever had it."""


class Stock:
    """
    Shared by the outlets, on one event loop.

    size_bytes   of all records, each once
    closed       nothing more comes in
    fault        why nothing can be done any more
    """

    def __init__(self, commits: Commits, clock: AgeClock, bounds: Bounds, watch: Watch) -> None:
        self.commits = commits
        self.clock = clock
        self.bounds = bounds
        self.watch = watch
        self.holders: list[Holder] = []
        self.size_bytes = 0
        self.closed = False
        self.fault: Exception | None = None

    def leave(self, number: int, kept: Kept, holder: Holder) -> None:
        """A destination has no more to do with a record."""
        for other in self.holders:
            if other is not holder and kept.pending & bit(other.number) and other.has(number):
                return
        self.size_bytes -= kept.size

    async def recount(self) -> None:
        """Ask the file how many bytes there are: some were not where they should be."""
        before = self.size_bytes
        there = await self.commits.submit(lambda file: file.size_bytes(), reads=True)
        self.size_bytes += there - before  # not in one statement: what comes and goes meanwhile would be forgotten
