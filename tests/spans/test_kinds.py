"""What is worked out for one block of each kind holds for all of them."""

from dataclasses import fields, replace

from hypothesis import given
from hypothesis import strategies as st
from support.scenes import batch_of, batches, call, delegated, execute, runtime, scope

from otel_bridge.model.events import EventBatch, Part, concatenate
from otel_bridge.spans.kinds import Kinds, kinds_of
from otel_bridge.spans.tree import grow

EVENTS = [
    delegated("a", 0, 1, 2),
    call("DELEGATE_CALL", 0, 0, 3),
    scope("native_call_add.out", 1, 3, 4),
    call("OPERATOR_CALL", 1, 3, 5),
    runtime("Method::execute", 0, 6),
]


def found(batch: EventBatch) -> Kinds:
    """The kinds of blocks that all mean the same."""
    return kinds_of(batch, [0] * len(batch.blocks))


@given(st.lists(batches(), min_size=1, max_size=3), st.integers(1, 3))
def test_the_tree_of_all_blocks_is_that_of_their_kinds(parts: list[EventBatch], times: int) -> None:
    """Whatever blocks there are, in whatever order, and however often each of them comes."""
    batch = concatenate(parts * times)
    kinds = found(batch)
    spread, whole = kinds.spread(grow(kinds.examples(batch)), batch.block_of), grow(batch)
    for column in fields(whole):
        assert getattr(spread, column.name).tolist() == getattr(whole, column.name).tolist(), column.name


@given(st.lists(batches(), min_size=1, max_size=3))
def test_rows_are_like_those_that_stand_for_them(parts: list[EventBatch]) -> None:
    """In all that decides what an event stands for."""
    batch = concatenate(parts * 2)
    kinds = found(batch)
    examples = kinds.examples(batch)
    for column in ("instruction", "name", "kind", "chain"):
        assert getattr(examples, column)[kinds.like].tolist() == getattr(batch, column).tolist()
    like = [examples.blocks[number] for number in kinds.number.tolist()]
    assert [(each.kind, each.name, each.method) for each in like] == [
        (each.kind, each.name, each.method) for each in batch.blocks
    ]


def test_inferences_of_one_model_are_of_one_kind() -> None:
    """When they ran, and what their delegates measured, makes no difference."""
    later = [replace(event, start=event.start + 100, end=event.end + 107, clock=1, metadata=b"x") for event in EVENTS]
    batch = batch_of((execute(0), EVENTS), (execute(1), later), (execute(2), EVENTS))
    kinds = found(batch)
    assert kinds.number.tolist() == [0, 0, 0]
    assert len(kinds.examples(batch)) == len(EVENTS)


def test_what_decides_a_meaning_decides_a_kind() -> None:
    """An event more, another method or mapping, a name, a part of a split inference: each is a kind of its own."""
    blocks = [execute(0), execute(1), execute(2, method="other"), execute(3, part=Part(0, last=False, first_event=0))]
    part = execute(4, part=Part(1, last=True, first_event=len(EVENTS)))
    batch = batch_of((blocks[0], EVENTS), (blocks[1], EVENTS[1:]), *((block, EVENTS) for block in (*blocks[2:], part)))
    assert found(batch).number.tolist() == [0, 1, 2, 3, 4]
    twice = batch_of((execute(0), EVENTS), (execute(1), EVENTS))
    assert kinds_of(twice, ["one mapping", "another"]).number.tolist() == [0, 1]
