"""
From recordings to requests.

Invariants
* A request is sealed once: its bytes are the same at every attempt, so the ids that the bridge derives from it are the same.
* Drops are told in a request's own bytes; one that does not get through gives them back (`Sealed.told`).
* A recording that cannot be read costs itself.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from google.protobuf.message import DecodeError

from otel_bridge.client.counters import Reason
from otel_bridge.client.fitting import Limits, fit
from otel_bridge.client.recording import Recording, TracedBlock, batch_of_blocks
from otel_bridge.client.stream import EventStream
from otel_bridge.errors import Rejected
from otel_bridge.model.events import EventBatch, concatenate, divide
from otel_bridge.model.stream import Clock, Stream
from otel_bridge.v1 import profiling_pb2 as pb
from otel_bridge.wire.blocks import blocks_of
from otel_bridge.wire.codec import stream_message
from otel_bridge.wire.columns import batch_of
from otel_bridge.wire.frame import Frame

GiveUp = Callable[[int, str], None]
"""Told of events that are given up, and of the `Reason`."""

Told = dict[str, int]
"""Drops by reason."""


@dataclass(frozen=True, slots=True)
class Sealed:
    """
    A request that will not change any more.

    stream_id, sequence   of its stream
    events                how many it holds
    told                  drops that it reports
    body                  serialised `ExportEventsRequest`
    """

    stream_id: bytes
    sequence: int
    events: int
    told: Told
    body: bytes


def seal(recordings: Iterable[Recording], limits: Limits, told: Told, give_up: GiveUp) -> list[Sealed]:
    """Requests that hold the recordings, stream by stream and in order; the first one tells `told`."""
    streams: dict[int, list[Recording]] = {}
    for each in recordings:
        streams.setdefault(id(each.stream), []).append(each)
    made: list[Sealed] = []
    for of_stream in streams.values():
        batches = _batches(of_stream, give_up)
        if not batches:
            continue
        stream = of_stream[0].stream
        anchor = next((each.anchor for each in reversed(of_stream) if each.anchor is not None), None)
        head = stream_message(stream.model_stream(anchor))
        pieces = divide(concatenate(batches), limits.max_events)
        requests = [request for piece in pieces for request in fit(piece, head, limits, lambda n: give_up(n, Reason.TOO_LARGE))]
        first = stream.take_sequences(len(requests))
        for sequence, request in enumerate(requests, first):
            made.append(_finish(request, sequence, told if not made else {}))
    return made


def seal_report(stream: EventStream, told: Told) -> Sealed:
    """A request that tells of drops and nothing else."""
    request = pb.ExportEventsRequest(stream=stream_message(stream.model_stream()))
    return _finish(request, stream.take_sequences(1), told)


def divide_sealed(
    sealed: Sealed, limits: Limits, take_sequences: Callable[[int], int], give_up: GiveUp
) -> list[Sealed] | None:  # fmt: skip
    """
    A request that the bridge found too large, in smaller ones with sequence numbers of their own; None: it cannot be read.

    `give_up` is told of events that are too large alone; there may be no others.

    What was a part stays one of the same inference: its number follows from the sequence of part 0.
    """
    try:
        head = pb.ExportEventsRequest.FromString(sealed.body).stream
        stream = Stream(sealed.stream_id, clocks=(Clock(),) * max(1, len(head.clocks)))
        frame = Frame.FromString(sealed.body)
        batch, _, _ = batch_of(frame, stream, *blocks_of(frame.blocks, lambda _key, value: value, remember=False))
    except (DecodeError, Rejected):
        return None
    head.ClearField("dropped")
    smaller = fit(batch, head, limits, lambda events: give_up(events, Reason.TOO_LARGE))
    part = batch.blocks[0].part if batch.blocks else None
    first = take_sequences(len(smaller))
    made: list[Sealed] = []
    for sequence, each in enumerate(smaller, first):
        if part is not None:
            each.blocks[0].part.number = sequence - (sealed.sequence - part.number)
        made.append(_finish(each, sequence, sealed.told if not made else {}))
    return made


def _batches(recordings: Sequence[Recording], give_up: GiveUp) -> list[EventBatch]:
    """The columns of recordings, in order; blocks of a tracer that follow each other are read at once."""
    found = []
    for is_traced, group in groupby(recordings, lambda each: isinstance(each, TracedBlock)):
        together = list(group)
        if is_traced:
            try:
                found.append(batch_of_blocks([each for each in together if isinstance(each, TracedBlock)]))
            except (ValueError, TypeError, OverflowError):  # one of them cannot be read: find out which
                found += _read_each(together, give_up)
        else:
            found += _read_each(together, give_up)
    return found


def _read_each(recordings: Sequence[Recording], give_up: GiveUp) -> list[EventBatch]:
    found = []
    for each in recordings:
        try:
            batch = each.read_batch()
        except (ValueError, TypeError, OverflowError, Rejected):
            give_up(each.events, Reason.UNREADABLE)
        else:
            found.append(batch)
            give_up(each.events - len(batch), Reason.UNREADABLE)  # events of an ETDump that the bridge would not take
    return found


def _finish(request: pb.ExportEventsRequest, sequence: int, told: Told) -> Sealed:
    request.stream.sequence = sequence
    for reason, count in told.items():
        request.stream.dropped.add(reason=reason.encode(), events=count)
    body = request.SerializeToString()
    return Sealed(request.stream.stream_id, sequence, len(request.events.kind), told, body)
