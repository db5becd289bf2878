"""Who is whose parent."""

import numpy as np
from hypothesis import given
from support.scenes import E, batch_of, batches, call, delegated, execute, runtime, scope

from otel_bridge.model.events import Block, BlockKind, EventBatch, EventKind, Part
from otel_bridge.spans.ids import ROOT_PLACE
from otel_bridge.spans.tree import NOWHERE, Tree, grow


def parents(batch: EventBatch) -> list[int]:
    """The row of each row's parent."""
    return grow(batch).parent.tolist()


def test_children_stand_before_their_parents_and_find_them() -> None:
    """Nesting follows instruction ids, not order and not time: the delegate's ticks are of another clock."""
    events = [
        delegated(0, 0, 10**9, 2 * 10**9),
        call("DELEGATE_CALL", 0, 10, 20),
        scope("native_call_add.out", 1, 22, 24),
        call("OPERATOR_CALL", 1, 21, 25),
        runtime("Method::execute", 5, 30),
    ]
    tree = grow(batch_of((execute(), events)))
    assert tree.parent.tolist() == [1, NOWHERE, 3, NOWHERE, NOWHERE]
    assert tree.root.tolist() == [4]


def test_every_repeat_of_an_instruction_has_its_own_children() -> None:
    """In a loop an instruction runs again: events belong to the completion that follows them."""
    events = [
        delegated("a", 0, 1, 2),
        call("DELEGATE_CALL", 0, 0, 3),
        delegated("a", 0, 4, 5),
        delegated("b", 0, 5, 6),
        call("DELEGATE_CALL", 0, 4, 7),
    ]
    tree = grow(batch_of((execute(), events)))
    assert tree.parent.tolist() == [1, NOWHERE, 4, 4, NOWHERE]
    assert len(set(tree.place.tolist())) == 5


def test_an_event_that_is_logged_late_belongs_to_the_last_call() -> None:
    """A backend may log after its call has ended."""
    assert parents(batch_of((execute(), [call("DELEGATE_CALL", 0, 0, 3), delegated("late", 0, 1, 2)]))) == [NOWHERE, 0]


def test_the_same_instruction_in_another_inference_or_chain_is_another() -> None:
    """Ids are unique only within one chain of one inference."""
    events = [delegated("a", 0, 1, 2, chain=1), call("DELEGATE_CALL", 0, 0, 3), call("DELEGATE_CALL", 0, 4, 6, chain=1)]
    batch = batch_of((execute(0), events), (execute(1), [delegated("a", 0, 1, 2)]))
    assert parents(batch) == [2, NOWHERE, NOWHERE, NOWHERE]


def test_without_its_call_an_event_hangs_from_the_root() -> None:
    """With the profiling level kProfileMethodOnly calls are not logged, delegates are."""
    tree = grow(batch_of((execute(), [delegated("a", 3, 1, 2), runtime("Method::execute", 0, 3)])))
    assert tree.parent_place.tolist() == [ROOT_PLACE, ROOT_PLACE]


def test_the_root_is_the_enclosing_event_where_there_is_exactly_one() -> None:
    """Method::execute, else Method::step; Program::load_method, else Method::init; else the block's own name."""
    cases = [
        (execute(), ["Method::init", "Method::execute"], 1),
        (execute(), ["Method::step"], 0),
        (execute(), ["Method::step", "Method::step"], NOWHERE),
        (execute(), ["Method::execute", "Method::execute"], NOWHERE),
        (execute(), ["Method::init"], NOWHERE),
        (Block(BlockKind.LOAD, "Default", 0), ["Method::init", "Program::load_method"], 1),
        (Block(BlockKind.LOAD, "Default", 0), ["Method::init"], 0),
        (Block(BlockKind.OTHER, "warm up", 0), ["Method::execute", "warm up"], 1),
        (Block(BlockKind.OTHER, "warm up", 0), ["Method::execute"], NOWHERE),
    ]
    for block, names, root in cases:
        tree = grow(batch_of((block, [runtime(name, 0, 1) for name in names])))
        assert [root] == tree.root.tolist(), (block.kind, names)


def test_an_inference_fails_when_it_ran_instructions_and_never_ended() -> None:
    """ExecuTorch ends Method::execute on success only."""
    ran = [call("OPERATOR_CALL", 0, 0, 1)]
    ended = [*ran, runtime("Method::execute", 0, 2)]
    stepped = [*ran, runtime("Method::step", 0, 2), runtime("Method::step", 2, 3)]
    blocks = [(execute(n), events) for n, events in enumerate([ran, ended, stepped, [], [runtime("Method::init", 0, 1)]])]
    loading = (Block(BlockKind.LOAD, "Default", 9), [delegated("init", 0, 0, 1)])
    assert grow(batch_of(*blocks, loading)).failed.tolist() == [True, False, False, False, False, False]


def test_a_call_knows_the_kernel_that_it_ran() -> None:
    """OPERATOR_CALL says nothing of the operator; its native_call_<op> does."""
    events = [
        scope("Something", 0, 1, 2),
        scope("native_call_add.out", 0, 1, 2),
        call("OPERATOR_CALL", 0, 0, 3),
        call("OPERATOR_CALL", 1, 3, 4),
    ]
    batch = batch_of((execute(), events))
    kernels = [batch.names[number] if number >= 0 else None for number in grow(batch).kernel.tolist()]
    assert kernels == [None, None, "native_call_add.out", None]


def test_parts_name_the_parents_that_other_parts_hold() -> None:
    """A child names its call by (instruction, occurrence) before the call has arrived, and both parts agree on ids."""
    whole = [
        delegated("a", 0, 1, 2),
        call("DELEGATE_CALL", 0, 0, 3),
        E(EventKind.DELEGATE, "a", 4, 5, 0, occurrence=1),
        E(EventKind.CALL, "DELEGATE_CALL", 4, 6, 0, occurrence=1),
        runtime("Method::execute", 0, 7),
    ]
    together = grow(batch_of((execute(), whole)))
    first = grow(batch_of((execute(part=Part(0, last=False, first_event=0)), whole[:3])))
    last = grow(batch_of((execute(part=Part(1, last=True, first_event=3)), whole[3:])))
    for column in ("place", "parent_place"):
        pieces = np.concatenate([getattr(first, column), getattr(last, column)])
        assert getattr(together, column).tolist() == pieces.tolist(), column
    assert first.parent.tolist() == [1, NOWHERE, NOWHERE]


@given(batches())
def test_every_row_has_one_place_and_one_parent_within_its_own_inference(batch: EventBatch) -> None:
    """No two rows of a whole inference share a place; a parent is a call of the same instruction, chain and inference."""
    tree: Tree = grow(batch)
    for index, block in enumerate(batch.blocks):
        rows = np.flatnonzero(tree.block == index)
        if block.part is None:
            assert len(rows) == len(set(tree.place[rows].tolist()))
    for row in np.flatnonzero(tree.parent != NOWHERE):
        parent = tree.parent[row]
        assert batch.kind[parent] == EventKind.CALL
        for column in (tree.block, batch.instruction, batch.chain):
            assert column[row] == column[parent]
        assert tree.parent_place[row] == tree.place[parent]
