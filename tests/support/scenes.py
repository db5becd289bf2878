"""Batches and scenes for tests, made by hand or drawn by Hypothesis."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_bridge.clock.converters import Converters
from otel_bridge.mapping.cache import CompiledMappings
from otel_bridge.mapping.memory import MemoryRegistry
from otel_bridge.metadata.table import Decoders
from otel_bridge.model.events import NO_INSTRUCTION, Block, BlockKind, EventBatch, EventKind, Identifier, Part, TraceContext
from otel_bridge.model.stream import Anchor, Clock, ModelRef, Stream
from otel_bridge.model.ticks import Ticks
from otel_bridge.pipeline.stages import Stages
from otel_bridge.spans.sealing import Payload
from otel_bridge.v1 import mapping_pb2

NOON_NS = 1_800_000_000 * 10**9

STREAM = Stream(
    stream_id=bytes(range(16)),
    model=ModelRef("net", "1"),
    build="build",
    clocks=(Clock(anchor=Anchor(0, NOON_NS)),),
    received_ns=NOON_NS,
    ended_ns=NOON_NS,
)
"""A stream whose host clock counts nanoseconds from noon."""


@dataclass(frozen=True, slots=True)
class E:
    """One event, in the terms of `EventBatch`."""

    kind: EventKind
    name: Identifier
    start: int
    end: int
    instruction: int = NO_INSTRUCTION
    chain: int = 0
    clock: int = 0
    metadata: bytes = b""
    occurrence: int = 0


def runtime(name: str, start: int, end: int) -> E:
    """An event outside any instruction."""
    return E(EventKind.RUNTIME, name, start, end)


def call(name: str, instruction: int, start: int, end: int, **more: Any) -> E:
    """An instruction itself."""
    return E(EventKind.CALL, name, start, end, instruction, **more)


def scope(name: str, instruction: int, start: int, end: int) -> E:
    """A stretch inside an instruction."""
    return E(EventKind.SCOPE, name, start, end, instruction)


def delegated(identifier: Identifier, instruction: int, start: int, end: int, **more: Any) -> E:
    """An event that a delegate logged."""
    return E(EventKind.DELEGATE, identifier, start, end, instruction, **more)


def batch_of(*blocks: tuple[Block, Sequence[E]], stream: Stream = STREAM) -> EventBatch:
    """A batch of one stream."""
    events = [event for _, inside in blocks for event in inside]
    names = list(dict.fromkeys((type(event.name), event.name) for event in events))
    payloads = list(dict.fromkeys([b"", *(event.metadata for event in events)]))
    return EventBatch(
        streams=(stream,),
        blocks=tuple(block for block, _ in blocks),
        names=tuple(name for _, name in names),
        payloads=tuple(payloads),
        bounds=np.cumsum([0, *(len(inside) for _, inside in blocks)]),
        kind=np.array([event.kind for event in events], np.uint8),
        instruction=np.array([event.instruction for event in events], np.int32),
        chain=np.array([event.chain for event in events], np.uint8),
        name=np.array([names.index((type(event.name), event.name)) for event in events], np.uint32),
        ticks=Ticks(
            np.array([event.start % 2**64 for event in events], np.uint64),
            np.array([(event.end - event.start) % 2**64 for event in events], np.uint64),
        ),
        clock=np.array([event.clock for event in events], np.uint8),
        metadata=np.array([payloads.index(event.metadata) for event in events], np.uint32),
        occurrence=(
            np.array([event.occurrence for event in events], np.uint32) if any(block.part for block, _ in blocks) else None
        ),
    )


def execute(position: int = 0, **more: Any) -> Block:
    """An inference."""
    return Block(BlockKind.EXECUTE, "Execute", position, **more)


def stages_with(
    *files: mapping_pb2.MappingFile,
    parsers: Sequence[str] = (),
    converters: Converters | None = None,
    kind: type[Stages] = Stages,
    whole_faces: bool = True,
) -> Stages:
    """Stages whose registry holds these mappings."""
    registry = MemoryRegistry()
    for file in files:
        registry.put("", file)
    return kind(CompiledMappings(registry, 1 << 20), Decoders(parsers), 1 << 20, converters, whole_faces=whole_faces)


def spans_in(payloads: Sequence[Payload]) -> list[Span]:
    """All spans of some requests."""
    requests = [ExportTraceServiceRequest.FromString(payload.data) for payload in payloads]
    return [
        span
        for request in requests
        for resource in request.resource_spans
        for part in resource.scope_spans
        for span in part.spans
    ]


_ticks = st.one_of(st.integers(0, 5000), st.integers(0, 2**64 - 1))
_names = st.sampled_from(["native_call_add.out", "native_call_mul.out", "Something", "native_call_"])
_identifiers = st.one_of(st.sampled_from(["conv #1", "conv #2", "é" * 3, "1"]), st.integers(0, 3), st.just(2**31 - 1))


@st.composite
def events(draw: st.DrawFn) -> E:
    """Any event that admission lets through."""
    kind = draw(st.sampled_from(EventKind))
    start = draw(_ticks)
    end = draw(st.one_of(st.integers(start, start + 3000), _ticks))
    instruction = draw(st.integers(0, 3))
    match kind:
        case EventKind.RUNTIME:
            names = ["Method::execute", "Method::init", "Program::load_method", "Method::step", "app"]
            return E(kind, draw(st.sampled_from(names)), start, end)
        case EventKind.CALL:
            name = draw(st.sampled_from(["OPERATOR_CALL", "DELEGATE_CALL", "JF_CALL"]))
        case EventKind.SCOPE:
            name = draw(_names)
        case EventKind.DELEGATE:
            name = draw(_identifiers)
            instruction = draw(st.integers(NO_INSTRUCTION, 3))
    metadata = draw(st.sampled_from([b"", b"", b'{"a":1}', b"text", b"\xff\x00"]))
    chain, occurrence = draw(st.sampled_from([0, 0, 0, 1, 255])), draw(st.integers(0, 2))
    return E(kind, name, start, end, instruction, chain, draw(st.integers(0, 1)), metadata, occurrence)


@st.composite
def blocks(draw: st.DrawFn, position: int) -> tuple[Block, list[E]]:
    """Any block with its events."""
    kind = draw(st.sampled_from(BlockKind))
    block = Block(
        kind,
        {BlockKind.LOAD: "Default", BlockKind.EXECUTE: "Execute", BlockKind.OTHER: "app"}[kind],
        position,
        method=draw(st.sampled_from([None, "forward", "other"])),
        context=draw(
            st.sampled_from([None, TraceContext(b"t" * 16, b"s" * 8, 1, "a=b"), TraceContext(b"t" * 16, b"s" * 8, 0, "c=d")])
        ),
        error=draw(st.sampled_from([None, None, 0, 0x12, 0x99])),
        attributes=draw(st.sampled_from([(), (("device.thermal.state", "hot"), ("threads", 4))])),
        run_index=draw(st.sampled_from([None, 7])),
        part=draw(st.sampled_from([None, None, None, Part(0, last=False, first_event=0), Part(1, last=True, first_event=100)])),
    )
    return block, draw(st.lists(events(), max_size=12))


@st.composite
def batches(draw: st.DrawFn) -> EventBatch:
    """Any batch of one stream."""
    clocks = (
        draw(st.sampled_from([Clock(anchor=Anchor(100, NOON_NS)), Clock(), Clock(125, 3, 32)])),
        draw(st.sampled_from([Clock(), Clock(1000, 1, 24, Anchor(5, NOON_NS))])),
    )
    stream = replace(STREAM, stream_id=draw(st.binary(min_size=16, max_size=16)), clocks=clocks)
    count = draw(st.integers(0, 4))
    return batch_of(*[draw(blocks(position)) for position in range(count)], stream=stream)
