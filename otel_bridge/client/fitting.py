"""
Requests that are not too large.

Invariants
* What is over a limit is divided between blocks. One inference that alone is over it goes in parts (docs/protocol.md, "Parts"),
  whose occurrences are counted over the whole inference. An event that alone is over it is given up, and the rest goes on.
* Each request carries the names and payloads that it uses, and no others.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from otel_bridge.model.events import Block, EventBatch, Part
from otel_bridge.spans.tree import occurrences
from otel_bridge.v1 import profiling_pb2 as pb
from otel_bridge.wire.codec import request_of

_MAX_BLOCKS = 1 << 16  # wire/admission.py
_MAX_EVENTS = 1 << 20
_HEADROOM_BYTES = 512  # for the sequence number and the report of drops, which are not known when a request is measured


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one request: bytes before compression; events, which only a single larger inference may exceed."""

    max_bytes: int
    max_events: int = _MAX_EVENTS


def fit(batch: EventBatch, head: pb.Stream, limits: Limits, give_up: Callable[[int], None]) -> list[pb.ExportEventsRequest]:
    """
    Requests with the events of a batch, in order, with the stream `head`; parts are numbered from that of the batch's block.

    `give_up` is told of events that are too large alone.
    """
    request, pieces = _within(batch, head, limits)
    if request is not None:
        return [request]
    if len(batch.blocks) > 1:
        return [
            each
            for first, last in _share(0, len(batch.blocks), pieces)
            for each in fit(_take_blocks(batch, slice(first, last)), head, limits, give_up)
        ]
    return _Divided(batch, head, limits, give_up).requests(pieces)


class _Divided:
    """One inference, or one part of it, in parts."""

    def __init__(self, batch: EventBatch, head: pb.Stream, limits: Limits, give_up: Callable[[int], None]) -> None:
        (self._block,) = batch.blocks
        self._whole = self._block.part or Part(0, last=True, first_event=0)
        self._batch = batch if self._block.part is not None else replace(batch, occurrence=occurrences(batch))
        self._head, self._limits, self._give_up = head, limits, give_up
        self._made: list[pb.ExportEventsRequest] = []

    def requests(self, pieces: int) -> list[pb.ExportEventsRequest]:
        """The parts, in order; it is likely to fit in so many."""
        self._divide(0, len(self._batch), pieces)
        if self._made and self._whole.last:
            self._made[-1].blocks[0].part.last = True
        return self._made

    def _divide(self, first: int, last: int, pieces: int) -> None:
        """Parts of rows that are too large together."""
        if last - first <= 1:
            self._give_up(last - first)
            return
        for begin, end in _share(first, last, pieces):
            part = Part(self._whole.number + len(self._made), last=False, first_event=self._whole.first_event + begin)
            rows = _take_rows(self._batch, begin, end, replace(self._block, part=part))
            request, more = _within(rows, self._head, self._limits)
            if request is not None:
                self._made.append(request)
            else:
                self._divide(begin, end, more)


def _within(batch: EventBatch, head: pb.Stream, limits: Limits) -> tuple[pb.ExportEventsRequest | None, int]:
    """The request of a batch and 1; or None, it is too large, and in how many pieces it is likely to fit."""
    if len(batch.blocks) > _MAX_BLOCKS or len(batch) > _MAX_EVENTS:
        return None, 2
    request = request_of(_prune(batch))
    request.stream.CopyFrom(head)
    nbytes = request.ByteSize() + _HEADROOM_BYTES
    return (request, 1) if nbytes <= limits.max_bytes else (None, 1 + -(-nbytes // limits.max_bytes))


def _share(first: int, last: int, pieces: int) -> Iterator[tuple[int, int]]:
    """The range from `first` to `last`, two long or more, in so many pieces at the most, none of them empty."""
    count = min(pieces, last - first)
    return pairwise(first + (last - first) * piece // count for piece in range(count + 1))


def _take_blocks(batch: EventBatch, blocks: slice) -> EventBatch:
    bounds = batch.bounds[blocks.start : blocks.stop + 1]
    return _slice(batch, int(bounds[0]), int(bounds[-1]), batch.blocks[blocks], bounds - bounds[0])


def _take_rows(batch: EventBatch, first: int, last: int, block: Block) -> EventBatch:
    return _slice(batch, first, last, (block,), np.array([0, last - first], np.int64))


def _slice(batch: EventBatch, first: int, last: int, blocks: tuple[Block, ...], bounds: NDArray[np.int64]) -> EventBatch:
    return replace(batch, blocks=blocks, bounds=bounds, **batch.columns_at(slice(first, last)))


def _prune(batch: EventBatch) -> EventBatch:
    names, name = np.unique(batch.name, return_inverse=True)
    payloads, metadata = np.unique(np.concatenate((np.zeros(1, np.uint32), batch.metadata)), return_inverse=True)
    return replace(
        batch,
        names=tuple(batch.names[each] for each in names.tolist()),
        payloads=tuple(batch.payloads[each] for each in payloads.tolist()),
        name=name.astype(np.uint32),
        metadata=metadata[1:].astype(np.uint32),
    )
