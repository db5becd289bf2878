"""How much is in a table of the spool's file, as a whole and for each destination."""

from collections.abc import Mapping
from dataclasses import dataclass

from otel_bridge.spool.schema import bit


@dataclass(frozen=True, slots=True)
class Held:
    """Records, their events and bytes, and the last number among them (0: there is none)."""

    records: int = 0
    events: int = 0
    size: int = 0
    last: int = 0

    def __add__(self, other: "Held") -> "Held":
        return Held(
            self.records + other.records,
            self.events + other.events,
            self.size + other.size,
            max(self.last, other.last),
        )


Shares = Mapping[int, Held]
"""By the mask of the destinations that are not done with the records (schema.py, `pending`)."""


def total(shares: Shares) -> Held:
    """Each record once."""
    return sum(shares.values(), Held())


def share_of(shares: Shares, number: int) -> Held:
    """What one destination is not done with."""
    return sum((held for mask, held in shares.items() if mask & bit(number)), Held())
