"""
The part of a serialised span that many rows share: name, kind, attributes, and what little differs besides ids and times.

Invariant: each distinct tail is made once a batch; a row holds its number.
"""

import numpy as np
from numpy.typing import NDArray
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from otel_bridge.spans import attributes as at
from otel_bridge.spans import encode
from otel_bridge.spans.attributes import ERROR_TYPE
from otel_bridge.spans.extra import extra_attributes, moved_tails, own_attributes
from otel_bridge.spans.inference import Inference
from otel_bridge.spans.scene import Scene


def tails_of(scene: Scene) -> tuple[list[bytes], NDArray[np.int64]]:
    """Each distinct tail of the scene's rows, and int64[n] the number of each row's. Roots say more: see `root_tails_of`."""
    timeline = scene.timeline
    states = [inference.state for inference in scene.inferences]
    numbers = {state: number for number, state in enumerate(dict.fromkeys(states))}
    columns = [scene.template, scene.decoded + 1, scene.counters.said + 1]
    if len(numbers) > 1:
        columns.append(np.array([numbers[state] for state in states], np.int64)[scene.inference][scene.tree.block])
    moved = np.flatnonzero(timeline.moved)
    own = (timeline.length == 0).astype(np.int64)
    own[moved] = np.arange(2, len(moved) + 2)  # ticks differ from row to row
    columns.append(own)
    first, tail = distinct(columns)
    ticks = moved_tails(scene, moved)
    tails = []
    for row in first.tolist():
        decoded, counted = int(scene.decoded[row]), int(scene.counters.said[row])
        tails.append(
            scene.templates[scene.template[row]].encoded
            + (scene.metadata[decoded].encoded if decoded >= 0 else b"")
            + (scene.counters.encoded[counted] if counted >= 0 else b"")
            + (
                ticks[own[row] - 2]
                if own[row] > 1
                else encode.span_attributes(extra_attributes(scene, row))
                if own[row]
                else b""
            )
            + _encode_state(scene.inference_at(scene.tree.block[row]).state)
        )
    return tails, tail


def root_tails_of(scene: Scene, blocks: NDArray[np.int64], rows: NDArray[np.int64]) -> tuple[list[bytes], NDArray[np.int64]]:
    """
    Each distinct tail of the roots of `blocks`, and the number of each root's.

    `rows` are the rows of the roots in the batch; a number past its end is a root of the bridge's making.
    """
    tails: list[bytes] = []
    numbers: dict[tuple[int, tuple[tuple[str, at.Value], ...]], int] = {}
    chosen = []
    for inference, row in zip(scene.inference[blocks].tolist(), rows.tolist(), strict=True):
        extra = own_attributes(scene, row) if row < len(scene.batch) else ()
        number = numbers.get((inference, extra))
        if number is None:
            number = numbers[inference, extra] = len(tails)
            tails.append(_root_tail(scene.inferences[inference], extra))
        chosen.append(number)
    return tails, np.array(chosen, np.int64)


def _root_tail(inference: Inference, extra: tuple[tuple[str, at.Value], ...]) -> bytes:
    attributes = encode.span_attributes(inference.attributes + extra)
    return inference.root.encoded + attributes + _encode_state(inference.state) + _outcome(inference)


def _outcome(inference: Inference) -> bytes:
    tail = b""
    if inference.error is not None:
        status = Status(code=Status.StatusCode.STATUS_CODE_ERROR)
        tail += Span(status=status, attributes=[encode.key_value(ERROR_TYPE, inference.error)]).SerializeToString()
    if inference.link is not None:
        link = inference.link
        linked = Span.Link(trace_id=link.trace_id, span_id=link.span_id, trace_state=link.state, flags=link.flags)
        tail += Span(links=[linked]).SerializeToString()
    return tail


def _encode_state(state: str) -> bytes:
    return Span(trace_state=state).SerializeToString() if state else b""


def distinct(columns: list[NDArray[np.int64]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """
    The first row of each distinct combination of the columns (none negative), and int64[n] which of them each row is like.

    The columns are folded into one integer a row, renumbered before it could overflow.
    """
    key = columns[0]
    for column in columns[1:]:
        span = int(column.max(initial=0)) + 1
        if span == 1:
            continue
        if int(key.max(initial=0)) >= 2**62 // span:
            key = np.unique(key, return_inverse=True)[1]
        key = key * span + column
    _, first, number = np.unique(key, return_index=True, return_inverse=True)
    return first, number
