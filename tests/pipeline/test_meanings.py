"""What kinds of blocks stand for is remembered over passes, and makes no difference but for time."""

import contextlib
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.mappings import mapping_of
from support.scenes import batch_of, batches, call, delegated, execute, runtime, stages_with

from otel_bridge.clock.converters import Converters
from otel_bridge.errors import MappingNotFound
from otel_bridge.mapping.cache import CompiledMappings
from otel_bridge.mapping.memory import MemoryRegistry
from otel_bridge.metadata.table import Decoders
from otel_bridge.model.events import Block, BlockKind, EventBatch, Identifier, Part, concatenate
from otel_bridge.model.ticks import Ticks
from otel_bridge.pipeline import meanings
from otel_bridge.pipeline.stages import Stages
from otel_bridge.spans.assemble import assemble
from otel_bridge.spans.tree import Tree, grow
from otel_bridge.v1.mapping_pb2 import MappingFile

FILE = MappingFile(mapping=mapping_of({"conv #1": [1, 2], 1: [3], 2: []}), build_id="build")


OTHER = MappingFile(mapping=mapping_of({"conv #1": [4], 2: [5, 6], 3: [7]}), build_id="build")


def stages_over(registry: MemoryRegistry) -> Stages:
    """Stages that look mappings up in this registry."""
    return Stages(CompiledMappings(registry, 1 << 20), Decoders(), 1 << 20)


def refuse_odd(_name: Identifier, ticks: int) -> Fraction:
    """A converter that fails for some of the times of one kind of blocks."""
    if ticks % 2:
        raise ValueError
    return Fraction(ticks)


def inference(name: Identifier, start: int = 0, **said: Part) -> EventBatch:
    """One call of a delegate that logs one event under this name."""
    events = [
        delegated(name, 0, start, start + 2),
        call("DELEGATE_CALL", 0, start, start + 3),
        runtime("Method::execute", start, start + 4),
    ]
    return batch_of((execute(0, **said), events))


def of_tenant(batch: EventBatch, tenant: str) -> EventBatch:
    """The same batch from a device of this tenant."""
    return replace(batch, streams=(replace(batch.streams[0], tenant=tenant),))


def sent(stages: Stages, batch: EventBatch) -> list[bytes]:
    """What goes out."""
    return [payload.data for payload in assemble(stages.run(batch), 1 << 20)]


@pytest.fixture
def grown(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The events of each batch whose tree was looked for."""
    found: list[int] = []

    def counted(batch: EventBatch) -> Tree:
        found.append(len(batch))
        return grow(batch)

    monkeypatch.setattr(meanings, "grow", counted)
    return found


@settings(deadline=None, max_examples=40)
@given(st.lists(batches(), min_size=1, max_size=4))
def test_what_is_remembered_is_what_would_be_found(parts: list[EventBatch]) -> None:
    """Passes after others, of whatever kinds of blocks, give the bytes that each gives alone; also where times are refused."""
    converters = Converters([f"{__name__}:refuse_odd@ns"])
    stages = stages_with(FILE, converters=converters)
    later = [replace(part, ticks=Ticks(part.start + np.uint64(1), part.duration)) for part in parts]
    for part in (*parts, *later, *parts):
        assert sent(stages, part) == sent(stages_with(FILE, converters=converters), part)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.one_of(batches(), st.builds(inference, st.sampled_from([1, 2, "conv #1"]))), max_size=3),
    st.lists(st.tuples(st.sampled_from(["", "b"]), st.sampled_from([FILE, OTHER, None])), min_size=1, max_size=4),
)
def test_what_is_remembered_follows_the_registry(parts: list[EventBatch], steps: list[tuple[str, MappingFile | None]]) -> None:
    """Whatever two tenants with one build upload, replace or delete between passes: each pass gives what it gives alone."""
    registry = MemoryRegistry()
    batch = concatenate([of_tenant(part, tenant) for tenant in ("", "b") for part in (inference(1), *parts)])
    stages = stages_over(registry)
    sent(stages, batch)
    for tenant, file in steps:
        if file is not None:
            registry.put(tenant, file, replace=True)
        else:
            with contextlib.suppress(MappingNotFound):
                registry.delete(tenant, "build")
        assert sent(stages, batch) == sent(stages_over(registry), batch)


def test_a_model_is_looked_at_once(grown: list[int]) -> None:
    """When an inference ran makes no difference; what it ran does, and the names that its events go by."""
    stages = stages_with(FILE)
    sent(stages, inference(1))
    sent(stages, inference(1, 1_000))
    assert grown == [3]
    for name in (2, "conv #1", "1"):
        assert sent(stages, inference(name)) == sent(stages_with(FILE), inference(name))
    assert len(grown) == 1 + 2 * 3


def test_a_part_of_an_inference_is_looked_at_each_time(grown: list[int]) -> None:
    """What it is depends on what the sender counted."""
    stages = stages_with(FILE)
    for _ in range(2):
        sent(stages, inference(1, part=Part(0, last=True, first_event=0)))
    assert grown == [3, 3]
    assert not stages._meanings._known


def test_what_passes_share_cannot_be_written_to() -> None:
    """A stage that changed it would change later passes."""
    tree = stages_with(FILE).run(inference(1)).tree
    with pytest.raises(ValueError, match="read-only"):
        tree.parent[0] = 1


def test_the_number_of_combinations_is_bounded(grown: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that was used least lately goes."""
    monkeypatch.setattr(meanings, "_KEPT", 2)
    stages = stages_with(FILE)
    for name in (1, 2, 1, 3, 1):
        sent(stages, inference(name))
    assert len(grown) == 3
    sent(stages, inference(2))
    assert len(grown) == 4
    assert len(stages._meanings._known) == 2


def test_the_bytes_of_what_is_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many combinations there are; and what alone is too large is not kept."""
    stages = stages_with(FILE)
    sent(stages, inference("x" * 100))
    one = stages._meanings._bytes
    assert one > 300
    monkeypatch.setattr(meanings, "_KEPT_BYTES", 3 * one)
    for number in range(20):
        sent(stages, inference(f"{number:0100}"))
    assert stages._meanings._bytes == sum(size for _, size in stages._meanings._known.values()) <= 3 * one
    assert len(stages._meanings._known) == 3
    monkeypatch.setattr(meanings, "_KEPT_BYTES", one // 2)
    sent(stages, inference(1))
    assert not stages._meanings._known


def test_blocks_without_events_count_as_well() -> None:
    """Their names are in the key, however few rows there are; and a text counts with the bytes that it takes in memory."""
    stages = stages_with(FILE)
    empty = [Block(BlockKind.OTHER, f"{number}" + "n" * 200, number + 1) for number in range(50)]
    sent(stages, batch_of((execute(0), [runtime("Method::execute", 0, 4)]), *((block, []) for block in empty)))
    assert stages._meanings._bytes > 50 * 200
    before = stages._meanings._bytes
    sent(stages, inference("\N{GRINNING FACE}" * 1000))
    assert stages._meanings._bytes - before > 4 * 1000


def test_kinds_of_many_rows_are_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many models at once do not push out those that come again."""
    monkeypatch.setattr(meanings, "_MOST_ROWS", 2)
    stages = stages_with(FILE)
    sent(stages, inference(1))
    assert not stages._meanings._known
