"""
The part of a serialised span that many rows share: name, kind, attributes, and what little differs besides ids and times.

Invariant: each distinct tail is made once a batch; a row holds its number.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from otel_bridge.spans import attributes as at
from otel_bridge.spans import encode
from otel_bridge.spans.attributes import ERROR_TYPE
from otel_bridge.spans.distinct import distinct
from otel_bridge.spans.extra import INSTANT, moved_tails, own_attributes
from otel_bridge.spans.inference import Inference
from otel_bridge.spans.scene import Scene

_INSTANT = encode.span_attributes(INSTANT)


def tails_of(scene: Scene) -> tuple[list[bytes], NDArray[np.int64]]:
    """
    Each distinct tail of the scene's rows, and int64[n] the number of each row's. Roots say more: see `root_tails_of`.

    Where metadata stand in forms, which are to be filled, they follow on the face (`Template.encoded`).
    """
    timeline = scene.timeline
    faces = [template.encoded for template in scene.templates]
    states = list(dict.fromkeys(inference.state for inference in scene.inferences))
    encoded_states = [_encode_state(each) for each in states]
    moved = timeline.moved.nonzero()[0]
    own = (timeline.length == 0).astype(np.int64)
    own[moved] = np.arange(2, len(moved) + 2)  # ticks differ from row to row
    if not (len(scene.metadata) or scene.counters.encoded or len(states) > 1 or own.any()):
        return [face + encoded_states[0] for face in faces], scene.template.copy()

    columns = [scene.template]
    metadata = scene.metadata.form[scene.decoded]
    if len(scene.metadata):
        columns.append(metadata)
    if scene.counters.encoded:
        columns.append(scene.counters.said + 1)
    state = np.zeros(len(scene.batch), np.int64)
    if len(states) > 1:
        state = np.array([states.index(inference.state) for inference in scene.inferences], np.int64)[scene.inference]
        state = state[scene.tree.block]
        columns.append(state)
    columns.append(own)
    first, tail = distinct(columns)

    counters = [*scene.counters.encoded, b""]
    owns = [b"", _INSTANT, *moved_tails(scene, moved)]
    parts = (
        map(faces.__getitem__, scene.template[first].tolist()),
        map(scene.metadata.forms.__getitem__, metadata[first].tolist()),
        map(counters.__getitem__, scene.counters.said[first].tolist()),
        map(owns.__getitem__, own[first].tolist()),
        map(encoded_states.__getitem__, state[first].tolist()),
    )
    return list(map(b"".join, zip(*parts, strict=True))), tail


def root_tails_of(
    scene: Scene, blocks: NDArray[np.int64], rows: NDArray[np.int64]
) -> tuple[list[tuple[bytes, bool]], NDArray[np.int64]]:
    """
    Each distinct tail of the roots of `blocks` and whether its spans have a parent, and the number of each root's.

    `rows` are the rows of the roots in the batch; a number past its end is a root of the bridge's making.
    """
    inferences, inference = scene.inferences, scene.inference[blocks]
    said = _say_more(scene, rows)
    own = np.zeros(len(rows), np.int64)
    own[said] = np.arange(1, np.count_nonzero(said) + 1)
    first, number = distinct([inference, own])
    tails = [
        _root_tail(inferences[whose], own_attributes(scene, row) if more else ())
        for whose, row, more in zip(inference[first].tolist(), rows[first].tolist(), own[first].tolist(), strict=True)
    ]
    return [(tail, any(inferences[whose].parent)) for tail, whose in zip(tails, inference[first].tolist(), strict=True)], number


def _say_more(scene: Scene, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which rows say more than their face (`own_attributes`); what is past the end says nothing."""
    more = rows < len(scene.batch)
    own = rows[more]
    more[more] = (
        (scene.decoded[own] >= 0)
        | (scene.counters.said[own] >= 0)
        | scene.timeline.moved[own]
        | (scene.timeline.length[own] == 0)
    )
    return more


def _root_tail(inference: Inference, extra: tuple[tuple[str, at.Value], ...]) -> bytes:
    attributes = encode.span_attributes(inference.attributes + extra)
    return inference.root.encoded + attributes + _encode_state(inference.state) + _outcome(inference)


def _outcome(inference: Inference) -> bytes:
    tail = _encode_error(inference.error) if inference.error is not None else b""
    if inference.link is not None:
        link = inference.link
        linked = Span.Link(trace_id=link.trace_id, span_id=link.span_id, trace_state=link.state, flags=link.flags)
        tail += Span(links=[linked]).SerializeToString()
    return tail


@lru_cache
def _encode_error(name: str) -> bytes:
    status = Status(code=Status.StatusCode.STATUS_CODE_ERROR)
    return Span(status=status, attributes=[encode.key_value(ERROR_TYPE, name)]).SerializeToString()


def _encode_state(state: str) -> bytes:
    return Span(trace_state=state).SerializeToString() if state else b""
