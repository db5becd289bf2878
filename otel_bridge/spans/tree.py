"""
Who is whose parent: inference -> instruction -> what lies inside it.

Invariants
* Each row has one parent: the call of its instruction in its inference, else the root of its block.
* Nesting follows (inference, chain, instruction, occurrence), never time: clocks mix, and ExecuTorch logs an event when it
  ends, so children stand before their parents. Only below a call time may decide, and there only between delegate events of
  one clock (`nest`): ETDump stores no nesting (devtools/etdump/etdump_flatcc.cpp).
* The root of a block is the runtime's own enclosing event where there is exactly one, else a span of the bridge's making.
* In a part of a split inference the occurrence is the sender's, and a parent may lie in another part. Delegate events are not
  nested there: what contains an event may be in another part, and a span's parent must not depend on where parts are cut.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from otel_bridge.model.events import NO_INSTRUCTION, BlockKind, EventBatch, EventKind
from otel_bridge.spans.ids import ROOT_PLACE, place_by_instruction, place_by_row

NOWHERE = -1
"""Instead of a row: not in this batch."""

ENCLOSING = {
    BlockKind.LOAD: ("Program::load_method", "Method::init"),
    BlockKind.EXECUTE: ("Method::execute", "Method::step"),
}
"""Events that enclose a block, best first (runtime/executor/program.cpp, method.cpp)."""

_NATIVE_CALL = "native_call_"

_ROUNDS = 32
"""
In which pointers jump for all rows at once, before the rest is settled one by one (`_nearest_as_long`).

Events side by side in one that contains them all take the logarithm of their number. Events that overlap can take as many
rounds as there are events.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """
    The shape of a batch of n rows and m blocks.

    block         int64[n]    block of each row
    parent        int64[n]    row of the parent; `NOWHERE`: the root, or not in this batch
    place         uint64[n]   place of the row, for its span id (spans/ids.py)
    parent_place  uint64[n]   place of its parent
    root          int64[m]    row that is the root; `NOWHERE`: the block has no enclosing event
    kernel        int64[n]    for an instruction: index of the name of its `native_call_<op>`; -1: none
    failed        bool[m]     an inference that ran instructions and never ended
    """

    block: NDArray[np.int64]
    parent: NDArray[np.int64]
    place: NDArray[np.uint64]
    parent_place: NDArray[np.uint64]
    root: NDArray[np.int64]
    kernel: NDArray[np.int64]
    failed: NDArray[np.bool_]


def grow(batch: EventBatch) -> Tree:
    """The tree of a batch, as instruction ids tell it."""
    block = batch.block_of
    inside = np.flatnonzero(batch.instruction != NO_INSTRUCTION)
    occurrence, call = _calls(batch, block, inside)
    is_call = batch.kind == EventKind.CALL
    first = np.array([b.part.first_event if b.part else 0 for b in batch.blocks], np.int64)
    row_in_block = np.arange(len(batch)) - (batch.bounds[:-1] - first)[block]
    by_instruction = np.zeros(len(batch), np.uint64)
    by_instruction[inside] = place_by_instruction(batch.instruction[inside], batch.chain[inside], occurrence)

    parent = np.full(len(batch), NOWHERE)
    parent[inside] = call
    parent[is_call] = NOWHERE
    known = np.zeros(len(batch), np.bool_)
    known[inside] = (call != NOWHERE) | _in_parts(batch)[block[inside]]
    parent_place = np.where(known & ~is_call, by_instruction, np.uint64(ROOT_PLACE))
    place = np.where(is_call & (batch.instruction != NO_INSTRUCTION), by_instruction, place_by_row(row_in_block))

    return Tree(block, parent, place, parent_place, _roots(batch, block), _kernels(batch, parent), _failed(batch, block))


def nest(batch: EventBatch, tree: Tree, start: NDArray[np.int64], end: NDArray[np.int64], axis: NDArray[np.int64]) -> Tree:
    """
    The tree with delegate events as children of the shortest one that contains them, within one call.

    Only rows of one `axis` (int64[n]; -1: its times prove nothing) are compared. Of two that are equal the later in the log is
    outside: it ended later. An event without length lies between others, not in them.
    """
    rows = np.flatnonzero((axis >= 0) & (end > start) & ~_in_parts(batch)[tree.block])
    unlogged = len(batch) + (tree.block << 40 | batch.chain.astype(np.int64) << 32 | batch.instruction.astype(np.int64) + 1)
    call = np.where(tree.parent == NOWHERE, unlogged, tree.parent)
    rows = rows[np.lexsort((-rows, -end[rows], start[rows], axis[rows], call[rows]))]
    if len(rows) <= 1:
        return tree
    begins = (np.diff(call[rows], prepend=-1) != 0) | (np.diff(axis[rows], prepend=-1) != 0)
    outer = _nearest_as_long(begins, end[rows])
    inner = np.flatnonzero(outer != NOWHERE)
    parent, parent_place = tree.parent.copy(), tree.parent_place.copy()
    parent[rows[inner]] = rows[outer[inner]]
    parent_place[rows[inner]] = tree.place[rows[outer[inner]]]
    return replace(tree, parent=parent, parent_place=parent_place)


def _nearest_as_long(begins: NDArray[np.bool_], stop: NDArray[np.int64]) -> NDArray[np.int64]:
    """
    For each position the nearest before it in its group that stops no earlier; `NOWHERE`: there is none.

    A group begins at 0 and wherever `begins` says so. Takes O(n) however the events lie: see `_settle`.
    """
    # Each position points to the nearest one before it that may be the answer; those in between stop earlier, so they may not.
    outer = np.where(begins, NOWHERE, np.arange(len(stop)) - 1)
    unsettled = _unsettled(outer, stop, np.arange(len(stop)))
    for _ in range(_ROUNDS):
        if not len(unsettled):
            return outer
        outer[unsettled] = outer[outer[unsettled]]
        unsettled = _unsettled(outer, stop, unsettled)
    if len(unsettled):
        pointers = outer.tolist()
        _settle(pointers, stop.tolist(), unsettled.tolist())
        outer = np.array(pointers, np.int64)
    return outer


def _unsettled(outer: NDArray[np.int64], stop: NDArray[np.int64], among: NDArray[np.int64]) -> NDArray[np.int64]:
    """The positions among these that point to one that stops earlier than they do."""
    among = among[outer[among] != NOWHERE]
    return among[stop[outer[among]] < stop[among]]


def _settle(outer: list[int], stop: list[int], unsettled: list[int]) -> None:
    """
    Point the unsettled positions, which ascend, to the answer.

    All before a position are settled when its turn comes, so the pointers from the one before it lead through just those that
    nothing has passed over yet. One that is passed over lies on the way of no later position: there are fewer such steps than
    positions in all. From where a position points after some jumps the way may be through those that were passed over before,
    again and again.
    """
    for position in unsettled:
        candidate, own = position - 1, stop[position]
        while candidate != NOWHERE and stop[candidate] < own:
            candidate = outer[candidate]
        outer[position] = candidate


def occurrences(batch: EventBatch) -> NDArray[np.uint32]:
    """uint32[n]: how often the instruction of each row had been completed before; 0 outside any instruction."""
    inside = np.flatnonzero(batch.instruction != NO_INSTRUCTION)
    counted = np.zeros(len(batch), np.uint32)
    counted[inside] = _calls(batch, batch.block_of, inside)[0]
    return counted


def _in_parts(batch: EventBatch) -> NDArray[np.bool_]:
    return np.array([block.part is not None for block in batch.blocks], np.bool_)


def _calls(
    batch: EventBatch, block: NDArray[np.int64], inside: NDArray[np.int64]
) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Occurrence of each row inside an instruction, and the row of its call (or `NOWHERE`)."""
    if not len(inside):
        return np.zeros(0, np.uint32), np.zeros(0, np.int64)
    key = block[inside] << 40 | batch.chain[inside].astype(np.int64) << 32 | batch.instruction[inside]
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    is_call = (batch.kind[inside] == EventKind.CALL)[order]
    begins = np.flatnonzero(np.diff(ordered, prepend=-1))
    group = np.zeros(len(ordered), np.int64)
    group[begins] = 1
    group = np.cumsum(group) - 1
    before = np.cumsum(is_call) - is_call
    calls_before_group = before[begins]
    calls = np.add.reduceat(is_call.astype(np.int64), begins)
    # A row after the last call of its instruction was logged late: it belongs to that call.
    count = np.minimum(before - calls_before_group[group], np.maximum(calls[group] - 1, 0))
    count = np.where(is_call, before - calls_before_group[group], count)
    if batch.occurrence is not None:
        given = _in_parts(batch)[block[inside]][order]
        count = np.where(given, batch.occurrence[inside][order], count)

    span = np.int64(int(count.max()) + 1)
    call_keys = (group * span + count)[is_call]
    call_rows = inside[order][is_call]
    sorted_calls = np.argsort(call_keys, kind="stable")
    found = np.searchsorted(call_keys[sorted_calls], group * span + count)
    row = np.full(len(ordered), NOWHERE)
    if len(call_keys):
        nearest = sorted_calls[np.minimum(found, len(call_keys) - 1)]
        row = np.where(call_keys[nearest] == group * span + count, call_rows[nearest], NOWHERE)
    occurrence = np.empty(len(inside), np.uint32)
    parent = np.empty(len(inside), np.int64)
    occurrence[order], parent[order] = count, row
    return occurrence, parent


def _roots(batch: EventBatch, block: NDArray[np.int64]) -> NDArray[np.int64]:
    root = np.full(len(batch.blocks), NOWHERE)
    runtime = np.flatnonzero(batch.kind == EventKind.RUNTIME)
    kinds = np.array([b.kind for b in batch.blocks], np.int64)
    for kind, names in ENCLOSING.items():
        open_blocks = kinds == kind
        for name in names:
            wanted = np.array([candidate == name for candidate in batch.names] or [False])
            rows = runtime[wanted[batch.name[runtime]] & open_blocks[block[runtime]]]
            open_blocks &= _set_single(root, block, rows) == 0
    numbers = {name: number for number, name in enumerate(batch.names)}
    own = [numbers.get(b.name, -1) if b.kind is BlockKind.OTHER else -1 for b in batch.blocks]
    _set_single(root, block, runtime[batch.name[runtime] == np.array(own, np.int64)[block[runtime]]])
    return root


def _set_single(root: NDArray[np.int64], block: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Make a row the root of its block where it is the only one of `rows` there; how many each block has."""
    times = np.bincount(block[rows], minlength=len(root))
    single = rows[times[block[rows]] == 1]
    root[block[single]] = single
    return times


def _kernels(batch: EventBatch, parent: NDArray[np.int64]) -> NDArray[np.int64]:
    native = np.array([isinstance(name, str) and name.startswith(_NATIVE_CALL) for name in batch.names] or [False])
    rows = np.flatnonzero((batch.kind == EventKind.SCOPE) & (parent != NOWHERE))
    rows = rows[native[batch.name[rows]]]
    kernel = np.full(len(batch), -1)
    kernel[parent[rows][::-1]] = batch.name[rows][::-1]  # the first of several wins
    return kernel


def _failed(batch: EventBatch, block: NDArray[np.int64]) -> NDArray[np.bool_]:
    ran = np.bincount(block[batch.instruction != NO_INSTRUCTION], minlength=len(batch.blocks)) > 0
    enclosing = np.array([name in ENCLOSING[BlockKind.EXECUTE] for name in batch.names] or [False])
    ended = np.bincount(block[(batch.kind == EventKind.RUNTIME) & enclosing[batch.name]], minlength=len(batch.blocks)) > 0
    inference = np.array([b.kind is BlockKind.EXECUTE and (b.part is None or b.part.last) for b in batch.blocks], np.bool_)
    return inference & ran & ~ended
