"""What kinds of blocks stand for is remembered over passes, and makes no difference but for time."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.mappings import mapping_of
from support.scenes import batch_of, batches, call, delegated, execute, runtime, stages_with

from otel_bridge.clock.converters import Converters
from otel_bridge.model.events import EventBatch, Identifier, Part
from otel_bridge.pipeline import meanings
from otel_bridge.pipeline.stages import Stages
from otel_bridge.spans.assemble import assemble
from otel_bridge.spans.tree import Tree, grow
from otel_bridge.v1 import mapping_pb2

FILE = mapping_pb2.MappingFile(mapping=mapping_of({"conv #1": [1, 2], 1: [3], 2: []}), build_id="build")


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
    later = [replace(part, start=part.start + part.start.dtype.type(1)) for part in parts]
    for part in (*parts, *later, *parts):
        assert sent(stages, part) == sent(stages_with(FILE, converters=converters), part)


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


def test_kinds_of_many_rows_are_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many models at once do not push out those that come again."""
    monkeypatch.setattr(meanings, "_MOST_ROWS", 2)
    stages = stages_with(FILE)
    sent(stages, inference(1))
    assert not stages._meanings._known
