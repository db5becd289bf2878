"""Spools for tests, and what every spool must do: one function a law, each on an empty spool of its own."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import pytest
from support.batches import equal_batches
from support.scenes import batch_of, execute, runtime

from otel_bridge.errors import Draining, SpoolFull
from otel_bridge.model.events import EventBatch
from otel_bridge.spool.lot import LotLimits
from otel_bridge.spool.memory import MemorySpool
from otel_bridge.spool.protocol import Awaited, Record, Spool

ROOMY = LotLimits(max_age_s=60.0, max_bytes=10**9, max_events=10**6, max_bytes_per_build=10**9, max_events_per_build=10**6)
NOTHING = LotLimits(1.0, 0, 0, 0, 0)
LIMITS = LotLimits(60.0, 10**6, 100, 10**6, 60, max_builds=3)
"""Those of a spool that is checked: it takes a million bytes."""


def spool_of(max_bytes: int) -> MemorySpool:
    """An empty spool with room for parked records."""
    return MemorySpool(max_bytes, ROOMY)


def batch(events: int, position: int = 0) -> EventBatch:
    """A batch of so many events."""
    return batch_of((execute(position), [runtime("e", n, n + 1) for n in range(events)]))


class Watched:
    """A watch that remembers."""

    def __init__(self) -> None:
        """Nothing has happened."""
        self.found = 0
        self.drops: Counter[str] = Counter()

    def recovered(self, events: int) -> None:
        """Events of an earlier process."""
        self.found += events

    def dropped(self, events: int, reason: str) -> None:
        """Events were given up."""
        self.drops[reason] += events


def positions(records: Sequence[Record]) -> list[int]:
    """Which batches these are."""
    return [block.position for record in records for block in record.batch.blocks]
