"""Inferences as an app records them through an `EventTracer`, and how they look to a bridge."""

import itertools
from collections.abc import Iterable, Iterator

from otel_bridge.client import ClientSettings, EventTracer
from otel_bridge.v1 import profiling_pb2 as pb

QUICK = ClientSettings(batch_age_s=0.02, retry_initial_s=0.02, retry_max_s=0.05)
"""Settings that make a test wait for nothing but what it is about."""


def infer(tracer: EventTracer, *, delegate_events: int = 2, metadata: bytes = b"") -> int:
    """One inference with a delegate call; how many events it has."""
    with tracer.event_block("Execute"):
        whole = tracer.start_profiling("Method::execute")
        with tracer.instruction(0):
            call = tracer.start_profiling("DELEGATE_CALL")
            for number in range(delegate_events):
                entry = tracer.start_profiling_delegate(f"op#{number}")
                tracer.end_profiling_delegate(entry, metadata)
            tracer.end_profiling(call)
        tracer.end_profiling(whole)
    return delegate_events + 2


def names_of(request: pb.ExportEventsRequest) -> list[int | str]:
    """The name or identifier of each event of a request."""
    table = [each.number if each.WhichOneof("value") == "number" else each.text.decode() for each in request.identifiers]
    return [table[index] for index in request.events.identifier]


def positions_of(requests: Iterable[pb.ExportEventsRequest]) -> list[tuple[bytes, int]]:
    """(stream, position) of each block."""
    return [(request.stream.stream_id, block.position) for request in requests for block in request.blocks]


def dropped_in(requests: Iterable[pb.ExportEventsRequest]) -> dict[str, int]:
    """Drops that requests tell of, by reason."""
    told: dict[str, int] = {}
    for drop in itertools.chain.from_iterable(request.stream.dropped for request in requests):
        told[drop.reason.decode()] = told.get(drop.reason.decode(), 0) + drop.events
    return told


def rows_of(request: pb.ExportEventsRequest) -> Iterator[tuple[int, int | str, int, int, int, bytes]]:
    """Kind, name, instruction, start tick, duration and metadata of each event, on the host's clock."""
    events, start = request.events, 0
    for row, name in enumerate(names_of(request)):
        start = (start + events.start_delta[row]) % 2**64
        number = events.metadata[row] if events.metadata else 0
        metadata = request.metadata[number - 1] if number else b""
        yield events.kind[row], name, events.instruction[row], start, events.duration[row], metadata
