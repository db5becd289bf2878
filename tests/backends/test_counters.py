"""Counters: where they stand, that none is lost, and that none becomes a time."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from support.mappings import mapping_of
from support.scenes import NOON_NS, STREAM, E, batch_of, call, delegated, execute, runtime, spans_in, stages_with

from otel_bridge.clock.converters import Converters
from otel_bridge.mapping.cache import CompiledMappings
from otel_bridge.mapping.memory import MemoryRegistry
from otel_bridge.metadata.table import Decoders
from otel_bridge.model.events import EventBatch, Part, concatenate
from otel_bridge.model.stream import Anchor, Clock
from otel_bridge.pipeline import readings
from otel_bridge.pipeline.stages import Stages
from otel_bridge.spans.assemble import assemble
from otel_bridge.spans.reference import build
from otel_bridge.v1 import mapping_pb2 as pb

FILE = pb.MappingFile(mapping=mapping_of({"conv": [1], 3: [2]}, backend="QnnBackend"), build_id="build")
DECLARED = pb.MappingFile.FromString(FILE.SerializeToString())
DECLARED.mapping.metadata.add(delegate="QnnBackend").layout.fields.add(name="bank", type="u8")
COUNTER = "executorch.delegate.counter."
NPU = replace(STREAM, clocks=(*STREAM.clocks, Clock(4, 1, anchor=Anchor(0, NOON_NS), name="npu")))

identifiers = st.sampled_from(["heap (bytes)", "n (count)", "conv (cycles)", "conv (us)", "conv", 3, "node:OpId_1 (cycles)"])
instructions = st.sampled_from([0, 0, 0, 1])


def run_of(events: Sequence[E], position: int = 0, part: Part | None = None) -> EventBatch:
    """One inference with these events."""
    return batch_of((execute(position, part=part), events), stream=NPU)


@st.composite
def runs(draw: st.DrawFn, position: int) -> EventBatch:
    """An inference of two delegate calls, with calls and values missing or many."""
    values = st.integers(0, 3000) | st.integers(0, 2**64 - 1)
    drawn = st.lists(
        st.tuples(identifiers, instructions, values, st.integers(0, 1), st.sampled_from([b"", b"", b"m"])), max_size=9
    )
    events = [delegated(name, at, 0, value, clock=clock, metadata=data) for name, at, value, clock, data in draw(drawn)]
    calls = draw(st.lists(st.tuples(st.sampled_from([0, 1]), st.sampled_from([b"", b"m"])), max_size=3))
    events += [call("DELEGATE_CALL", at, 100, 5000, metadata=data) for at, data in calls]
    events += [runtime("Method::execute", 0, 10_000)] * draw(st.integers(0, 1))
    return run_of(draw(st.permutations(events)), position)


def values_in(spans: Sequence[Span]) -> list[tuple[str, int]]:
    """Counters on spans, without the prefix."""
    said = [attribute for span in spans for attribute in span.attributes if attribute.key.startswith(COUNTER)]
    return sorted((attribute.key.removeprefix(COUNTER), attribute.value.int_value) for attribute in said)


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=3).flatmap(lambda n: st.tuples(*[runs(i) for i in range(len(n))])),
    st.sampled_from([(FILE, readings._FEW), (DECLARED, 0)]),
)
def test_both_ways_agree_and_every_event_ends_once(parts: tuple[EventBatch, ...], read: tuple[pb.MappingFile, int]) -> None:
    """For any counters, with metadata: equal spans, all events in the ledger, and what stands alone is the same in company."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readings, "_FEW", read[1])
        check_both_ways(parts, stages_with(read[0]))


def check_both_ways(parts: Sequence[EventBatch], stages: Stages) -> None:
    """What the test above says, of these stages."""
    batch = concatenate(parts)
    scene = stages.run(batch)
    payloads = assemble(scene, 700)
    reference = [span for resource in build(scene).resource_spans for scope in resource.scope_spans for span in scope.spans]
    spans = spans_in(payloads)

    def encoded(of: Sequence[Span]) -> list[bytes]:
        return sorted(span.SerializeToString(deterministic=True) for span in of)

    assert encoded(spans) == encoded(reference)
    assert sum(payload.events for payload in payloads) == len(batch)
    assert encoded([span for part in parts for span in spans_in(assemble(stages.run(part), 700))]) == encoded(spans)
    requests = [ExportTraceServiceRequest.FromString(payload.data) for payload in payloads]
    assert sum(len(scope.spans) for r in requests for resource in r.resource_spans for scope in resource.scope_spans) == len(
        spans
    )


@settings(deadline=None)
@given(runs(0))
def test_bytes_are_never_a_length(batch: EventBatch) -> None:
    """On whatever clock: a span that bears a counter of bytes or counts and is no call is 1 ns long."""
    for span in spans_in(assemble(stages_with(FILE).run(batch), 10**6)):
        keys = [attribute.key for attribute in span.attributes]
        if any(key.startswith(COUNTER) for key in keys) and "executorch.delegate.debug_id" in keys:
            assert span.end_time_unix_nano - span.start_time_unix_nano == 1


def test_cycles_on_a_clock_that_the_sender_describes_are_times() -> None:
    """4 ns a cycle: a span with handles, and no counter. Bytes stay what they are."""
    events = [
        delegated("conv (cycles)", 0, 500, 700, clock=1),
        delegated("heap (bytes)", 0, 0, 64, clock=1),
        call("DELEGATE_CALL", 0, 100, 5000),
        runtime("Method::execute", 0, 10_000),
    ]
    spans = spans_in(assemble(stages_with(FILE).run(run_of(events)), 10**6))
    (node,) = [span for span in spans if span.name == "conv"]
    assert node.end_time_unix_nano - node.start_time_unix_nano == 800
    assert values_in(spans) == [("heap_bytes", 64)]


def test_a_converter_makes_times_of_cycles_and_never_of_bytes() -> None:
    """Who knows the frequency says so by a function."""
    registry = MemoryRegistry()
    registry.put("", FILE)
    converters = Converters(["QnnBackend=support.vendor_backends:at_500_mhz"])
    stages = Stages(CompiledMappings(registry, 10), Decoders(), 1 << 20, converters)
    events = [
        delegated("conv (cycles)", 0, 0, 200),
        delegated("heap (bytes)", 0, 0, 64),
        call("DELEGATE_CALL", 0, 100, 5000),
        runtime("Method::execute", 0, 10_000),
    ]
    spans = spans_in(assemble(stages.run(run_of(events)), 10**6))
    (node,) = [span for span in spans if span.name == "conv"]
    assert node.end_time_unix_nano - node.start_time_unix_nano == 400
    assert values_in(spans) == [("heap_bytes", 64)]


def test_a_counter_without_its_call_has_a_span_of_its_own() -> None:
    """In a part of an inference whose call comes later: nothing is lost, and nothing is a time."""
    batch = run_of([delegated("heap (bytes)", 0, 0, 4096)], part=Part(0, last=False, first_event=0))
    (span,) = spans_in(assemble(stages_with(FILE).run(batch), 10**6))
    assert values_in([span]) == [("heap_bytes", 4096)]
    assert span.end_time_unix_nano - span.start_time_unix_nano == 1


def test_each_call_has_its_own_counters() -> None:
    """A repeated instruction is another call."""
    events = [
        delegated("n (count)", 0, 0, 1),
        call("DELEGATE_CALL", 0, 100, 200),
        delegated("n (count)", 0, 0, 2),
        call("DELEGATE_CALL", 0, 300, 400),
        runtime("Method::execute", 0, 500),
    ]
    spans = spans_in(assemble(stages_with(FILE).run(run_of(events)), 10**6))
    assert values_in(spans) == [("n_count", 1), ("n_count", 2)]
    assert len(spans) == 3
