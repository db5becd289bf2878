"""
Spans as protobuf messages, one at a time: the obvious way, and the oracle of the fast one.

It shares with `spans/assemble.py` what a span says and where it lies (the scene), and nothing of how bytes are made.
"""

import numpy as np
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from otel_bridge.spans import encode, ids
from otel_bridge.spans.attributes import ERROR_TYPE, SCHEMA_URL
from otel_bridge.spans.extra import own_attributes
from otel_bridge.spans.scene import Scene
from otel_bridge.spans.tree import NOWHERE


def build(scene: Scene) -> ExportTraceServiceRequest:
    """All spans of a scene in one request: a `ResourceSpans` a stream, spans in the order of the batch, made roots last."""
    request = ExportTraceServiceRequest()
    for stream, said in enumerate(scene.resources):
        rows = np.flatnonzero(~scene.counters.silent).tolist()
        spans = [_span(scene, row) for row in rows if _stream_of_row(scene, row) == stream]
        made = np.flatnonzero(scene.has_root_span & (scene.tree.root == NOWHERE)).tolist()
        spans += [_root(scene, block, None) for block in made if scene.batch.blocks[block].stream == stream]
        if spans:
            resource = request.resource_spans.add(schema_url=SCHEMA_URL)
            resource.resource.CopyFrom(Resource(attributes=encode.key_values(said.attributes)))
            resource.scope_spans.add(scope=encode.SCOPE, spans=spans)
    return request


def _stream_of_row(scene: Scene, row: int) -> int:
    return scene.batch.blocks[int(scene.tree.block[row])].stream


def _span(scene: Scene, row: int) -> Span:
    block = int(scene.tree.block[row])
    if scene.tree.root[block] == row:
        return _root(scene, block, row)
    face = scene.templates[scene.template[row]].face
    inference = scene.inference_at(block)
    attributes = face.attributes + own_attributes(scene, row)
    return Span(
        trace_id=inference.trace_id or scene.derived[block],
        span_id=_span_id(scene.derived[block], int(scene.tree.place[row])),
        parent_span_id=_span_id(scene.derived[block], int(scene.tree.parent_place[row])),
        trace_state=inference.state,
        flags=inference.flags,
        name=face.name,
        kind=Span.SpanKind.SPAN_KIND_INTERNAL,
        start_time_unix_nano=int(scene.timeline.start[row]),
        end_time_unix_nano=int(scene.timeline.end[row]),
        attributes=encode.key_values(attributes),
    )


def _root(scene: Scene, block: int, row: int | None) -> Span:
    inference = scene.inference_at(block)
    face = inference.root.face
    attributes = face.attributes + inference.attributes + (own_attributes(scene, row) if row is not None else ())
    span = Span(
        trace_id=inference.trace_id or scene.derived[block],
        span_id=_span_id(scene.derived[block], ids.ROOT_PLACE),
        parent_span_id=inference.parent,
        trace_state=inference.state,
        flags=inference.root_flags,
        name=face.name,
        kind=Span.SpanKind.SPAN_KIND_INTERNAL,
        start_time_unix_nano=int(scene.timeline.root_start[block]),
        end_time_unix_nano=int(scene.timeline.root_end[block]),
        attributes=encode.key_values(attributes),
    )
    if inference.error is not None:
        span.status.code = Status.StatusCode.STATUS_CODE_ERROR
        span.attributes.append(encode.key_value(ERROR_TYPE, inference.error))
    if inference.link is not None:
        link = inference.link
        span.links.add(trace_id=link.trace_id, span_id=link.span_id, trace_state=link.state, flags=link.flags)
    return span


def _span_id(derived: bytes, place: int) -> bytes:
    """The derivation of spans/ids.py in Python integers."""
    mask = 2**64 - 1
    first, second = int.from_bytes(derived[:8], "big"), int.from_bytes(derived[8:], "big")
    mixed = (place + first) & mask
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & mask
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & mask
    mixed = mixed ^ mixed >> 31 ^ second
    return (mixed or 1).to_bytes(8, "big")
