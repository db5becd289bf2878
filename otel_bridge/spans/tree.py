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
from operator import attrgetter

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

# Plain ints: a member of an IntEnum takes longer to reach, and to compare with.
_RUNTIME, _CALL, _SCOPE = EventKind.RUNTIME.value, EventKind.CALL.value, EventKind.SCOPE.value

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
    n = len(batch)
    block = batch.block_of
    inside = (batch.instruction != NO_INSTRUCTION).nonzero()[0]
    parts = _in_parts(batch)
    occurrence, call = _calls(batch, block, inside, parts)
    is_call = batch.kind == _CALL
    by_instruction = np.zeros(n, np.uint64)
    by_instruction[inside] = place_by_instruction(batch.instruction[inside], batch.chain[inside], occurrence)

    parent = np.full(n, NOWHERE)
    parent[inside] = call
    parent[is_call] = NOWHERE
    known = np.zeros(n, np.bool_)
    known[inside] = (call != NOWHERE) | parts[block[inside]]
    parent_place = np.where(known & ~is_call, by_instruction, np.uint64(ROOT_PLACE))
    first = batch.bounds[:-1]
    if parts.any():
        first = first - np.array([b.part.first_event if b.part else 0 for b in batch.blocks], np.int64)
    place = place_by_row(np.arange(n) - first[block])
    named = is_call & (batch.instruction != NO_INSTRUCTION)
    place[named] = by_instruction[named]

    runtime = (batch.kind == _RUNTIME).nonzero()[0]
    roots, failed = _roots(batch, block, runtime), _failed(batch, block, inside, runtime)
    return Tree(block, parent, place, parent_place, roots, _kernels(batch, parent), failed)


def nest(batch: EventBatch, tree: Tree, start: NDArray[np.int64], end: NDArray[np.int64], axis: NDArray[np.int64]) -> Tree:
    """
    The tree with delegate events as children of the shortest one that contains them, within one call.

    Only rows of one `axis` (int64[n]; -1: its times prove nothing) are compared. Of two that are equal the later in the log is
    outside: it ended later. An event without length lies between others, not in them.
    """
    rows = ((axis >= 0) & (end > start)).nonzero()[0]
    rows = rows[~_in_parts(batch)[tree.block[rows]]]
    if len(rows) <= 1:
        return tree
    unlogged = len(batch) + (tree.block << 40 | batch.chain.astype(np.int64) << 32 | batch.instruction.astype(np.int64) + 1)
    call = np.where(tree.parent == NOWHERE, unlogged, tree.parent)
    rows = rows[np.lexsort((-rows, -end[rows], start[rows], axis[rows], call[rows]))]
    begins = _changes(call[rows]) | _changes(axis[rows])
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
    counted[inside] = _calls(batch, batch.block_of, inside, _in_parts(batch))[0]
    return counted


def _in_parts(batch: EventBatch) -> NDArray[np.bool_]:
    if batch.occurrence is None:
        return np.zeros(len(batch.blocks), np.bool_)
    return np.array([block.part is not None for block in batch.blocks], np.bool_)


def _changes(column: NDArray[np.generic]) -> NDArray[np.bool_]:
    """bool[n]: whether a row differs from the one before; the first does."""
    changed = np.ones(len(column), np.bool_)
    np.not_equal(column[1:], column[:-1], out=changed[1:])
    return changed


def _calls(
    batch: EventBatch, block: NDArray[np.int64], inside: NDArray[np.int64], parts: NDArray[np.bool_]
) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Occurrence of each row inside an instruction, and the row of its call (or `NOWHERE`)."""
    if not len(inside):
        return np.zeros(0, np.uint32), np.zeros(0, np.int64)
    key = block[inside] << 40 | batch.chain[inside].astype(np.int64) << 32 | batch.instruction[inside]
    order: slice | NDArray[np.int64] = slice(None)  # instructions mostly run in the order of their numbers
    if (key[1:] < key[:-1]).any():
        order = np.argsort(key, kind="stable")
    rows = inside[order]
    is_call = batch.kind[rows] == _CALL
    begins = _changes(key[order])
    group = np.cumsum(begins) - 1
    first = begins.nonzero()[0]
    before = np.cumsum(is_call) - is_call
    calls_before_group = before[first]
    calls = np.add.reduceat(is_call.astype(np.int64), first)
    # A row after the last call of its instruction was logged late: it belongs to that call.
    count = np.minimum(before - calls_before_group[group], np.maximum(calls - 1, 0)[group])
    call_rows = np.append(rows[is_call], NOWHERE)
    found = np.where((calls > 0)[group], call_rows[calls_before_group[group] + count], NOWHERE)
    if batch.occurrence is not None:
        given = parts[block[rows]]
        count = np.where(given, batch.occurrence[rows], count)
        found = np.where(given, _call_in_part(group, count, is_call, rows), found)
    occurrence = np.empty(len(inside), np.uint32)
    parent = np.empty(len(inside), np.int64)
    occurrence[order], parent[order] = count, found
    return occurrence, parent


def _call_in_part(
    group: NDArray[np.int64], count: NDArray[np.int64], is_call: NDArray[np.bool_], rows: NDArray[np.int64]
) -> NDArray[np.int64]:
    """For each row the call of its group that has its count, which the sender has said; `NOWHERE`: not in this part."""
    key = group * np.int64(int(count.max()) + 1) + count
    call_keys, call_rows = key[is_call], rows[is_call]
    if not len(call_keys):
        return np.full(len(rows), NOWHERE)
    ascending = np.argsort(call_keys, kind="stable")
    found = np.minimum(np.searchsorted(call_keys[ascending], key), len(call_keys) - 1)
    nearest = ascending[found]
    return np.where(call_keys[nearest] == key, call_rows[nearest], NOWHERE)


def _roots(batch: EventBatch, block: NDArray[np.int64], runtime: NDArray[np.int64]) -> NDArray[np.int64]:
    root = np.full(len(batch.blocks), NOWHERE)
    numbers = {name: number for number, name in enumerate(batch.names)}
    name, within = batch.name[runtime], block[runtime]
    kinds = np.fromiter(map(attrgetter("kind"), batch.blocks), np.int64, len(batch.blocks))
    for kind, names in ENCLOSING.items():
        open_blocks = kinds == kind
        for number in (numbers[each] for each in names if each in numbers):
            rows = runtime[(name == number) & open_blocks[within]]
            open_blocks &= _set_single(root, block, rows) == 0
    others = (kinds == BlockKind.OTHER).nonzero()[0].tolist()
    if others:
        own = np.full(len(batch.blocks), -1, np.int64)
        own[others] = [numbers.get(batch.blocks[each].name, -1) for each in others]
        _set_single(root, block, runtime[name == own[within]])
    return root


def _set_single(root: NDArray[np.int64], block: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Make a row the root of its block where it is the only one of `rows` there; how many each block has."""
    times = np.bincount(block[rows], minlength=len(root))
    single = rows[times[block[rows]] == 1]
    root[block[single]] = single
    return times


def _kernels(batch: EventBatch, parent: NDArray[np.int64]) -> NDArray[np.int64]:
    native = np.array([isinstance(name, str) and name.startswith(_NATIVE_CALL) for name in batch.names] or [False])
    rows = np.flatnonzero((batch.kind == _SCOPE) & (parent != NOWHERE))
    rows = rows[native[batch.name[rows]]]
    kernel = np.full(len(batch), -1)
    kernel[parent[rows][::-1]] = batch.name[rows][::-1]  # the first of several wins
    return kernel


def _failed(
    batch: EventBatch, block: NDArray[np.int64], inside: NDArray[np.int64], runtime: NDArray[np.int64]
) -> NDArray[np.bool_]:
    names, execute = ENCLOSING[BlockKind.EXECUTE], BlockKind.EXECUTE
    enclosing = np.array([name in names for name in batch.names] or [False])
    open_blocks = np.array([b.kind is execute and (b.part is None or b.part.last) for b in batch.blocks], np.bool_)
    open_blocks[block[runtime[enclosing[batch.name[runtime]]]]] = False
    if open_blocks.any():
        ran = np.zeros(len(batch.blocks), np.bool_)
        ran[block[inside]] = True
        open_blocks &= ran
    return open_blocks
