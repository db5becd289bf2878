"""A pass takes a bounded number of events and bytes, and where it is cut makes no difference."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.pipelines import BackEnd, drain, inference
from support.scenes import NOON_NS, STREAM, batch_of, batches, execute, runtime, spans_in, stages_with

from otel_bridge.model.events import EventBatch, TraceContext, concatenate
from otel_bridge.model.stream import Clock
from otel_bridge.pipeline import loop
from otel_bridge.pipeline.loop import BATCH_EVENTS
from otel_bridge.pipeline.stages import Stages
from otel_bridge.spans.assemble import assemble
from otel_bridge.spans.fit import sizes_of
from otel_bridge.spans.scene import Scene
from otel_bridge.spans.sealing import Payload

Run = Callable[[Any], Any]


def test_a_large_batch_is_resolved_in_passes_of_bounded_size(run: Run) -> None:
    """A request of any size takes the memory of one pass at a time, cut between inferences."""
    sizes: list[int] = []

    class Watched(Stages):
        """Stages that note how much they are given."""

        def run(self, batch: EventBatch) -> Scene:
            """Note the size."""
            sizes.append(len(batch))
            return super().run(batch)

    large = concatenate([inference(n, 50) for n in range(500)])
    blocks = tuple(replace(block, stream=0) for block in large.blocks)
    large = replace(large, streams=large.streams[:1], blocks=blocks)
    books = run(drain([large], BackEnd(), stages_with(kind=Watched)))
    assert books.emitted_events == sum(sizes) == len(large) > BATCH_EVENTS
    assert max(sizes) <= BATCH_EVENTS


@settings(deadline=None, max_examples=30)
@given(st.lists(batches(), min_size=1, max_size=4), st.integers(1, 4_000))
@example([batch_of((execute(0), []), (execute(1), [runtime("e", 0, 1)]), (execute(2), []))], 1)
@example([batch_of((execute(0), []), (execute(1), [runtime("e", 0, 1)] * 5), (execute(2), []))], 1)
def test_a_pass_that_would_write_too_much_is_cut(parts: list[EventBatch], most: int) -> None:
    """Whatever a map makes of few events: no pass that can be cut writes more, and the spans are the same."""
    sizes: list[tuple[int, int]] = []

    def noting(scene: Scene, limit_bytes: int) -> list[Payload]:
        sizes.append((min(len(scene.batch.blocks), len(scene.batch)), int(sizes_of(scene).sum())))
        return assemble(scene, limit_bytes)

    stages, whole, cut = stages_with(), BackEnd(), BackEnd()
    with asyncio.Runner() as runner, pytest.MonkeyPatch.context() as patch:
        runner.run(drain(parts, whole, stages))
        patch.setattr(loop, "PASS_BYTES", most)
        patch.setattr(loop, "assemble", noting)
        books = runner.run(drain(parts, cut, stages))
    assert books.emitted_events == sum(map(len, parts))
    assert all(size <= most for pieces, size in sizes if pieces > 1)
    expected, found = (
        sorted(span.SerializeToString(deterministic=True) for span in spans_in([Payload(data, 0, 0) for data in taken]))
        for taken in (whole.taken, cut.taken)
    )
    assert found == expected


def test_a_fault_costs_its_batch_where_others_write_too_much(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neighbours of a batch that cannot be processed are cut as others are, and not taken for faulty."""

    class Touchy(Stages):
        """Stages with a defect that one batch meets."""

        def run(self, batch: EventBatch) -> Scene:
            """Fail on any batch that holds a block of 5 events."""
            if 5 in np.diff(batch.bounds):
                raise ZeroDivisionError
            return super().run(batch)

    large = concatenate([inference(n) for n in range(20)])
    large = replace(large, streams=large.streams[:1], blocks=tuple(replace(block, stream=0) for block in large.blocks))
    monkeypatch.setattr(loop, "PASS_BYTES", 1_000)
    books = run(drain([inference(0, 5), large], BackEnd(), stages_with(kind=Touchy)))
    assert (books.emitted_events, dict(books.drops)) == (80, {"internal": 5})


def test_the_inferences_of_an_apps_trace_are_one_request_over_all_passes(run: Run) -> None:
    """Of 20,000 events in the trace of the app, not more than a trace may have stay there, and all are emitted."""
    large = concatenate([inference(n, 50) for n in range(400)])
    context = TraceContext(b"t" * 16, b"s" * 8, 1)
    blocks = tuple(replace(block, stream=0, context=context) for block in large.blocks)
    back_end = BackEnd()
    books = run(drain([replace(large, streams=large.streams[:1], blocks=blocks)], back_end, stages_with()))
    spans = spans_in([Payload(data, 0, 0) for data in back_end.taken])
    sizes = Counter(span.trace_id for span in spans)
    assert (books.emitted_events, len(spans)) == (20_000, 20_000)
    assert len(large) > BATCH_EVENTS
    assert sizes.pop(context.trace_id) == 5_000
    assert set(sizes.values()) == {50}


def test_the_passes_of_a_request_do_not_lie_on_top_of_each_other(run: Run) -> None:
    """Without an anchor the last event of the request ends at receipt, not the last of each pass."""
    stream = replace(STREAM, clocks=(Clock(),))
    blocks = [(execute(n), [runtime("Method::execute", 1_000 * n, 1_000 * n + 500)]) for n in range(BATCH_EVENTS + 10)]
    back_end = BackEnd()
    run(drain([batch_of(*blocks, stream=stream)], back_end, stages_with()))
    starts = sorted(span.start_time_unix_nano for span in spans_in([Payload(data, 0, 0) for data in back_end.taken]))
    assert {later - earlier for earlier, later in pairwise(starts)} == {1_000}
    assert starts[-1] == NOON_NS - 500
