"""
Which events of a block are alike, and which of those kinds stay when there are too many.

Invariants
* Two events are of one group if their templates are equal and their parents are of one group: the groups are a tree as well.
* Groups are found by doubling (each round knows the path of twice as many ancestors), so a deep tree takes few rounds.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from otel_bridge.spans.distinct import distinct
from otel_bridge.spans.place import UNKNOWN_NS
from otel_bridge.spans.scene import Scene
from otel_bridge.spans.tree import NOWHERE


@dataclass(slots=True)
class Groups:
    """
    k rows of a block in g groups.

    rows            int64[k]   those that have spans, ascending
    number          int64[k]   group of each
    first_position  int64[g]   index in `rows` of each group's first
    parent          int64[g]   group of the parent, or `NOWHERE`
    known_ns        int64[g]   about the sum of durations, for the order of groups
    kept            bool[g]    groups that stay; the parent of one stays too
    """

    rows: NDArray[np.int64]
    number: NDArray[np.int64]
    first_position: NDArray[np.int64]
    parent: NDArray[np.int64]
    known_ns: NDArray[np.int64]
    kept: NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        self.kept = np.ones(len(self.first_position), np.bool_)

    @property
    def first(self) -> NDArray[np.int64]:
        """int64[g]: the first row of each group."""
        return self.rows[self.first_position]

    def closed(self, wanted: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """bool[g]: the wanted groups all of whose ancestors are wanted too."""
        whole = np.append(wanted, True)
        up = _with_top(self.parent)
        while (up != len(wanted)).any():
            whole &= whole[up]
            up = up[up]
        return whole[:-1]

    def bearers(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """
        int64[g]: the row that each group becomes, which for those that do not stay is one for each parent that does.

        And bool[g]: whether the group's events lay directly in the parent of that row.
        """
        first = self.first
        top = len(first)
        above = enclosing(self.parent, self.kept)
        folded = np.flatnonzero(~self.kept)
        earliest = np.full(top + 1, np.iinfo(np.int64).max)
        np.minimum.at(earliest, above[folded], first[folded])
        bearer = first.copy()
        bearer[folded] = earliest[above[folded]]
        return bearer, np.append(self.kept, True)[self.parent] | self.kept  # NOWHERE is the last

    def parent_bearer(self, bearers: NDArray[np.int64]) -> NDArray[np.int64]:
        """The row that bears the parent of these rows, which bear groups; `NOWHERE`: the root, or not in this batch."""
        group = self.number[np.searchsorted(self.rows, bearers)]
        above = np.where(self.kept[group], _with_top(self.parent)[group], enclosing(self.parent, self.kept)[group])
        return np.append(self.first, NOWHERE)[above]


def gather_groups(scene: Scene, block: int, lone: NDArray[np.bool_]) -> Groups:
    """The groups of a block; rows of `lone` (bool[n]) are alike to none."""
    tree = scene.tree
    begin, end = int(scene.batch.bounds[block]), int(scene.batch.bounds[block + 1])
    rows = begin + np.flatnonzero(~scene.counters.silent[begin:end])
    position = np.full(len(scene.batch) + 1, NOWHERE)
    position[rows] = np.arange(len(rows))
    parent = position[tree.parent[rows]]  # NOWHERE is the last
    absent = np.where(parent == NOWHERE, np.unique(tree.parent_place[rows], return_inverse=True)[1] + 1, 0)
    alone = np.where(lone[rows], np.arange(1, len(rows) + 1), 0)
    path = np.append(distinct([scene.template[rows], absent, alone])[1] + 1, 0)
    up = _with_top(parent)
    while (up != len(rows)).any():
        path = np.append(distinct([path[:-1], path[up[:-1]]])[1] + 1, 0)
        up = up[up]
    _, first, number = np.unique(path[:-1], return_index=True, return_inverse=True)
    above = parent[first]
    length = scene.timeline.length[rows]
    known = np.zeros(len(first), np.float64)
    np.add.at(known, number, np.where(length == UNKNOWN_NS, 0, length))
    return Groups(
        rows,
        number,
        first,
        np.where(above == NOWHERE, NOWHERE, number[above]),
        np.minimum(known, 2.0**62).astype(np.int64),
    )


def enclosing(parent: NDArray[np.int64], kept: NDArray[np.bool_]) -> NDArray[np.int64]:
    """int64[g]: each group itself if it is kept, else its nearest ancestor that is; g: none is."""
    top = len(parent)
    nearest = np.where(np.append(kept, True), np.arange(top + 1), _with_top(parent))
    while (nearest != nearest[nearest]).any():
        nearest = nearest[nearest]
    return nearest[:-1]


def _with_top(parent: NDArray[np.int64]) -> NDArray[np.int64]:
    """`parent` with one entry more, its own parent, which stands for `NOWHERE`."""
    top = len(parent)
    return np.append(np.where(parent == NOWHERE, top, parent), top)
