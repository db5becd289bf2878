"""What a span says of its own ticks."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.mappings import mapping_of
from support.scenes import STREAM, E, batch_of, batches, call, delegated, execute, runtime, stages_with

from otel_bridge.backends.table import WITH_RULES
from otel_bridge.model.events import EventBatch
from otel_bridge.model.stream import Clock
from otel_bridge.spans import attributes as at
from otel_bridge.spans.encode import span_attributes
from otel_bridge.spans.extra import extra_attributes, moved_tails
from otel_bridge.spans.scene import Scene
from otel_bridge.v1 import mapping_pb2


def resolved(batch: EventBatch, backend: str) -> Scene:
    """A batch whose delegate calls are all of one backend."""
    file = mapping_pb2.MappingFile(mapping=mapping_of({}, backend=backend), build_id="build")
    named = replace(STREAM, clocks=(Clock(), Clock(1000, 1, name="npu")))
    streams = tuple(replace(stream, clocks=tuple(map(_named, stream.clocks))) for stream in batch.streams) or (named,)
    return stages_with(file).run(replace(batch, streams=streams))


def _named(clock: Clock) -> Clock:
    return replace(clock, name=f"clock of {clock.counter_bits} bits")


@settings(deadline=None)
@given(batches(), st.sampled_from(sorted(WITH_RULES)))
def test_both_ways_to_say_ticks_are_one(batch: EventBatch, backend: str) -> None:
    """For any events of any backend: the bytes that are made a column at a time are those of the attributes."""
    scene = resolved(batch, backend)
    moved = np.flatnonzero(scene.timeline.moved)
    assert moved_tails(scene, moved) == [span_attributes(extra_attributes(scene, row)) for row in moved.tolist()]


def about(event: E, backend: str) -> dict[str, at.Value]:
    """The attributes of one delegate event in a call of ticks 10 to 20."""
    around = [call("DELEGATE_CALL", 0, 10, 20), runtime("Method::execute", 5, 30)]
    stream = replace(STREAM, clocks=(*STREAM.clocks, Clock(2, 1, name="npu")))
    file = mapping_pb2.MappingFile(mapping=mapping_of({}, backend=backend), build_id="build")
    return dict(extra_attributes(stages_with(file).run(batch_of((execute(), [event, *around]), stream=stream)), 0))


@pytest.mark.parametrize(
    ("backend", "event", "said"),
    [
        ("VgfBackend", delegated("VGF_EXECUTE", 0, 12, 15), {}),
        ("XnnpackBackend", delegated("Conv #1", 0, 12, 12), {at.TIME_DURATION_NS: 0}),
        (
            "VgfBackend",
            delegated("VGF_EXECUTE", 0, 12, 25),
            {at.TIME_START_TICKS: "12", at.TIME_END_TICKS: "25", at.TIME_UNIT: "ticks", at.TIME_DURATION_NS: 13},
        ),
        (
            "QnnBackend",
            delegated("total (us)", 0, 0, 7),
            {at.TIME_START_TICKS: "0", at.TIME_END_TICKS: "7", at.TIME_UNIT: "us", at.TIME_DURATION_NS: 7000},
        ),
        (
            "NeutronBackend",
            delegated(3, 0, 900, 904),
            {at.TIME_START_TICKS: "900", at.TIME_END_TICKS: "904", at.TIME_UNIT: "ticks"},
        ),
        (
            "NeutronBackend",
            delegated(3, 0, 900, 904, clock=1),
            {at.TIME_START_TICKS: "900", at.TIME_END_TICKS: "904", at.TIME_UNIT: "ticks", at.TIME_CLOCK: "npu"},
        ),
    ],
)
def test_ticks_stand_where_the_span_is_not_their_image(backend: str, event: E, said: dict[str, at.Value]) -> None:
    """And the true duration where the span's own is not: never for ticks of which nobody knows the length."""
    assert about(event, backend) == said
