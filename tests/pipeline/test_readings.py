"""Metadata of a batch: however many are read at a time, spans say the same."""

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from support.mappings import mapping_of
from support.scenes import STREAM, batch_of, call, delegated, execute, runtime, spans_in, stages_with

from otel_bridge.mapping.cache import CompiledMappings
from otel_bridge.mapping.memory import MemoryRegistry
from otel_bridge.metadata.table import Decoders
from otel_bridge.model.events import EventBatch, concatenate
from otel_bridge.pipeline import readings
from otel_bridge.pipeline.stages import Stages
from otel_bridge.spans.assemble import assemble
from otel_bridge.spans.fit import fit
from otel_bridge.spans.reference import build
from otel_bridge.spans.rollup import Limits
from otel_bridge.spans.withholding import withhold
from otel_bridge.v1 import mapping_pb2 as pb

FIELDS = {
    "a": (("cycles", "u32"), ("bank", "u16"), ("stall", "i16")),
    "b": (("ratio", "f32"), ("tag", "bytes<2>"), ("hot", "bool"), ("n", "u8")),
}


def file_of(build_id: str) -> pb.MappingFile:
    """A mapping of a toy backend that declares 8 bytes."""
    mapping = mapping_of({1: [1], 2: [2]})
    fields = [pb.StructField(name=name, type=kind) for name, kind in FIELDS[build_id]]
    mapping.metadata.add(delegate="Toy", layout=pb.StructLayout(fields=fields))
    return pb.MappingFile(mapping=mapping, build_id=build_id)


def batch(build_id: str, metadata: list[bytes], *, own_clock: bool = False) -> EventBatch:
    """One inference of events with these bytes."""
    events = [
        delegated(1 + number % 2, 0, 200 + number, 201 + number, metadata=each, clock=int(own_clock and number % 3 == 0))
        for number, each in enumerate(metadata)
    ]
    events += [call("DELEGATE_CALL", 0, 100, 10_000), runtime("Method::execute", 0, 20_000)]
    clocks = (*STREAM.clocks, *STREAM.clocks)
    return batch_of((execute(), events), stream=replace(STREAM, build=build_id, clocks=clocks))


def of_tenant(tenant: str, batch: EventBatch) -> EventBatch:
    """A batch of a tenant's device."""
    return replace(batch, streams=tuple(replace(stream, tenant=tenant) for stream in batch.streams))


NAN = b"\x00\x00\xc0\x7f" * 2
SIGNALLING_NAN = b"\x00\x00\x81\x7f" * 2
PAYLOADS = st.lists(
    st.binary(min_size=8, max_size=8) | st.sampled_from([b"", b"\x01" * 8, b"short", NAN, SIGNALLING_NAN]), max_size=60
)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.sampled_from("ab"), PAYLOADS, st.booleans()), min_size=1, max_size=4))
def test_read_together_or_one_by_one_spans_say_the_same(parts: list[tuple[str, list[bytes], bool]]) -> None:
    """Of layouts of two builds in one pass, with bytes that fit and others, shared and not, moved in time or not."""
    whole = concatenate([batch(*part[:2], own_clock=part[2]) for part in parts])
    said = []
    for few in (0, 10**9):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(readings, "_FEW", few)
            scene = stages_with(file_of("a"), file_of("b")).run(whole)
        fast = assemble(scene, 10**6)
        assert sorted(span.SerializeToString(deterministic=True) for span in spans_in(fast)) == sorted(
            span.SerializeToString(deterministic=True)
            for resource in build(scene).resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        )
        said.append([payload.data for payload in fast])
        rolled = fit(scene, {}, Limits(spans=3))
        said.append([payload.data for payload in assemble(rolled, 10**6)])
    assert said[:2] == said[2:]


@pytest.mark.parametrize("allowed", [{"bank"}, set()], ids=["one", "none"])
def test_what_is_withheld_is_withheld_however_it_is_read(allowed: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys that are not to be shown are not, nor is any of their values."""
    registry = MemoryRegistry()
    registry.put("", file_of("a"))
    whole = batch("a", [number.to_bytes(8, "little") for number in range(1, 50)])
    said = []
    for few in (0, 10**9):
        monkeypatch.setattr(readings, "_FEW", few)
        show = withhold(allowed.__contains__, str)
        stages = Stages(CompiledMappings(registry, 1 << 20), Decoders(), 1 << 20, withhold=show)
        scene = stages.run(whole)
        assert len(scene.metadata) == 49
        said.append([payload.data for payload in assemble(scene, 10**6)])
    assert said[0] == said[1]
    spans = [span for span in spans_in(assemble(scene, 10**6)) for each in span.attributes if "metadata" in each.key]
    assert len(spans) == 49 * len(allowed)


def test_distinct_metadata_are_read_as_columns() -> None:
    """Many different byte strings of a layout are not decoded one by one, nor do they push out what is remembered."""
    stages = stages_with(file_of("a"))
    scene = stages.run(batch("a", [number.to_bytes(8, "little") for number in range(1, 500)]))
    assert len(scene.metadata) == 499
    assert len(scene.metadata.forms) < 10
    assert not stages._readings._decoders._cache
    spans = spans_in(assemble(scene, 10**6))
    assert sum(any(each.key.endswith("metadata.cycles") for each in span.attributes) for span in spans) == 499


@settings(max_examples=20)
@given(st.permutations(range(30)))
def test_a_table_says_the_same_in_any_order(order: list[int]) -> None:
    """Rows find their byte strings wherever these stand, side by side or not, and so if several rows share one."""
    said = [bytes([number % 30, 1, 0, 0, number % 30, 0, 0, 0]) for number in range(40)]
    straight = batch("a", said)
    number_of = {each: number for number, each in enumerate(order)}
    column = np.array([number_of[number - 1] + 1 if number else 0 for number in straight.metadata.tolist()], np.uint32)
    shuffled = replace(straight, metadata=column, payloads=(b"", *[straight.payloads[number + 1] for number in order]))
    found = [assemble(stages_with(file_of("a")).run(each), 10**6) for each in (straight, shuffled)]
    assert spans_in(found[0]) == spans_in(found[1])


def test_sizes_are_those_of_what_is_written() -> None:
    """The limits of traces count metadata that are read together as they count others."""
    scene = stages_with(file_of("a")).run(batch("a", [bytes([number, 200, 0, number, 0, 0, 1, 0]) for number in range(200)]))
    written = [len(scene.metadata[entry].encoded) for entry in range(len(scene.metadata))]
    assert scene.metadata.sizes.tolist() == [*written, 0]
    assert isinstance(ExportTraceServiceRequest.FromString(assemble(scene, 10**6)[0].data), ExportTraceServiceRequest)
    assert np.array_equal(scene.metadata.cuts, np.zeros(len(scene.metadata) + 1))


@pytest.mark.parametrize("few", [0, 10**9], ids=["together", "one by one"])
@pytest.mark.parametrize("passes", [[3], [1, 1, 1], [1, 2]], ids=str)
def test_a_tenant_gives_no_type_to_the_keys_of_another(few: int, passes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """What a device of one tenant says first under a key changes nothing of what another tenant's spans say, however equal."""
    monkeypatch.setattr(readings, "_FEW", few)
    numbers = [bytes([number, *bytes(7)]) for number in range(1, 30)]
    theirs = [
        of_tenant("acme", batch("no mapping", [b'{"cycles": "many", "bank": "none"}', b'{"stall": "no"}'])),
        of_tenant("acme", batch("a", numbers)),
    ]
    ours = of_tenant("globex", batch("a", numbers))

    def said(*passes: list[EventBatch]) -> list[bytes]:
        registry = MemoryRegistry()
        for tenant in ("acme", "globex"):
            registry.put(tenant, file_of("a"))
        stages = Stages(CompiledMappings(registry, 1 << 20), Decoders(), 1 << 20)
        spans = [span for parts in passes for span in spans_in(assemble(stages.run(concatenate(parts)), 10**6))]
        return sorted(span.SerializeToString(deterministic=True) for span in spans if span.trace_id in traces)

    traces = {span.trace_id for span in spans_in(assemble(stages_with().run(ours), 10**6))}
    rest = iter([*theirs, ours])
    alone = said([ours])
    assert len(alone) > len(numbers)
    assert said(*(list(islice(rest, number)) for number in passes)) == alone
