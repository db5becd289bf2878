"""The fast path and the obvious one say the same."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from support.mappings import mapping_of
from support.scenes import NOON_NS, STREAM, batches, spans_in, stages_with

from otel_bridge.clock.convert import settle
from otel_bridge.etdump.read import read
from otel_bridge.mapping.source import read_source
from otel_bridge.model.events import EventBatch, concatenate, divide
from otel_bridge.model.stream import Anchor, Clock
from otel_bridge.spans import rows
from otel_bridge.spans.assemble import assemble
from otel_bridge.spans.reference import build
from otel_bridge.v1 import mapping_pb2

CAPTURES = sorted((Path(__file__).parents[1] / "fixtures").glob("*/run*.etdp"))
FILE = mapping_pb2.MappingFile(mapping=mapping_of({"conv #1": [1, 2], 1: [3], 2: []}), build_id="build")


@pytest.fixture(scope="module", autouse=True, params=[(rows._LEAST_ROWS, rows._LOOKED_AT), (0, 32), (0, 2)])
def any_stretch(request: pytest.FixtureRequest) -> Iterator[None]:
    """Short stretches and few are joined as they are, as if they were long, and as if many of them differed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "_LEAST_ROWS", request.param[0])
        patch.setattr(rows, "_LOOKED_AT", request.param[1])
        yield


def by_resource(requests: list[ExportTraceServiceRequest]) -> dict[bytes, list[Span]]:
    """Spans by the bytes of their resource and scope, in an order of their own."""
    found: dict[bytes, list[Span]] = {}
    for request in requests:
        for resource in request.resource_spans:
            (scope,) = resource.scope_spans
            key = resource.resource.SerializeToString() + resource.schema_url.encode() + scope.scope.SerializeToString()
            found.setdefault(key, []).extend(scope.spans)
    for spans in found.values():
        spans.sort(key=encoded)
    return found


def encoded(span: Span) -> bytes:
    """A span as bytes, equal where spans are."""
    return span.SerializeToString(deterministic=True)


@settings(deadline=None)
@given(st.lists(batches(), min_size=1, max_size=3), st.sampled_from([1, 500, 10**6]))
def test_templates_and_messages_give_equal_spans(parts: list[EventBatch], limit: int) -> None:
    """For any events, resolved in one pass, however they are cut into requests, both ways decode to equal messages."""
    scene = stages_with(FILE).run(concatenate(parts))
    payloads = assemble(scene, limit)
    fast = [ExportTraceServiceRequest.FromString(payload.data) for payload in payloads]
    assert by_resource([build(scene)]) == by_resource(fast)
    assert len(scene.batch) == sum(payload.events for payload in payloads)
    assert [payload.spans for payload in payloads] == [len(spans_in([payload])) for payload in payloads]


@settings(deadline=None, max_examples=20)
@given(st.lists(batches(), min_size=1, max_size=3))
def test_many_requests_in_a_pass_are_said_alike(parts: list[EventBatch]) -> None:
    """So it is in a pass of many requests, where rows of many blocks and streams are handled together."""
    again = [replace(part, streams=(replace(part.streams[0], sequence=n),)) for n in range(12) for part in parts]
    scene = stages_with(FILE).run(concatenate(again))
    fast = [ExportTraceServiceRequest.FromString(payload.data) for payload in assemble(scene, 10**6)]
    assert by_resource([build(scene)]) == by_resource(fast)


@settings(deadline=None, max_examples=20)
@given(st.lists(batches(), min_size=1, max_size=2))
def test_outlines_of_faces_are_enough_to_write_spans(parts: list[EventBatch]) -> None:
    """A service keeps no more of what spans say than their bytes, and reports keep all: both write the same."""
    batch = concatenate(parts)
    whole, outlined = (assemble(stages_with(FILE, whole_faces=kept).run(batch), 10**6) for kept in (True, False))
    assert [each.data for each in outlined] == [each.data for each in whole]


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_captures_are_said_alike(capture: Path) -> None:
    """What a runtime logged, with its mapping and without, from devices with an anchor, without one and with other clocks."""
    clocks = (Clock(), Clock(anchor=Anchor(0, NOON_NS)), Clock(125, 3, 32), Clock(1, 1, 24, Anchor(9, NOON_NS)))
    stages = stages_with(read_source((capture.parent / "model.etrecord").read_bytes()))
    (build_id,) = (info.build_id for info in stages._mappings._registry.page("", "", 2))
    parts = [
        read(capture.read_bytes(), replace(STREAM, build=build, sequence=n, clocks=(clock,))).batch
        for n, (clock, build) in enumerate(product(clocks, (build_id, None)))
    ]
    scene = stages.run(concatenate(parts))
    fast = [ExportTraceServiceRequest.FromString(payload.data) for payload in assemble(scene, 10**6)]
    assert by_resource([build(scene)]) == by_resource(fast)


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_inferences_of_a_capture_are_said_as_if_each_had_come_alone(capture: Path) -> None:
    """They ran the same model, so they are resolved as one; what each says is found one by one as well, by other stages."""
    file = read_source((capture.parent / "model.etrecord").read_bytes())
    together, alone = stages_with(file), stages_with(file)
    (build_id,) = (info.build_id for info in together._mappings._registry.page("", "", 2))
    stream = replace(STREAM, build=build_id, clocks=(Clock(anchor=Anchor(0, NOON_NS)),))
    batch = settle(read(capture.read_bytes(), stream).batch)
    whole = spans_in(assemble(together.run(batch), 10**6))
    single = [span for piece in divide(batch, 1) for span in spans_in(assemble(alone.run(piece), 10**6))]
    assert len(divide(batch, 1)) == len(batch.blocks) > 1
    assert sorted(map(encoded, whole)) == sorted(map(encoded, single))


@settings(deadline=None)
@given(batches())
def test_a_batch_gives_the_same_bytes_whenever_it_is_resolved(batch: EventBatch) -> None:
    """A replay is byte for byte what the first pass was: templates and caches leave no trace."""
    stages = stages_with(FILE)
    first = assemble(stages.run(batch), 10**6)
    again = assemble(stages.run(batch), 10**6)
    elsewhere = assemble(stages_with(FILE).run(batch), 10**6)
    assert first == again == elsewhere


@settings(deadline=None)
@given(st.lists(batches(), min_size=2, max_size=3))
def test_neighbours_in_a_pass_change_nothing(parts: list[EventBatch]) -> None:
    """A span is the same, byte for byte, whatever else is resolved with it."""
    stages = stages_with(FILE)
    together = spans_in(assemble(stages.run(concatenate(parts)), 10**6))
    apart = [span for part in parts for span in spans_in(assemble(stages.run(part), 10**6))]
    assert sorted(map(encoded, apart)) == sorted(map(encoded, together))


@settings(deadline=None, max_examples=50)
@given(st.lists(batches(), min_size=1, max_size=3), st.integers(2, 4))
def test_what_runs_again_is_said_as_if_it_ran_alone(parts: list[EventBatch], times: int) -> None:
    """Blocks that ran the same are resolved once, with a mapping or without, and each says what it says by itself."""
    again = [
        replace(part, streams=(replace(part.streams[0], sequence=n, build=(n % 2 and part.streams[0].build) or None),))
        for n in range(times)
        for part in parts
    ]
    stages = stages_with(FILE)
    together = spans_in(assemble(stages.run(concatenate(again)), 10**6))
    apart = [span for part in again for span in spans_in(assemble(stages_with(FILE).run(part), 10**6))]
    assert sorted(map(encoded, together)) == sorted(map(encoded, apart))


@settings(deadline=None)
@given(batches(), st.integers(1, 2000))
def test_requests_keep_to_their_limit(batch: EventBatch, limit: int) -> None:
    """A request is over its limit only by its resource, or because one span alone is larger."""
    for payload in assemble(stages_with(FILE).run(batch), limit):
        request = ExportTraceServiceRequest.FromString(payload.data)
        sizes = [
            span.ByteSize() for resource in request.resource_spans for scope in resource.scope_spans for span in scope.spans
        ]
        assert len(sizes) == 1 or sum(sizes) <= limit
