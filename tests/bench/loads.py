"""Requests as devices send them, made from real captures: what the benchmarks are fed with."""

import itertools
import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from otel_bridge.etdump.read import read
from otel_bridge.load.events import EVENT_TICKS, Pattern
from otel_bridge.mapping.cache import CompiledMappings
from otel_bridge.mapping.memory import MemoryRegistry
from otel_bridge.mapping.source import read_source
from otel_bridge.metadata.table import Decoders
from otel_bridge.model.events import BlockKind, EventBatch, EventKind, concatenate
from otel_bridge.model.stream import Anchor, Clock, ModelRef, Stream
from otel_bridge.pipeline.stages import Stages
from otel_bridge.v1 import mapping_pb2
from otel_bridge.v1 import profiling_pb2 as pb
from otel_bridge.wire.admission import Rules
from otel_bridge.wire.codec import request_of

FIXTURES = Path(__file__).parents[1] / "fixtures"
LAYOUT = mapping_pb2.StructLayout(
    fields=[
        mapping_pb2.StructField(name=name, type=kind) for name, kind in (("cycles", "u32"), ("bank", "u16"), ("stall", "u16"))
    ]
)
"""What 8 bytes of metadata say, as the mapping declares it."""
RULES = Rules(lambda _key: True, lambda _key: True, 300 * 10**9)
DEVICES = 16
BOOTED_NS = 1_600_000_000 * 10**9
"""When tick 0 was: a time that a device may have, and the captures end before any receipt."""


def mapping_file(model: str) -> mapping_pb2.MappingFile:
    """A model's mapping, which declares what 8 bytes of metadata say."""
    file = read_source((FIXTURES / model / "model.etrecord").read_bytes())
    file.mapping.metadata.add(delegate="XnnpackBackend", layout=LAYOUT)
    return file


def synthetic_mapping(
    identifiers: int = 50, *, number: int = 0, delegate: str = "BenchBackend", metadata: bool = False
) -> mapping_pb2.MappingFile:
    """
    A method of one delegate call with so many integer identifiers, each of one handle and one operator.

    `number` tells mappings of different models apart. `metadata`: the layout of 8 bytes is declared.
    """
    call = mapping_pb2.Instruction(id=0, delegate=delegate, handles=range(1, identifiers + 1))
    for identifier in range(identifiers):
        call.entries.add(number=identifier, handles=[identifier + 1])
        call.operators.add(handle=identifier + 1).operators.add(
            name="aten.convolution.default",
            node=f"aten_convolution_default_{identifier}",
            file="models/vision/mobilenet.py",
            line=100 + number % 1000,
            module_path=f"features.{identifier}.conv",
            module_type="torch.nn.modules.conv.Conv2d",
        )
    mapping = mapping_pb2.Mapping(format=1, methods=[mapping_pb2.Method(name="forward", instructions=[call])])
    if metadata:
        mapping.metadata.add(delegate=delegate, layout=LAYOUT)
    return mapping_pb2.MappingFile(mapping=mapping, build_id=f"bench-{number}-{identifiers}-{int(metadata)}")


def varied_patterns(same: Sequence[Pattern], count: int, random: np.random.Generator) -> list[Pattern]:
    """So many patterns like these in turn, each with identifiers in another order and with durations of its own."""
    made = []
    for pattern in itertools.islice(itertools.cycle(same), count):
        request = pb.ExportEventsRequest()
        request.CopyFrom(pattern.request)
        rows = np.array(pattern.delegate_rows)
        for column, drawn in (
            (request.events.identifier, random.permutation(np.array(request.events.identifier)[rows])),
            (request.events.duration, random.integers(1, EVENT_TICKS, len(rows))),  # inside their calls
        ):
            values = np.array(column)
            values[rows] = drawn
            column[:] = values.tolist()
        made.append(replace(pattern, request=request))
    return made


def prepare(model: str, capture: str) -> tuple[EventBatch, Stages]:
    """A capture as a batch, and stages that know its mapping."""
    registry = MemoryRegistry()
    put = registry.put("", mapping_file(model))
    stream = Stream(stream_id=bytes(range(16)), model=ModelRef(model, "1"), build=put.build_id, ended_ns=10**18)
    batch = read((FIXTURES / model / capture).read_bytes(), stream).batch
    return batch, Stages(CompiledMappings(registry, 1 << 20), Decoders(), 1 << 26)


def requests_of(model: str, capture: str, events: int, build: str | None = None, *, metadata: bool = False) -> list[bytes]:
    """
    Serialised requests of at most so many events each, of whole inferences where one fits; each is of a device of its own.

    `build` names the model's build; None: the devices know its name and version alone. `metadata`: each delegate event has 8
    bytes of its own.
    """
    whole, _ = prepare(model, capture)
    whole = concatenate([whole] * -(-events // len(whole)))
    made = []
    for device in range(DEVICES):
        clock = Clock(anchor=Anchor(0, BOOTED_NS))
        named = ModelRef(model, "1", build)
        stream = replace(whole.streams[0], stream_id=bytes([device + 1]) * 16, clocks=(clock,), model=named)
        batch = replace(_cut(whole, events), streams=(stream,))
        if metadata:
            batch = _with_metadata(batch, device)
        made.append(request_of(batch).SerializeToString())
    return made


def _with_metadata(batch: EventBatch, device: int) -> EventBatch:
    rows = (batch.kind == EventKind.DELEGATE).nonzero()[0]
    column = np.zeros(len(batch), np.uint32)
    column[rows] = np.arange(1, len(rows) + 1)
    said = [struct.pack("<IHH", 100_000 * device + 77 * row, row % 65_521, row * 31 % 65_521) for row in rows.tolist()]
    return replace(batch, metadata=column, payloads=(b"", *said))


def _cut(batch: EventBatch, events: int) -> EventBatch:
    """As many inferences as fit into so many events, or the first events of one that does not."""
    first = next(index for index, block in enumerate(batch.blocks) if block.kind is BlockKind.EXECUTE)
    begin = int(batch.bounds[first])
    last = max(int((batch.bounds <= begin + events).sum()) - 1, first + 1)
    bounds = (batch.bounds[first : last + 1] - begin).clip(max=events)
    rows = slice(begin, begin + int(bounds[-1]))
    kept = tuple(replace(block, position=position, stream=0) for position, block in enumerate(batch.blocks[first:last]))
    return replace(batch, blocks=kept, bounds=bounds, **batch.columns_at(rows))
