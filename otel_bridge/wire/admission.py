"""
The one place where foreign events are checked and become columns. Pure: no I/O, no clock, no state.

Invariants
* What leaves here obeys `model`: whole columns, valid indices, no sentinel of ExecuTorch, text that is text.
* A request that cannot be understood costs itself (`MalformedRequest`); an event that cannot costs itself, and is counted by
  reason; an attribute that cannot be kept is left out. Nothing else is lost.
* Bytes from a device are never repeated raw: positions and numbers are.
* What is to be hashed is hashed here: its value goes no further, and is not remembered.
* Whatever depends on the moment of receipt is fixed here, in the `Stream`. The rest of it follows from what the sender says and
  from the rules, and is remembered by these, but for what differs from request to request (its number, the anchors of its
  clocks): of at most `_KEPT` senders, whose words have at most `_KEPT_BYTES`, and `_KEPT_CLOCKS` clocks, which take a hundred
  times as much in memory as on the wire.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from otel_bridge.errors import MalformedRequest
from otel_bridge.etdump.read import read
from otel_bridge.model.events import BlockKind, EventBatch
from otel_bridge.model.stream import LATEST_NS, Anchor, Clock, ClockFault, ClockSource, ModelRef, Stream
from otel_bridge.v1 import profiling_pb2 as pb
from otel_bridge.wire.blocks import Keep, attributes_of, blocks_of, text_of
from otel_bridge.wire.columns import batch_of
from otel_bridge.wire.frame import Frame
from otel_bridge.wire.pseudonyms import Pseudonyms

EXECUTORCH_NS = 1_577_836_800 * 10**9
"""The year 2020: ExecuTorch is younger."""

_MAX_BUILD_ID_BYTES = 128
_UNSET = bytes(16)
_MAX_CLOCKS = 256
_MAX_CLOCK_NAME = 64
_MAX_DROP_REASONS = 16
_MAX_DROP_REASON_LENGTH = 64
_MAX_DROPPED = 1 << 32
_KEPT = 4096
_KEPT_BYTES = 2048
_KEPT_CLOCKS = 8


@dataclass(slots=True)  # frozen, it would take three times as long to make, and each request makes one
class Receipt:
    """
    When a request came, and whose it is.

    received_ns   by the bridge's clock, nanoseconds since 1970
    sent_ns       when the sender says that it sent it; None: it does not say
    tenant        that of its credential
    """

    received_ns: int
    sent_ns: int | None = None
    tenant: str = ""


AllowList = Callable[[str], bool]
"""Whether attributes of this key are kept (config/keys.py)."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What is believed, and what is kept, of what devices say: the sections `admission` and `privacy` of the configuration."""

    resource_keys: AllowList
    inference_keys: AllowList
    max_clock_error_ns: int
    earliest_ns: int = EXECUTORCH_NS
    """A time before this, nanoseconds since 1970, is not taken for a reading of a wall clock."""
    pseudonyms: Pseudonyms | None = None
    """What is kept as a hash; None: nothing is."""

    def keep(self, allowed: AllowList, tenant: str) -> Keep:
        """What is kept of the attributes of a tenant's device."""
        if self.pseudonyms is not None:
            return self.pseudonyms.keep(allowed, tenant)
        return _keep_allowed(allowed)

    @property
    def may_remember(self) -> bool:
        """Whether what devices say may stay in memory for the next request: not where some of it is to be hashed."""
        return self.pseudonyms is None


@lru_cache(maxsize=64)
def _keep_allowed(allowed: AllowList) -> Keep:
    """One for each list: what is remembered is remembered by it too."""
    return lambda key, value: value if allowed(key) else None


BuildOf = Callable[[str, str], str | None]
"""(name, version) -> the build that the alias names now."""


@dataclass(slots=True)  # frozen, it would take longer to make
class Admitted:
    """
    Events that may go on, and the account of those that may not.

    rejected          events by reason
    first_rejection   what, where, what was found, and the way out; "": none
    sender_dropped    events that the sender dropped before it sent, by its own reason
    """

    batch: EventBatch
    rejected: dict[str, int]
    first_rejection: str
    sender_dropped: Mapping[str, int]


def admit_events(frame: Frame, body: bytes, receipt: Receipt, rules: Rules, build_of: BuildOf) -> Admitted:
    """
    The events of an `ExportEvents` request; `body` is the request as it came, of which `frame` was made.

    Raises `MalformedRequest`.
    """
    if frame.stream is None:
        raise MalformedRequest("stream: is not set; say at least which model ran, or set it empty")
    sequence, anchors = frame.stream.sequence, _anchors_of(frame.stream)
    said = _said_by(frame.stream, rules, receipt.tenant)
    stream = _received(said.stream, sequence, anchors, receipt, rules, build_of=build_of)
    if stream.stream_id == _UNSET:
        stream = replace(stream, stream_id=hashlib.blake2b(body, digest_size=16).digest())
    keep = rules.keep(rules.inference_keys, stream.tenant)
    sieved = batch_of(frame, stream, *blocks_of(frame.blocks, keep, remember=rules.may_remember))
    return Admitted(*sieved, said.dropped)


def admit_etdump(request: pb.UploadETDumpRequest, receipt: Receipt, rules: Rules, build_of: BuildOf) -> Admitted:
    """
    The events of an ETDump.

    Raises `MalformedRequest`, `MalformedETDump`.
    """
    sender = _read(request.stream.SerializeToString(), rules.keep(rules.resource_keys, receipt.tenant))
    stream = _received(sender.stream, request.stream.sequence, _anchors_of(request.stream), receipt, rules, build_of=build_of)
    stream = replace(stream, content=hashlib.sha256(request.etdump).digest())
    if request.ended_at_unix_ns:
        stream = _end_at(stream, request.ended_at_unix_ns + stream.correction_ns, rules)
    if stream.stream_id == _UNSET:
        said = pb.UploadETDumpRequest()
        said.CopyFrom(request)
        said.ClearField("etdump")  # the file counts by its digest; the same file at another time is another run
        origin = hashlib.blake2b(stream.content or b"", digest_size=16)
        origin.update(said.SerializeToString(deterministic=True))
        stream = replace(stream, stream_id=origin.digest())
    dump = read(request.etdump, stream)
    method = text_of(request.method) or None
    attributes = attributes_of(request.attributes, rules.keep(rules.inference_keys, stream.tenant))
    blocks = tuple(
        replace(
            block,
            position=(block.position + request.first_position) % 2**64,
            method=method if block.kind is BlockKind.EXECUTE else None,
            attributes=attributes if block.kind is BlockKind.EXECUTE else (),
        )
        for block in dump.batch.blocks
    )
    batch = replace(dump.batch, blocks=blocks)
    return Admitted(batch, dict(dump.rejected), dump.first_rejection or "", sender.dropped)


@dataclass(frozen=True, slots=True)
class _Said:
    """What a sender says again and again: a stream without number, anchors and receipt, and what it had dropped."""

    stream: Stream
    dropped: Mapping[str, int]


def _said_by(stream: pb.Stream, rules: Rules, tenant: str) -> _Said:
    """What a message says, but for its sequence and anchors, which are cleared: a device says all else again and again."""
    stream.sequence = 0
    for clock in stream.clocks:
        clock.anchor_ticks = clock.anchor_unix_ns = 0
    said = stream.SerializeToString()
    keep = rules.keep(rules.resource_keys, tenant)
    known = rules.may_remember and len(said) <= _KEPT_BYTES and len(stream.clocks) <= _KEPT_CLOCKS
    return _known(said, keep) if known else _read(said, keep)


def _read(said: bytes, keep: Keep) -> _Said:
    message = pb.Stream.FromString(said)
    stream_id = message.stream_id
    if stream_id and (len(stream_id) != len(_UNSET) or stream_id == _UNSET):
        raise MalformedRequest(
            f"stream.stream_id: has {len(stream_id)} bytes{', all zero' if stream_id == _UNSET else ''}; "
            "it must be 16 random bytes, or unset"
        )
    model = _model(message.model)
    clocks = tuple(_clock(index, clock) for index, clock in enumerate(message.clocks[: _MAX_CLOCKS + 1])) or (Clock(),)
    if len(clocks) > _MAX_CLOCKS:
        raise MalformedRequest(f"stream.clocks: has {len(message.clocks)} entries; at most {_MAX_CLOCKS} are allowed")
    stream = Stream(
        stream_id=stream_id or _UNSET,
        model=model,
        build=model.build_id,
        resource=attributes_of(message.resource, keep),
        runtime_version=text_of(message.runtime_version) or None,
        clocks=clocks,
    )
    return _Said(stream, _sender_dropped(message))


_known = lru_cache(maxsize=_KEPT)(_read)


def _anchors_of(stream: pb.Stream) -> list[Anchor | None]:
    """Of each clock that a message has."""
    return [
        Anchor(clock.anchor_ticks, clock.anchor_unix_ns) if clock.anchor_unix_ns else None
        for clock in stream.clocks[:_MAX_CLOCKS]
    ]  # fmt: skip


def _received(
    said: Stream, sequence: int, anchors: Sequence[Anchor | None], receipt: Receipt, rules: Rules, *, build_of: BuildOf
) -> Stream:
    """The stream with its number, the anchors that are believed, and all that the moment of receipt fixes."""
    received_ns = receipt.received_ns
    error_ns = received_ns - receipt.sent_ns if receipt.sent_ns is not None else 0
    correction_ns = error_ns if abs(error_ns) > rules.max_clock_error_ns else 0
    latest_ns = min(received_ns + rules.max_clock_error_ns, LATEST_NS)
    clocks = said.clocks
    fault = None
    if any(anchors):
        faults = [
            _fault_of(anchor.unix_ns + correction_ns, latest_ns, rules) if anchor is not None else None for anchor in anchors
        ]
        fault = next(filter(None, faults), None)
        clocks = tuple([
            clock if anchor is None or bad else clock.tied(anchor)
            for clock, anchor, bad in zip(clocks, anchors, faults, strict=True)
        ])  # fmt: skip
    model = said.model
    return Stream(
        said.stream_id,
        sequence,
        tenant=receipt.tenant,
        model=model,
        build=said.build or (build_of(model.name, model.version) if model.name else None),
        resource=said.resource,
        runtime_version=said.runtime_version,
        clocks=clocks,
        received_ns=received_ns,
        ended_ns=received_ns,
        correction_ns=correction_ns,
        latest_ns=latest_ns,
        clock_fault=fault,
    )


def _end_at(stream: Stream, ended_ns: int, rules: Rules) -> Stream:
    """The stream with the sender's word for when its last event ended, unless no clock can have shown that."""
    fault = _fault_of(ended_ns, stream.latest_ns, rules)
    if fault is not None:
        return replace(stream, clock_fault=fault)
    return replace(stream, ended_ns=ended_ns, ended_source=ClockSource.ENDED_AT)


def _fault_of(unix_ns: int, latest_ns: int, rules: Rules) -> ClockFault | None:
    """Why a reading of a wall clock is not believed: it was taken before the request was sent, and since ExecuTorch exists."""
    if unix_ns > latest_ns:
        return ClockFault.FUTURE
    return ClockFault.IMPLAUSIBLE if unix_ns < rules.earliest_ns else None


def _model(model: pb.ModelRef) -> ModelRef:
    if len(model.build_id) > _MAX_BUILD_ID_BYTES:
        raise MalformedRequest(
            f"stream.model.build_id: has {len(model.build_id)} bytes; at most {_MAX_BUILD_ID_BYTES} are allowed, send a digest"
        )
    return ModelRef(text_of(model.name) or None, text_of(model.version), text_of(model.build_id) or None)


def _clock(index: int, clock: pb.Clock) -> Clock:
    if clock.counter_bits > 64:  # noqa: PLR2004 - the width of the columns
        raise MalformedRequest(f"stream.clocks[{index}].counter_bits: is {clock.counter_bits}; it must be 1 to 64, or unset")
    return Clock(
        clock.numerator or 1,
        clock.denominator or 1,
        clock.counter_bits or 64,
        name=text_of(clock.name)[:_MAX_CLOCK_NAME],
    )


def _sender_dropped(stream: pb.Stream) -> dict[str, int]:
    """By reason, as text that is cut to 64 characters; at most 16 are read."""
    dropped: dict[str, int] = {}
    for drop in stream.dropped[:_MAX_DROP_REASONS]:
        reason = text_of(drop.reason)[:_MAX_DROP_REASON_LENGTH] or "unknown"
        dropped[reason] = dropped.get(reason, 0) + min(drop.events, _MAX_DROPPED)  # counters are int64 on their way out
    return dropped
