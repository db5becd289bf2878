"""
What happens to a batch between the spool and the exporter.

Invariants
* Stages are functions, run in the order of `STAGES`; each fills in a part of `Work` and touches nothing that stands.
* Everything is done once per distinct value and spread over the rows by index: no Python statement runs per event.
* The same batch with the same mappings gives the same scene, whenever it runs.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from otel_bridge.clock.converters import Converters
from otel_bridge.mapping.cache import CompiledMappings
from otel_bridge.mapping.compiled import CompiledMapping
from otel_bridge.metadata.table import Decoders
from otel_bridge.model.events import EventBatch
from otel_bridge.model.resolution import Status
from otel_bridge.pipeline.meanings import Meanings
from otel_bridge.pipeline.readings import Readings
from otel_bridge.pipeline.times import time_events
from otel_bridge.spans.compile import Template, Templates
from otel_bridge.spans.counters import Counters, gather
from otel_bridge.spans.describe import describe_root
from otel_bridge.spans.distinct import distinct
from otel_bridge.spans.ids import trace_ids
from otel_bridge.spans.inference import Inference, Said, inference_of, is_shared, said_by
from otel_bridge.spans.kinds import Kinds, kinds_of
from otel_bridge.spans.place import Timeline
from otel_bridge.spans.resource import Resources
from otel_bridge.spans.scene import Metadata, Scene
from otel_bridge.spans.tree import Tree
from otel_bridge.spans.withholding import Withhold, show_all

_SHOWN_BYTES = 16 << 20
"""Of decoded metadata that is kept as attributes."""


@dataclass(slots=True)
class Work:
    """A batch on its way; see `Scene` for what the parts are."""

    batch: EventBatch
    mappings: list[CompiledMapping | None] = field(default_factory=list)
    """Per stream."""
    kinds: Kinds = field(init=False)
    methods: tuple[str | None, ...] = ()
    """Per kind of blocks."""
    tree: Tree = field(init=False)
    timeline: Timeline = field(init=False)
    moved_ns: tuple[int, ...] = ()
    """Per stream; see `Times`."""
    templates: list[Template] = field(default_factory=list)
    template: NDArray[np.int64] = field(init=False)
    inferences: list[Inference] = field(default_factory=list)
    inference: NDArray[np.int64] = field(init=False)
    metadata: Metadata = field(init=False)
    decoded: NDArray[np.int64] = field(init=False)
    counters: Counters = field(init=False)


class Stages:
    """
    The stages with what they need. Thread-safe: one batch at a time.

    mappings         where the mapping of a build is found
    decoders         how metadata is read
    converters       how times are read that no clock explains; None: there are none
    template_bytes   how much of span templates is kept
    withhold         what is shown of what mappings and metadata say
    whole_faces      False: scenes are for `assemble` alone, see `Templates`
    """

    def __init__(
        self,
        mappings: CompiledMappings,
        decoders: Decoders,
        template_bytes: int,
        converters: Converters | None = None,
        withhold: Withhold = show_all,
        *,
        whole_faces: bool = True,
    ) -> None:
        self._mappings = mappings
        self._converters = converters or Converters()
        self._readings = Readings(decoders, _SHOWN_BYTES, withhold)
        self._templates = Templates(template_bytes, whole_faces=whole_faces)
        self._meanings = Meanings(self._templates, withhold)
        self._resources = Resources()
        self._lock = threading.Lock()

    def run(self, batch: EventBatch) -> Scene:
        """Resolve a batch."""
        work = Work(batch)
        with self._lock:
            for stage in self._stages():
                stage(work)
            resources = [
                self._resources.of(stream, mapping.digest if mapping else None)
                for stream, mapping in zip(batch.streams, work.mappings, strict=True)
            ]
        return Scene(
            batch,
            work.tree,
            work.timeline,
            tuple(work.inferences),
            work.inference,
            trace_ids(batch.streams, batch.blocks),
            tuple(work.templates),
            work.template,
            work.metadata,
            work.decoded,
            work.counters,
            tuple(resources),
        )

    def _stages(self) -> tuple[Callable[[Work], None], ...]:
        return (
            self._tell_apart,  # first: what blocks mean is found once for all that are alike
            self._resolve,  # before place and decode: it names the delegate, whose rules say what times and bytes mean
            self._place,
            self._infer,
            self._decode,
            self._count,  # after place: a converter may have made a time of a counter
        )

    def _tell_apart(self, work: Work) -> None:
        batch = work.batch
        mapping_of = {each: self._mappings.get(*each) for each in {(stream.tenant, stream.build) for stream in batch.streams}}
        work.mappings = [mapping_of[stream.tenant, stream.build] for stream in batch.streams]
        digests = [mapping.digest if mapping is not None else None for mapping in work.mappings]
        work.kinds = kinds_of(batch, [digests[block.stream] for block in batch.blocks])

    def _resolve(self, work: Work) -> None:
        batch, kinds = work.batch, work.kinds
        meaning = self._meanings.of(batch, kinds, work.mappings)
        work.methods = meaning.methods
        work.tree = kinds.spread(meaning.tree, batch.block_of)
        work.templates = list(meaning.templates)
        work.template = meaning.template[kinds.like]

    def _place(self, work: Work) -> None:
        work.tree, work.timeline, work.moved_ns = time_events(
            work.batch, work.tree, work.templates, work.template, converters=self._converters, compiled=self._templates
        )

    def _count(self, work: Work) -> None:
        work.counters = gather(work.batch, work.tree, work.timeline, work.templates, work.template)

    def _infer(self, work: Work) -> None:
        batch = work.batch
        senders: dict[tuple[str | None, Said], int] = {}  # what streams say of all of their inferences
        sender = [
            senders.setdefault((stream.model.name, said_by(stream, moved_ns)), len(senders))
            for stream, moved_ns in zip(batch.streams, work.moved_ns, strict=True)
        ]
        said = list(senders)
        kind = work.kinds.number
        alike = np.array(sender, np.int64)[[block.stream for block in batch.blocks]] * len(work.kinds.first) + kind
        own = [index for index, block in enumerate(batch.blocks) if block.error or not is_shared(block)]
        alike[own] = len(said) * len(work.kinds.first) + np.arange(len(own))
        first, number = distinct([alike])
        known: dict[tuple[object, ...], int] = {}  # kinds may differ, and say the same
        chosen: list[int] = []
        for index in first.tolist():
            block, failed = batch.blocks[index], bool(work.tree.failed[index])
            (model, clock), method = said[sender[block.stream]], work.methods[kind[index]]
            named = (block.kind, block.name, model, method)
            meant = (*named, clock, block.error, failed) if is_shared(block) else (index,)
            chosen.append(known.setdefault(meant, len(work.inferences)))
            if chosen[-1] == len(work.inferences):
                root = self._templates.get(named, partial(describe_root, *named))
                work.inferences.append(inference_of(block, root, method, clock, failed=failed))
        work.inference = np.array(chosen, np.int64)[number]

    def _decode(self, work: Work) -> None:
        batch = work.batch

        def declared(row: int, delegate: str | None) -> bytes:
            mapping = work.mappings[batch.blocks[work.tree.block[row]].stream]
            return mapping.formats.get(delegate or "", b"") if mapping is not None else b""

        work.metadata, work.decoded = self._readings.read(batch, work.templates, work.template, declared)


def count_by_status(scene: Scene) -> dict[tuple[Status, str], int]:
    """Delegate events by (status, backend id or "")."""
    counts = np.bincount(scene.template, minlength=len(scene.templates)).tolist()
    events: dict[tuple[int, str], int] = {}  # by `id`: to hash a member of an Enum takes long
    found: dict[int, Status] = {}
    for template, count in zip(scene.templates, counts, strict=True):
        status, delegate = template.face.resolution.status, template.face.resolution.delegate or ""
        if status is not None:
            found[id(status)] = status
            events[id(status), delegate] = events.get((id(status), delegate), 0) + count
    return {(found[status], delegate): count for (status, delegate), count in events.items()}
