"""
What the spans of one inference share: their trace, their flags, and what the root alone says.

Invariant: inferences that say the same share one object, so what is made from it is made once a batch.
"""

from dataclasses import dataclass, replace

from otel_bridge.model.events import Block, BlockKind
from otel_bridge.model.stream import LATEST_NS, ClockFault, ClockSource, Stream
from otel_bridge.spans import attributes as at
from otel_bridge.spans.compile import Template

_SAMPLED, _RANDOM, _HAS_IS_REMOTE, _IS_REMOTE = 0x01, 0x02, 0x100, 0x200
_OWN_FLAGS = _SAMPLED | _RANDOM | _HAS_IS_REMOTE

ERROR_NAMES = {
    0x01: "Internal",
    0x02: "InvalidState",
    0x03: "EndOfMethod",
    0x10: "NotSupported",
    0x11: "NotImplemented",
    0x12: "InvalidArgument",
    0x13: "InvalidType",
    0x14: "OperatorMissing",
    0x20: "NotFound",
    0x21: "MemoryAllocationFailed",
    0x22: "AccessFailed",
    0x23: "InvalidProgram",
    0x30: "DelegateInvalidCompatibility",
    0x31: "DelegateMemoryAllocationFailed",
    0x32: "DelegateInvalidHandle",
}
"""`executorch::runtime::Error` (runtime/core/error.h)."""


@dataclass(frozen=True, slots=True)
class Link:
    """A link to the app's span, where the inference is a trace of its own although the app gave a context."""

    trace_id: bytes
    span_id: bytes
    flags: int
    state: str


@dataclass(frozen=True, slots=True)
class Inference:
    """
    One inference, or any number that say the same.

    root        name and attributes of the root, as far as the method decides them
    attributes  further attributes of the root
    method      that ran; None: not known
    error       value of `error.type`; None: it did not fail
    trace_id    the app's trace; b"": the derived one
    parent      span id of the app's span; b"": the root has no parent
    flags       `Span.flags` of all spans but the root
    state       `tracestate` of all spans
    """

    root: Template
    attributes: tuple[tuple[str, at.Value], ...] = ()
    method: str | None = None
    error: str | None = None
    trace_id: bytes = b""
    parent: bytes = b""
    flags: int = _OWN_FLAGS
    root_flags: int = _OWN_FLAGS
    state: str = ""
    link: Link | None = None


def is_shared(block: Block) -> bool:
    """Whether the block says nothing that only one inference says."""
    return block.context is None and block.run_index is None and not block.attributes


Said = tuple[tuple[str, at.Value], ...]


def said_by(stream: Stream, moved_ns: int) -> Said:
    """
    What all roots of a stream say of its clock; `moved_ns` is what was added to its times so that they are not in the future.

    Equal for most streams, whose inferences are then said alike.
    """
    source = ClockSource.ANCHOR if stream.clocks[0].anchor is not None else stream.ended_source
    fault = stream.clock_fault
    if moved_ns:
        source, fault = ClockSource.RECEIPT, ClockFault.FUTURE
    said: list[tuple[str, at.Value]] = []
    correction_ns = max(stream.correction_ns + moved_ns, -LATEST_NS)  # two absurd words may add up to more than int64
    if correction_ns:
        said.append((at.CLOCK_CORRECTION_NS, correction_ns))
    if source is not ClockSource.ANCHOR:
        said.append((at.CLOCK_SOURCE, source.value))
    if fault is not None:
        said.append((at.CLOCK_FAULT, fault.value))
    return tuple(said)


def inference_of(block: Block, root: Template, method: str | None, clock: Said = (), *, failed: bool) -> Inference:
    """
    What the spans of a block share; `clock` is what its stream says (`said_by`).

    An app's context that is sampled makes the inference a part of the app's trace; one that is not leaves it a trace of its
    own, with a link, so that the app's decision not to record costs no orphans (W3C Trace Context, "sampled").
    """
    attributes = _root_attributes(block, clock)
    error = _error(block.error, failed=failed and block.kind is BlockKind.EXECUTE)
    context = block.context
    if context is None:
        return Inference(root, attributes, method, error)
    inherited = context.flags & 0xFF | _HAS_IS_REMOTE
    joined = Inference(
        root,
        attributes,
        method,
        error,
        trace_id=context.trace_id,
        parent=context.span_id,
        flags=inherited,
        root_flags=inherited | _IS_REMOTE,
        state=context.state,
    )
    return joined if context.flags & _SAMPLED else apart(joined)


def apart(joined: Inference) -> Inference:
    """An inference in the app's trace as a trace of its own, with a link to the app's span."""
    link = Link(joined.trace_id, joined.parent, joined.root_flags, joined.state)
    return replace(joined, trace_id=b"", parent=b"", flags=_OWN_FLAGS, root_flags=_OWN_FLAGS, state="", link=link)


def _root_attributes(block: Block, clock: Said) -> Said:
    said: list[tuple[str, at.Value]] = []
    if block.error:
        said.append((at.ERROR_CODE, block.error))
    if block.run_index is not None:
        said.append((at.RUN_INDEX, block.run_index))
    said += clock
    said += ((key, at.cut(value) if isinstance(value, str) else value) for key, value in block.attributes)
    return tuple(said)


def _error(code: int | None, *, failed: bool) -> str | None:
    if code:
        return ERROR_NAMES.get(code, "_OTHER")
    return "_OTHER" if failed else None
