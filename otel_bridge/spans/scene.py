"""
A batch with all that is known of it: what the two ways to build spans start from.

Invariants
* A scene is whole: whoever builds spans from it looks nothing up and asks no clock.
* One span a row, and one root of the bridge's making for each block that has events and no root row (in a split inference:
  for its last part). `Scene.spans` says which.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from otel_bridge.model.events import BlockKind, EventBatch
from otel_bridge.model.stream import Attributes, Stream
from otel_bridge.spans import attributes as at
from otel_bridge.spans.describe import Face
from otel_bridge.spans.ids import trace_id
from otel_bridge.spans.place import Timeline
from otel_bridge.spans.tree import NOWHERE, Tree

_SAMPLED, _RANDOM, _HAS_IS_REMOTE, _IS_REMOTE = 0x01, 0x02, 0x100, 0x200

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
class Template:
    """A face, and the same as a fragment of a serialised `Span` (name, kind, attributes)."""

    face: Face
    encoded: bytes


@dataclass(frozen=True, slots=True)
class Decoded:
    """Decoded metadata as attributes, and the same as a fragment of a serialised `Span`."""

    attributes: tuple[tuple[str, at.Value], ...]
    encoded: bytes


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
    What the spans of one block share, and what only its root says.

    method     that ran; None: not known
    error      value of `error.type`; None: the inference did not fail
    derived    the derived trace id, which keys the span ids
    trace_id   the trace the spans go to: the derived one, or the app's
    parent     span id of the app's span; b"": the root has no parent
    flags      `Span.flags` of all spans but the root
    """

    root: Template
    attributes: tuple[tuple[str, at.Value], ...]
    method: str | None
    error: str | None
    derived: bytes
    trace_id: bytes
    parent: bytes = b""
    flags: int = _SAMPLED | _RANDOM | _HAS_IS_REMOTE
    root_flags: int = _SAMPLED | _RANDOM | _HAS_IS_REMOTE
    state: str = ""
    link: Link | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """
    n rows of m blocks, resolved.

    template     int64[n]   index into `templates`
    decoded      int64[n]   index into `metadata`; -1: the row has none
    resources    per stream, the resource attributes
    """

    batch: EventBatch
    tree: Tree
    timeline: Timeline
    inferences: tuple[Inference, ...]
    templates: tuple[Template, ...]
    template: NDArray[np.int64]
    metadata: tuple[Decoded, ...]
    decoded: NDArray[np.int64]
    resources: tuple[Attributes, ...]

    @property
    def has_root_span(self) -> NDArray[np.bool_]:
        """bool[m]: whether the block's root is emitted with this batch."""
        filled = np.diff(self.batch.bounds) > 0
        complete = np.array([block.part is None or block.part.last for block in self.batch.blocks], np.bool_)
        emitted: NDArray[np.bool_] = filled & ((self.tree.root != NOWHERE) | complete)
        return emitted


def inference_of(batch: EventBatch, index: int, root: Template, method: str | None, *, failed: bool) -> Inference:
    """
    What the spans of block `index` share.

    An app's context that is sampled makes the inference a part of the app's trace; one that is not leaves it a trace of its
    own, with a link, so that the app's decision not to record costs no orphans (W3C Trace Context, "sampled").
    """
    block = batch.blocks[index]
    stream = batch.streams[block.stream]
    derived = trace_id(stream, block)
    alone = Inference(
        root=root,
        attributes=_root_attributes(stream, block.run_index, block.attributes),
        method=method,
        error=_error(block.error, failed=failed and block.kind is BlockKind.EXECUTE),
        derived=derived,
        trace_id=derived,
    )
    context = block.context
    if context is None:
        return alone
    if not context.flags & _SAMPLED:
        link = Link(context.trace_id, context.span_id, context.flags | _HAS_IS_REMOTE | _IS_REMOTE, context.state)
        return replace(alone, link=link)
    inherited = context.flags & 0xFF | _HAS_IS_REMOTE
    return replace(
        alone,
        trace_id=context.trace_id,
        parent=context.span_id,
        flags=inherited,
        root_flags=inherited | _IS_REMOTE,
        state=context.state,
    )


def resource_of(stream: Stream, mapping_digest: str | None) -> Attributes:
    """The resource attributes of a stream: what the sender gave (admission has filtered it), then what the bridge knows."""
    known: dict[str, str | int | float | bool] = dict(stream.resource)
    model = stream.model
    known.setdefault(at.SERVICE_NAME, model.name or "unknown_service:executorch")
    told = {
        at.MODEL_NAME: model.name,
        at.MODEL_VERSION: model.version,
        at.MODEL_BUILD_ID: stream.build or model.build_id,
        at.MAPPING_ID: mapping_digest[:16] if mapping_digest else None,
        at.RUNTIME_VERSION: stream.runtime_version,
    }
    known.update({key: value for key, value in told.items() if value})
    return tuple((key, at.cut(value) if isinstance(value, str) else value) for key, value in known.items())


def _root_attributes(stream: Stream, run_index: int | None, given: Attributes) -> tuple[tuple[str, at.Value], ...]:
    said: list[tuple[str, at.Value]] = []
    if run_index is not None:
        said.append((at.RUN_INDEX, run_index))
    if stream.correction_ns:
        said.append((at.CLOCK_CORRECTION_NS, stream.correction_ns))
    said += ((key, at.cut(value) if isinstance(value, str) else value) for key, value in given)
    return tuple(said)


def _error(code: int | None, *, failed: bool) -> str | None:
    if code:
        return ERROR_NAMES.get(code, f"0x{code:02x}")
    return "_OTHER" if failed else None
