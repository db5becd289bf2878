"""
Whose time it is: the time of each inference, shared out so that no nanosecond counts twice.

Invariants
* An inference has the time of the event that encloses it. What an event has is divided between the events right inside it
  and the event itself, so that the own times of all events of an inference add up to it, to the nanosecond.
* Times are true ones, by the clock of the event: not those of the picture. What is no time (bytes, counts, cycles) has none;
  nor has an event on a clock whose tick is not known.
  Events that are together longer than the one they lie in (ticks of another unit, estimates) are scaled to it, and marked.
* `native_call_<op>` and other stretches of the runtime are a part of their instruction and have no time of their own; nor has
  what the runtime logs outside of instructions.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from otel_bridge.model.events import BlockKind, EventKind
from otel_bridge.report.shares import add_up, apportion
from otel_bridge.spans.scene import Scene
from otel_bridge.spans.tree import NOWHERE


@dataclass(frozen=True, slots=True, eq=False)
class Budget:
    """
    The time of the inferences of a scene of n rows and m blocks.

    inferences  int64[k]   blocks that are inferences and have an event that encloses them
    left_out    inferences that have none: they failed, or are parts of one that was split
    rows        int64[r]   rows that have time of their own: instructions and delegate events of those inferences
    own_ns      int64[r]   what of it is in no event inside
    scaled      bool[r]    the row, or what it lies in, was scaled
    rest_ns     int64[k]   what of each inference is in no row
    total_ns    int64[k]   time of each inference
    """

    inferences: NDArray[np.int64]
    left_out: int
    rows: NDArray[np.int64]
    own_ns: NDArray[np.int64]
    scaled: NDArray[np.bool_]
    rest_ns: NDArray[np.int64]
    total_ns: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class _Nodes:
    """Rows, then blocks: what each has, what of it is its own, and whether it was scaled."""

    granted: NDArray[np.int64]
    own: NDArray[np.int64]
    scaled: NDArray[np.bool_]


def share_out(scene: Scene) -> Budget:
    """The time of the scene's inferences."""
    batch, tree = scene.batch, scene.tree
    times = np.maximum(scene.timeline.length, 0)
    is_inference = np.array([block.kind is BlockKind.EXECUTE for block in batch.blocks], np.bool_)
    inferences = np.flatnonzero(is_inference & (tree.root != NOWHERE))
    left_out = int((is_inference & (tree.root == NOWHERE) & (np.diff(batch.bounds) > 0)).sum())
    enclosed = (is_inference & (tree.root != NOWHERE))[tree.block]
    is_counter = np.array([bool(template.face.counter) for template in scene.templates] or [False])
    timed = enclosed & ((batch.kind == EventKind.CALL) | (batch.kind == EventKind.DELEGATE)) & ~is_counter[scene.template]
    owner = _owners(scene, timed)

    blocks = len(batch) + inferences
    granted = np.zeros(len(batch) + len(batch.blocks), np.int64)
    granted[blocks] = times[tree.root[inferences]]
    nodes = _Nodes(granted, granted.copy(), np.zeros(len(granted), np.bool_))
    settled = np.arange(len(granted)) >= len(batch)
    waiting = np.flatnonzero(timed)
    while len(waiting):
        ready = settled[owner[waiting]]
        rows = waiting[ready]
        _grant(nodes, times, rows, owner[rows])
        settled[rows] = True
        waiting = waiting[~ready]
    rows = np.flatnonzero(timed)
    return Budget(inferences, left_out, rows, nodes.own[rows], nodes.scaled[rows], nodes.own[blocks], granted[blocks])


def _owners(scene: Scene, timed: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The node that each row lies in, of those that have time."""
    tree = scene.tree
    n = len(timed)
    owner = np.where(tree.parent == NOWHERE, n + tree.block, tree.parent)
    while True:
        lost = np.flatnonzero((owner < n) & ~timed[np.minimum(owner, n - 1)])
        if not len(lost):
            return owner
        owner[lost] = np.where(tree.parent[owner[lost]] == NOWHERE, n + tree.block[lost], tree.parent[owner[lost]])


def _grant(nodes: _Nodes, times: NDArray[np.int64], rows: NDArray[np.int64], owner: NDArray[np.int64]) -> None:
    """Give rows their time out of their owners', which stands; all rows of an owner are given at once."""
    owners, group = np.unique(owner, return_inverse=True)
    nodes.granted[rows] = times[rows]
    nodes.scaled[rows] = nodes.scaled[owner]
    wanted = add_up(times[rows], group, len(owners))
    over = [number for number, (node, time) in enumerate(zip(owners, wanted, strict=True)) if time > nodes.granted[node]]
    if over:
        order = np.argsort(group, kind="stable")
        edges = np.searchsorted(group[order], np.arange(len(owners) + 1))
        for number in over:
            inside = rows[order[edges[number] : edges[number + 1]]]
            node = owners[number]
            nodes.granted[inside] = apportion(nodes.granted[node : node + 1], times[inside].tolist())[0]
            nodes.scaled[inside] = True
    nodes.own[rows] = nodes.granted[rows]
    np.subtract.at(nodes.own, owner, nodes.granted[rows])
