"""
What a span says: its name and the attributes that depend on nothing but (mapping, method, instruction, identifier).

Invariants
* Names have low cardinality and at most 255 characters: never an ordinal or an argument, at most three operators.
* Both ways to build a span (templates and protobuf messages) take what they say from here.
"""

from dataclasses import dataclass, replace
from functools import lru_cache

from otel_bridge.backends.backend import TimeQuality, Timing
from otel_bridge.backends.table import read
from otel_bridge.model.events import NO_INSTRUCTION, BlockKind, EventKind, Identifier
from otel_bridge.model.resolution import Operator, Resolution, Status
from otel_bridge.spans import attributes as at

_MAX_NAME = 255
_SHOWN_OPERATORS = 3
_NATIVE_CALL = "native_call_"
_UNNAMED = "(unnamed)"
"""The root of a block that has no name in its ETDump: OTLP asks for one."""

_MEASURED = Timing(TimeQuality.MEASURED)

Attributes = tuple[tuple[str, at.Value], ...]


@dataclass(frozen=True, slots=True)
class Face:
    """
    What a span shows.

    resolution   what the event stands for; its `delegate` chooses the metadata decoder
    timing       what the event's times are worth, and what they count
    counter      where they count what is no time: the end of the attribute's key (see spans/counters.py); else ""
    """

    name: str
    attributes: Attributes
    resolution: Resolution
    timing: Timing = _MEASURED
    counter: str = ""

    @property
    def quality(self) -> TimeQuality:
        """What the event's times are worth."""
        return self.timing.quality


def describe(
    kind: EventKind,
    name: Identifier,
    resolution: Resolution,
    *,
    method: str | None = None,
    instruction: int = NO_INSTRUCTION,
    chain: int = 0,
    kernel: str | None = None,
) -> Face:
    """
    The face of an event that is not the root of its block.

    `name` is the event's name or identifier, `resolution` what it stands for (for an instruction: what the call stands for),
    `kernel` the name of an instruction's `native_call_<op>` event, None where there is none.
    """
    match kind:
        case EventKind.CALL:
            return _describe_call(str(name), resolution, (method, instruction, chain), kernel)
        case EventKind.DELEGATE:
            return _describe_delegate_event(name, resolution, instruction)
        case EventKind.SCOPE:
            return Face(_fit(str(name)), ((at.INSTRUCTION_ID, instruction),), resolution)
        case EventKind.RUNTIME:
            return Face(_fit(str(name)), (), resolution)


def describe_root(kind: BlockKind, name: str, model: str | None, method: str | None) -> Face:
    """The face of a block's root, but for what differs between two inferences."""
    said = ((at.METHOD_NAME, at.cut(method)),) if method else ()
    if kind is BlockKind.OTHER:
        return Face(_fit(name or _UNNAMED), said, Resolution())
    subject = ".".join(part for part in (model, method) if part)
    verb = "load" if kind is BlockKind.LOAD else "execute"
    return Face(_fit(f"{verb} {subject}".rstrip()), said, Resolution())


def requalify(face: Face, quality: TimeQuality) -> Face:
    """The face of a delegate event whose times turned out to be worth something else than its backend's rule says."""
    kept = [(key, value) for key, value in face.attributes if key != at.TIME_QUALITY]
    return replace(face, attributes=(*kept, (at.TIME_QUALITY, quality.value)), timing=Timing(quality))


def outline(face: Face) -> Face:
    """
    What is asked of a face whose span is written already: all but its name, operators and attributes. Of those about metadata
    the keys are left.

    Faces that are equal in it have one object for it, and most are.
    """
    said = [(key, "") for key, _ in face.attributes if key.startswith(at.METADATA_PREFIX)]
    return _outline(tuple(said), face.resolution.status, face.resolution.delegate, face.timing, face.counter)


@lru_cache(1024)
def _outline(said: Attributes, status: Status | None, delegate: str | None, timing: Timing, counter: str) -> Face:
    return Face("", said, Resolution(status, delegate), timing, counter)


def _describe_call(name: str, resolution: Resolution, where: tuple[str | None, int, int], kernel: str | None) -> Face:
    method, instruction, chain = where
    said: list[tuple[str, at.Value]] = [(at.METHOD_NAME, at.cut(method))] if method else []
    said.append((at.INSTRUCTION_ID, instruction))
    if chain:
        said.append((at.CHAIN_INDEX, chain))
    if name == "DELEGATE_CALL":
        if resolution.delegate:
            said.append((at.DELEGATE_NAME, at.cut(resolution.delegate)))
        said += _handles(resolution)
        return Face(_fit(f"delegate {resolution.delegate or ''}".rstrip()), tuple(said), resolution)
    if name != "OPERATOR_CALL":
        return Face(_fit(name), tuple(said), resolution)
    said += _handles(resolution) + _operators(resolution.operators, narrow(resolution.operators, kernel))
    own = kernel.removeprefix(_NATIVE_CALL) if kernel else ""
    return Face(_fit(own or _name_of(resolution.operators) or name), tuple(said), resolution)


def _describe_delegate_event(identifier: Identifier, resolution: Resolution, instruction: int) -> Face:
    reading = read(resolution.delegate, identifier)
    quality = reading.timing.quality
    said: list[tuple[str, at.Value]] = []
    if instruction != NO_INSTRUCTION:
        said.append((at.INSTRUCTION_ID, instruction))
    if resolution.delegate:
        said.append((at.DELEGATE_NAME, at.cut(resolution.delegate)))
    said.append((at.DELEGATE_DEBUG_ID, at.cut(str(identifier))))
    if resolution.status:
        said.append((at.RESOLUTION_STATUS, resolution.status.value))
    if resolution.rule:
        said.append((at.RESOLUTION_RULE, resolution.rule))
    said += _handles(resolution) + _operators(resolution.operators, resolution.operators)
    if reading.node_id is not None:
        said.append((at.DELEGATE_NODE_ID, reading.node_id))
    said += ((at.METADATA_PREFIX + key, at.cut(value) if isinstance(value, str) else value) for key, value in reading.details)
    if quality is not TimeQuality.MEASURED:
        said.append((at.TIME_QUALITY, quality.value))
    name = _name_of(resolution.operators) or reading.name
    return Face(_fit(name), tuple(said), resolution, reading.timing, reading.counter)


def _handles(resolution: Resolution) -> list[tuple[str, at.Value]]:
    if not resolution.handles:
        return []
    said: list[tuple[str, at.Value]] = [(at.DEBUG_HANDLES, resolution.handles[: at.MAX_HANDLES])]
    if len(resolution.handles) > at.MAX_HANDLES:
        said.append((at.DEBUG_HANDLE_COUNT, len(resolution.handles)))
    return said


def narrow(operators: tuple[Operator, ...], kernel: str | None) -> tuple[Operator, ...]:
    """
    Of the operators that a kernel call's handle stands for, those that its `native_call_<op>` names; all, where it names none.

    A handle stands for every node that an operator of the model was decomposed into, and each of them runs a kernel of its own.
    """
    base = kernel.removeprefix(_NATIVE_CALL).rpartition("::")[2].partition(".")[0] if kernel else ""
    named = tuple(operator for operator in operators if base in operator.name.split(".")[1:2])
    return named or operators


def _operators(operators: tuple[Operator, ...], candidates: tuple[Operator, ...]) -> list[tuple[str, at.Value]]:
    """`candidates`: those of `operators` that may have run. Which of several nodes of a handle it was may not be known."""
    if not operators:
        return []
    first = operators[0]
    names = tuple(at.cut(operator.name, at.MAX_OPERATOR_BYTES) for operator in operators[: at.MAX_OPERATORS])
    said: list[tuple[str, at.Value]] = [(at.OPERATOR_NAMES, names)]
    if len(operators) > at.MAX_OPERATORS:
        said.append((at.OPERATOR_COUNT, len(operators)))
    is_known = not candidates[0].is_candidate or all(other.handle != candidates[0].handle for other in candidates[1:2])
    if candidates[0].id and is_known:
        said.append((at.OPERATOR_ID, candidates[0].id))
    if first.module_path:
        said.append((at.MODULE_PATH, at.cut(first.module_path)))
    if first.file:
        said.append((at.CODE_FILE_PATH, at.cut(first.file)))
    if first.line:
        said.append((at.CODE_LINE_NUMBER, first.line))
    return said


def _name_of(operators: tuple[Operator, ...]) -> str:
    shown = ", ".join(operator.name for operator in operators[:_SHOWN_OPERATORS])
    rest = len(operators) - _SHOWN_OPERATORS
    return f"{shown} +{rest}" if rest > 0 else shown


def _fit(name: str) -> str:
    return name if len(name) <= _MAX_NAME else name[: _MAX_NAME - 1] + "…"
