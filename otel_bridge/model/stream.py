"""
Who sent events, and what was fixed when they arrived.

Invariant: whatever depends on the moment of receipt (receipt time, clock correction, alias -> build, tenant) stands in
`Stream` and is set once, at admission. A batch that is replayed from there gives the same spans, byte for byte.
"""

from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class Anchor:
    """Two readings of one moment: a tick counter and the wall clock (nanoseconds since 1970)."""

    ticks: int
    unix_ns: int


@dataclass(frozen=True, slots=True)
class Clock:
    """
    A tick source: nanoseconds = ticks * numerator / denominator, exactly.

    `counter_bits` is the width of the counter; a counter narrower than 64 bits wraps.
    ExecuTorch's `et_tick_ratio_t` is (numerator, denominator); on POSIX it is 1/1 (runtime/platform/default/posix.cpp).
    """

    numerator: int = 1
    denominator: int = 1
    counter_bits: int = 64
    anchor: Anchor | None = None


@dataclass(frozen=True, slots=True)
class Stream:
    """
    One run of one process of one device with one model, as one request saw it.

    stream_id       16 bytes, not all zero
    sequence        number of the request in the stream
    content         SHA-256 of the ETDump where the events came as a file, else None
    build           the build id whose mapping applies, bound at admission; None: not known
    received_ns     wall clock of the bridge at receipt, nanoseconds since 1970
    ended_ns        when the last runtime event ended, for clocks without an anchor; the receipt where the sender is silent
    correction_ns   added to the anchors because the device's wall clock was wrong; 0: it was not
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
    correction_ns: int = 0
