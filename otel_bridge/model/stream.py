"""
Who sent events, and what was fixed when they arrived.

Invariant: whatever depends on the moment of receipt (receipt time, clock correction, alias -> build, tenant) stands in
`Stream` and is set once, at admission. A batch that is replayed from there gives the same spans, byte for byte.
"""

from dataclasses import dataclass
from enum import StrEnum

AttributeValue = str | int | float | bool
"""A scalar attribute value of OpenTelemetry."""

Attributes = tuple[tuple[str, AttributeValue], ...]
"""Attributes in the order in which they are written; keys are unique."""


@dataclass(frozen=True, slots=True)
class ModelRef:
    """What the sender says of its model. `name` and `version` are an alias; `build_id` names the build and wins."""

    name: str | None = None
    version: str = ""
    build_id: str | None = None


@dataclass(slots=True, unsafe_hash=True)  # as `Stream`
class Anchor:
    """Two readings of one moment: a tick counter and the wall clock (nanoseconds since 1970). Never changed once made."""

    ticks: int
    unix_ns: int


class ClockSource(StrEnum):
    """What places the host's clock on the time axis: the value of `executorch.clock.source`, left out when `ANCHOR`."""

    ANCHOR = "anchor"
    """The sender's two readings of one moment."""
    ENDED_AT = "ended_at"
    """The sender's word for when the last event ended."""
    RECEIPT = "receipt"
    """The moment of receipt: the last event of the runtime is taken to end then."""


class ClockFault(StrEnum):
    """Why the sender's word for the time was not taken: the value of `executorch.clock.fault`."""

    FUTURE = "future"
    """Events would have ended after the receipt, by more than a clock may be wrong."""
    IMPLAUSIBLE = "implausible"
    """A time before ExecuTorch existed: a clock that was never set, or ticks where nanoseconds are expected."""


@dataclass(slots=True, unsafe_hash=True)  # as `Stream`
class Clock:
    """
    A tick source: nanoseconds = ticks * numerator / denominator, exactly. Never changed once it is made.

    `counter_bits` is the width of the counter; a counter narrower than 64 bits wraps. `name` says what it counts for and is
    "" where the sender is silent; clocks are told apart by their index, so two may have one name.
    ExecuTorch's `et_tick_ratio_t` is (numerator, denominator); on POSIX it is 1/1 (runtime/platform/default/posix.cpp).
    """

    numerator: int = 1
    denominator: int = 1
    counter_bits: int = 64
    anchor: Anchor | None = None
    name: str = ""

    def tied(self, anchor: Anchor) -> "Clock":
        """The same clock with an anchor. Ten times as fast as `replace`."""
        return Clock(self.numerator, self.denominator, self.counter_bits, anchor, self.name)


@dataclass(frozen=True, slots=True)
class Settled:
    """
    Where a stream's events lie, once it was seen from all of them.

    anchors    of each clock, corrections included; None: no event has it
    tied       whether each clock is tied to the time axis
    moved_ns   what is added to all times so that they do not lie in the future; 0 or less
    """

    anchors: tuple[Anchor | None, ...]
    tied: tuple[bool, ...]
    moved_ns: int


LATEST_NS = 2**63 - 2
"""The latest time of an event, nanoseconds since 1970 (April 2262)."""


@dataclass(slots=True, unsafe_hash=True)  # frozen, it would take six times as long to make, and each request makes one
class Stream:
    """
    One run of one process of one device with one model, as one request saw it. Never changed once it is made.

    stream_id       16 bytes, not all zero
    sequence        number of the request in the stream
    content         SHA-256 of the ETDump where the events came as a file, else None
    build           the build id whose mapping applies, bound at admission; None: not known
    received_ns     wall clock of the bridge at receipt, nanoseconds since 1970
    ended_ns        when the last runtime event ended, for clocks without an anchor; the receipt where the sender is silent
    ended_source    where `ended_ns` is from
    correction_ns   added to the anchors because the device's wall clock was wrong; 0: it was not
    latest_ns       no event of the runtime may end later, or the request is moved back to end at receipt
    clock_fault     why the sender's word for the time was not taken; None: it was, or there was none
    settled         where its events lie, for a part of a request that is resolved in several; None: it follows from the events
    """

    stream_id: bytes
    sequence: int = 0
    content: bytes | None = None
    tenant: str = ""
    model: ModelRef = ModelRef()
    build: str | None = None
    resource: Attributes = ()
    runtime_version: str | None = None
    clocks: tuple[Clock, ...] = (Clock(),)
    received_ns: int = 0
    ended_ns: int = 0
    ended_source: ClockSource = ClockSource.RECEIPT
    correction_ns: int = 0
    latest_ns: int = LATEST_NS
    clock_fault: ClockFault | None = None
    settled: Settled | None = None


def trail(stream: Stream) -> tuple[str, bytes, int]:
    """What tells the request from which a stream's events came from others, as far as one process remembers them."""
    return stream.tenant, stream.stream_id, stream.sequence
