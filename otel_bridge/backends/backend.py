"""
What can be known of an ExecuTorch backend: how to read the identifiers that it logs, and what its numbers are worth.

Invariants
* A fact stands with its source, or it is not known. What is not known is said (`Reading` by default), never guessed.
* Reading is total: whatever a rule does with an identifier, there is a `Reading`.
* Nothing here resolves. A rule may name the one entry of a debug handle map that an identifier belongs to; whether the map has
  that entry, and which operators it lists, is for the map to say.
"""

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from otel_bridge.model.events import Identifier

_log = logging.getLogger(__name__)

_ORDINAL = re.compile(r"\s*#\d+$")
_KEY = re.compile(r"[a-z0-9_]{1,64}\Z")
_INT64 = 2**63
_NOT_IN_KEY = re.compile(r"[^a-z0-9]+")


class TimeQuality(StrEnum):
    """What the times of an event are worth: the value of `executorch.time.quality`, left out when `MEASURED`."""

    MEASURED = "measured"
    LAID_OUT = "laid_out"
    """Durations are real, starts are laid end to end by the backend."""
    ESTIMATED = "estimated"
    """Both come from a cost model."""
    DURATION_ONLY = "duration_only"
    """There is a duration and no start."""
    FOREIGN_CLOCK = "foreign_clock"
    """Ticks of another clock than the host's."""
    UNKNOWN = "unknown"
    """The backend is not known: its ticks are believed only inside its call."""


class Kind(StrEnum):
    """What kind of thing an identifier stands for."""

    OPERATOR = "operator"
    """Work on operators of the model: its map says which."""
    PHASE = "phase"
    """A phase of the delegate: initialisation, a copy, the whole graph."""
    COUNTER = "counter"
    """A value that is no time."""
    CARRIER = "carrier"
    """It is logged for its metadata; its time is that of collecting them."""


class Unit(StrEnum):
    """What start and end of an event count: the value of `executorch.time.unit`, by UCUM where UCUM has it."""

    TICKS = "ticks"
    """Ticks of the event's clock, as the sender describes it."""
    NANOSECONDS = "ns"
    MICROSECONDS = "us"
    BYTES = "By"
    COUNT = "{count}"
    CYCLES = "{cycle}"
    UNSPECIFIED = "1"
    """The backend does not say: time or not."""

    @property
    def ns(self) -> int | None:
        """Nanoseconds in one; None: it is no time, or the sender's clock says."""
        return {Unit.NANOSECONDS: 1, Unit.MICROSECONDS: 1000}.get(self)


@dataclass(frozen=True, slots=True)
class Timing:
    """
    Start and end of an event, as its backend logs them.

    unit          on the host's clock; on a clock of its own, which the sender then describes, ticks of that
    counter_bits  width of the counter: a narrower one wraps
    """

    quality: TimeQuality = TimeQuality.UNKNOWN
    unit: Unit = Unit.TICKS
    counter_bits: int = 64


@dataclass(frozen=True, slots=True)
class Reading:
    """
    An identifier, read by its backend's rule.

    name       of the span where no operator is known: low cardinality, so no ordinal and no argument
    counter    for a counter: the end of its attribute's key, within [a-z0-9_]
    key, rule  the entry of the map that the identifier belongs to with certainty, and the rule that says so; None, "": none
    node_id    ordinal of the node in the delegate's own graph; it is no debug handle
    details    what else the identifier says: key within [a-z0-9_], value
    """

    name: str
    kind: Kind = Kind.OPERATOR
    timing: Timing = Timing()
    counter: str = ""
    key: Identifier | None = None
    rule: str = ""
    node_id: int | None = None
    details: tuple[tuple[str, str | int], ...] = ()

    def __post_init__(self) -> None:
        counts = (self.kind is Kind.COUNTER) == bool(self.counter)
        keys = [key for key, _ in self.details] + ([self.counter] if self.counter else [])
        # The key is looked up in the map, where a vendor's that cannot be hashed would cost the whole batch.
        finds = (not self.rule) if self.key is None else (type(self.key) in (int, str) and bool(self.rule))
        numbers = [value for value in (self.node_id, *(value for _, value in self.details)) if isinstance(value, int)]
        fit = all(abs(number) < _INT64 for number in numbers)
        if not self.name or not counts or not all(map(_KEY.match, keys)) or not finds or not fit:
            raise ValueError(
                f"not a reading: {self.name[:64]!r}, {self.kind}, {self.counter[:64]!r}, {self.rule!r}, {keys[:8]!r}"
            )

    @property
    def is_operator(self) -> bool:
        """Whether it stands for work on operators, as far as is known."""
        return self.kind in (Kind.OPERATOR, Kind.COUNTER) and self.timing.unit not in (Unit.BYTES, Unit.COUNT)


@dataclass(frozen=True, slots=True)
class Backend:
    """
    One backend. `title` is its name in prose.

    rule              reads an identifier; what it raises leaves the identifier read as that of an unknown backend
    decoder           of its metadata, built in or `module:function`; "": none is known
    map_holds_handles False: the values of its debug handle map are not debug handles, and are never read as such
    """

    title: str
    rule: Callable[[Identifier], Reading]
    decoder: str = ""
    map_holds_handles: bool = True

    def read(self, identifier: Identifier) -> Reading:
        """What the identifier says."""
        try:
            reading = self.rule(identifier)
        except Exception as error:  # noqa: BLE001 - a vendor's rule may raise anything, and costs no more than its own name
            _log.warning("the rule of backend %s raised %s", self.title, type(error).__name__)
            return read_unknown(identifier)
        return reading if isinstance(reading, Reading) else read_unknown(identifier)


def shorten(identifier: Identifier) -> str:
    """
    An identifier as the name of a span: without the ordinal that makes it unique (`Conv #3` -> `Conv`).

    XNNPACK and delegates that follow `name#n` number equal names within one call; the number stays in
    `executorch.delegate.debug_id`. An integer has no other name than its number.
    """
    if isinstance(identifier, int):
        return f"id {identifier}"
    return _ORDINAL.sub("", identifier) or identifier


def key_of(text: str, *, suffix: str = "") -> str:
    """Text as the end of an attribute's key: within [a-z0-9_], at most 64 characters, the suffix whole."""
    tail = f"_{suffix}" if suffix else ""
    return (_NOT_IN_KEY.sub("_", text.lower()).strip("_")[: 64 - len(tail)].rstrip("_") or "value") + tail


def read_unknown(identifier: Identifier) -> Reading:
    """The reading of an identifier of which nothing is known."""
    return Reading(shorten(identifier) or "unnamed")
