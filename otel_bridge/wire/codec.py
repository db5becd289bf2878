"""
Batches as requests: the way back from columns to the wire, for whoever sends what the bridge took in.

Invariant: a batch that is written and admitted again is the same batch, but for what only the moment of receipt fixes.
"""

import numpy as np
from numpy.typing import NDArray

from otel_bridge.model.events import Block, EventBatch
from otel_bridge.model.stream import Attributes, AttributeValue, Clock, Stream
from otel_bridge.v1 import profiling_pb2 as pb


def request_of(batch: EventBatch) -> pb.ExportEventsRequest:
    """An `ExportEvents` request with the events of a batch of one stream."""
    request = pb.ExportEventsRequest(stream=stream_message(batch.streams[0]), metadata=batch.payloads[1:])
    for name in batch.names:
        if isinstance(name, int):
            request.identifiers.add(number=name)
        else:
            request.identifiers.add(text=name.encode())
    for block, events in zip(batch.blocks, np.diff(batch.bounds).tolist(), strict=True):
        request.blocks.append(_block(block, events))
    columns = request.events
    columns.kind.extend(batch.kind.tolist())
    columns.instruction.extend(batch.instruction.tolist())
    columns.identifier.extend(batch.name.tolist())
    columns.start_delta.extend(_deltas(batch.start, batch.clock).tolist())
    columns.duration.extend(batch.duration.tolist())
    if batch.chain.any():
        columns.chain.extend(batch.chain.tolist())
    if batch.clock.any():
        columns.clock.extend(batch.clock.tolist())
    if batch.metadata.any():
        columns.metadata.extend(batch.metadata.tolist())
    if batch.occurrence is not None:
        columns.occurrence.extend(batch.occurrence.tolist())
    return request


def _deltas(start: NDArray[np.uint64], clock: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Differences per clock, modulo 2^64; the first of each clock counts from 0."""
    deltas = np.zeros(len(start), np.uint64)
    for index in np.unique(clock):
        rows = clock == index
        deltas[rows] = np.diff(start[rows], prepend=np.uint64(0))
    return deltas.view(np.int64)


def stream_message(stream: Stream) -> pb.Stream:
    """A stream as the wire has it."""
    model = pb.ModelRef(
        name=(stream.model.name or "").encode(),
        version=stream.model.version.encode(),
        build_id=(stream.model.build_id or "").encode(),
    )
    return pb.Stream(
        stream_id=stream.stream_id,
        sequence=stream.sequence,
        model=model,
        resource=_attributes(stream.resource),
        runtime_version=(stream.runtime_version or "").encode(),
        clocks=[_clock(clock) for clock in stream.clocks],
    )


def _clock(clock: Clock) -> pb.Clock:
    written = pb.Clock(
        numerator=clock.numerator, denominator=clock.denominator, counter_bits=clock.counter_bits, name=clock.name.encode()
    )
    if clock.anchor is not None:
        written.anchor_ticks, written.anchor_unix_ns = clock.anchor.ticks, clock.anchor.unix_ns
    return written


def _block(block: Block, events: int) -> pb.Block:
    written = pb.Block(
        kind=pb.BlockKind.ValueType(block.kind.value),
        name=block.name.encode(),
        position=block.position,
        method=(block.method or "").encode(),
        event_count=events,
        error=block.error,
        attributes=_attributes(block.attributes),
        run_index=block.run_index,
    )
    if block.context is not None:
        context = block.context
        written.traceparent = f"00-{context.trace_id.hex()}-{context.span_id.hex()}-{context.flags:02x}".encode()
        written.tracestate = context.state.encode()
    if block.part is not None:
        written.part.CopyFrom(pb.Part(number=block.part.number, last=block.part.last, first_event=block.part.first_event))
    return written


def _attributes(attributes: Attributes) -> list[pb.Attribute]:
    return [pb.Attribute(key=key.encode(), value=_value(value)) for key, value in attributes]


def _value(value: AttributeValue) -> pb.Value:
    match value:
        case bool():  # before int: a bool is one
            return pb.Value(flag=value)
        case int():
            return pb.Value(integer=value)
        case float():
            return pb.Value(number=value)
        case str():
            return pb.Value(text=value.encode())
