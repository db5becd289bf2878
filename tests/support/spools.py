"""Spools for tests that are about something else."""

from otel_bridge.spool.lot import LotLimits
from otel_bridge.spool.memory import MemorySpool

ROOMY = LotLimits(max_age_s=60.0, max_bytes=10**9, max_events=10**6, max_bytes_per_build=10**9, max_events_per_build=10**6)
NOTHING = LotLimits(1.0, 0, 0, 0, 0)


def spool_of(max_bytes: int) -> MemorySpool:
    """An empty spool with room for parked records."""
    return MemorySpool(max_bytes, ROOMY)
