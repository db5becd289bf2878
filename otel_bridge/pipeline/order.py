"""
Which rows of a batch the order of nodes resolves (mapping/xnnpack_order.py), worked out per call of a delegate.

Invariants
* A call is what lies under one row of its instruction; in a part of a split inference some of it may lie elsewhere, so there
  nothing is derived. The same instruction run again is another call.
* Names are read per distinct sequence of identifiers, and spread over its calls by index. Nodes are gone through once a batch
  for a call's plan, and once for each sequence of names that is not kept (`Orders`): not for each call.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from otel_bridge.mapping.resolve import Attribution
from otel_bridge.mapping.xnnpack_order import Node, Orders, Plan, plan_of
from otel_bridge.model.events import EventBatch, EventKind
from otel_bridge.spans.distinct import distinct
from otel_bridge.spans.tree import NOWHERE, Tree

_DELEGATE = EventKind.DELEGATE.value
"""A plain int: a member of an IntEnum takes longer to reach, and to compare with."""


def derive(batch: EventBatch, tree: Tree, attributions: Sequence[Attribution], orders: Orders) -> NDArray[np.int64]:
    """
    int64[n]: the debug handle of each row that follows from the order of nodes; 0: none does.

    `tree` as `grow` gives it: a delegate event's parent is its call, not yet another event that contains it.
    """
    derived = np.zeros(len(batch), np.int64)
    calls, call_of_block = _known_calls(batch, attributions)
    if not calls:
        return derived
    inside = (batch.kind == _DELEGATE) & (tree.parent != NOWHERE) & (batch.chain == 0)
    rows = np.flatnonzero(inside & (call_of_block >= 0)[tree.block])
    key = call_of_block[tree.block[rows]] << 32 | batch.instruction[rows]
    known = np.isin(key, np.array(list(calls), np.int64))
    rows, key = rows[known], key[known]
    order = np.argsort(tree.parent[rows], kind="stable")
    rows, key = rows[order], key[order]
    plans: dict[int, Plan] = {}
    for call, members in _calls(key, tree.parent[rows]):
        name, nodes = calls[call]
        plan = plans.get(call) or plans.setdefault(call, plan_of(nodes))
        if not plan.allows(members.shape[1]):
            continue
        sequences, number = _distinct_rows(batch.name[rows[members]])
        handles = [orders.get(name, plan, [batch.names[index] for index in sequence]) for sequence in sequences.tolist()]
        derived[rows[members]] = np.array(handles, np.int64)[number]
    return derived


def _known_calls(
    batch: EventBatch, attributions: Sequence[Attribution]
) -> tuple[dict[int, tuple[tuple[str | None, str, int], Sequence[Node]]], NDArray[np.int64]]:
    """
    The calls whose nodes are known, by number of method << 32 | instruction: their name in caches and their nodes.

    And int64[m], the number of each block's method; -1: none of its calls is known.
    """
    calls: dict[int, tuple[tuple[str | None, str, int], Sequence[Node]]] = {}
    numbers: dict[tuple[str | None, str], int] = {}
    of_block = np.full(len(batch.blocks), -1, np.int64)
    for index, (block, attribution) in enumerate(zip(batch.blocks, attributions, strict=True)):
        method = attribution.method
        if method is None or not method.nodes or block.part is not None:
            continue
        named = attribution.digest, method.name
        if named not in numbers:
            number = numbers[named] = len(numbers)
            for instruction, nodes in method.nodes.items():
                calls[number << 32 | instruction] = (*named, instruction), nodes
        of_block[index] = numbers[named]
    return calls, of_block


def _calls(key: NDArray[np.int64], parent: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """
    Calls of one key and one number of events at a time: the key, and int64[calls, events] where their rows are.

    `parent` ascends: the row of each event's call.
    """
    begin = np.flatnonzero(np.diff(parent, prepend=-1))
    length = np.diff(begin, append=len(parent))
    kind = np.unique(key[begin], return_inverse=True)[1]
    first, group = distinct([kind, length])
    ends = np.cumsum(np.bincount(group))
    in_groups = np.argsort(group, kind="stable")  # a look at all calls for each group would be quadratic: all may differ
    for number, example in enumerate(first.tolist()):
        calls = in_groups[ends[number - 1] if number else 0 : ends[number]]
        yield int(key[begin[example]]), begin[calls][:, None] + np.arange(length[example])


def _distinct_rows(table: NDArray[np.uint32]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """The distinct rows of a table, and which of them each row is like."""
    rows = np.ascontiguousarray(table).view(f"V{table.itemsize * table.shape[1]}")[:, 0]
    _, first, number = np.unique(rows, return_index=True, return_inverse=True)
    return table[first], number
