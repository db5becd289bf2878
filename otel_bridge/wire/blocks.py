"""
Text, attributes and blocks as devices send them, made into the nouns of `model`. Part of admission; pure.

Invariant: blocks differ in position and number of events, and mostly in nothing else; the rest is remembered by its bytes, for
`_KEPT` blocks of at most `_KEPT_BYTES`.
"""

import codecs
import math
import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

from otel_bridge.errors import MalformedRequest
from otel_bridge.model.events import Block, BlockKind, Part, TraceContext
from otel_bridge.model.stream import Attributes, AttributeValue
from otel_bridge.spans.attributes import OWN_PREFIXES
from otel_bridge.v1 import profiling_pb2 as pb

_TRACEPARENT = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_MAX_TRACESTATE_BYTES = 512
_MAX_ATTRIBUTES = 128
_MAX_KEY_BYTES = 256
_MAX_TEXT_BYTES = 4096
_MAX_FIRST_EVENT = 2**48  # places of rows have 62 bits (spans/ids.py)
_KEPT = 4096
_KEPT_BYTES = 512
_KINDS = frozenset(pb.BlockKind.values())
_DEFAULT_NAMES = {BlockKind.LOAD: "Default", BlockKind.EXECUTE: "Execute"}


Keep = Callable[[str, AttributeValue], AttributeValue | None]
"""(key, value) -> what is kept of an attribute; None: nothing, not even its key."""


def text_of(data: bytes) -> str:
    """Text from a device, cut to 4,096 bytes; bytes that are not UTF-8 come out escaped."""
    whole = len(data) <= _MAX_TEXT_BYTES  # a character that the cut divides is left out, not escaped
    return codecs.utf_8_decode(data[:_MAX_TEXT_BYTES], "backslashreplace", whole)[0]


def attributes_of(attributes: Iterable[pb.Attribute], keep: Keep) -> Attributes:
    """What is kept of attributes that can be and are not the bridge's own, at most 128; of two with one key the first."""
    kept: dict[str, AttributeValue] = {}
    for attribute in attributes:
        key, value = text_of(attribute.key), _value_of(attribute.value)
        if value is None or not 0 < len(attribute.key) <= _MAX_KEY_BYTES or key.startswith(OWN_PREFIXES):
            continue
        value = keep(key, value)
        if value is None:
            continue
        kept.setdefault(key, value)
        if len(kept) == _MAX_ATTRIBUTES:
            break
    return tuple(kept.items())


def _value_of(value: pb.Value) -> AttributeValue | None:
    match value.WhichOneof("value"):
        case "text":
            return text_of(value.text)
        case "integer":
            return value.integer
        case "number":
            return value.number if math.isfinite(value.number) else None
        case "flag":
            return value.flag
        case _:
            return None


def blocks_of(blocks: Sequence[pb.Block], keep: Keep, *, remember: bool) -> tuple[tuple[Block, ...], list[int]]:
    """
    The blocks of a request, in order, and the events of each. The messages are cleared of what only one block says.

    `remember`: what blocks say may stay in memory for the next request.

    Raises `MalformedRequest`, by position, for a block that has neither kind nor name, an unknown kind, or an impossible part.
    """
    made: list[Block] = []
    counts: list[int] = []
    for index, block in enumerate(blocks):
        position = block.position
        counts.append(block.event_count)
        block.position = block.event_count = 0
        said = block.SerializeToString()
        try:
            like = _known(said, keep) if remember and len(said) <= _KEPT_BYTES else _read(said, keep)
        except MalformedRequest as fault:
            raise MalformedRequest(f"blocks[{index}]{fault}") from fault
        made.append(like.at(position))
    return tuple(made), counts


def _read(said: bytes, keep: Keep) -> Block:
    """The block in these bytes, at position 0. What a `MalformedRequest` says of it follows on its name."""
    block = pb.Block.FromString(said)
    name = text_of(block.name)
    if block.kind not in _KINDS:
        raise MalformedRequest(f".kind: is {block.kind}; it must be one of BlockKind, or unset")
    kind = BlockKind(block.kind) if block.kind else BlockKind.from_name(name)
    name = name or _DEFAULT_NAMES.get(kind, "")
    if not name:
        raise MalformedRequest(": has neither kind nor name; set the name given to create_event_block, or a kind")
    return Block(
        kind=kind,
        name=name,
        position=0,
        method=text_of(block.method) or None,
        context=context_of(block.traceparent, block.tracestate),
        error=block.error if block.HasField("error") else None,
        attributes=attributes_of(block.attributes, keep),
        run_index=block.run_index if block.HasField("run_index") and block.run_index < 2**63 else None,
        part=_part_of(block.part) if block.HasField("part") else None,
    )


_known = lru_cache(maxsize=_KEPT)(_read)


def _part_of(part: pb.Part) -> Part:
    if part.first_event > _MAX_FIRST_EVENT:
        raise MalformedRequest(
            f".part.first_event: is {part.first_event}; it counts the events of earlier parts, at most {_MAX_FIRST_EVENT}"
        )
    return Part(part.number, part.last, part.first_event)


def context_of(traceparent: bytes, tracestate: bytes) -> TraceContext | None:
    """
    The app's span, by W3C Trace Context level 2; None where there is none or it is invalid (which the standard says to ignore).

    A `tracestate` over 512 bytes or outside printable ASCII is left out alone.
    """
    match = _TRACEPARENT.fullmatch(traceparent)
    if match is None:
        return None
    version, trace_id, span_id = match[1], bytes.fromhex(match[2].decode()), bytes.fromhex(match[3].decode())
    if version == b"ff" or (version == b"00" and match[5]) or not any(trace_id) or not any(span_id):
        return None
    sound = len(tracestate) <= _MAX_TRACESTATE_BYTES and all(0x20 <= byte <= 0x7E for byte in tracestate)  # noqa: PLR2004 - printable ASCII
    return TraceContext(trace_id, span_id, int(match[4], 16), tracestate.decode("ascii") if sound else "")
