"""
Blocks that ran the same, so that what follows from it is worked out once: a model does the same in each inference, but for
when.

Invariants
* Blocks of one kind agree row by row in instruction, name, kind and chain, and in all that decides what these stand for.
* A part of a split inference is a kind of its own: what it is depends on what the sender counted.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from otel_bridge.model.events import EventBatch
from otel_bridge.spans.tree import NOWHERE, Tree

_ROW = np.dtype([("instruction", "<i4"), ("name", "<u4"), ("kind", "u1"), ("chain", "u1")])
"""What a row says has happened."""


@dataclass(frozen=True, slots=True, eq=False)
class Kinds:
    """
    The m blocks of a batch by kind.

    batch   one block of each kind, the first; times and metadata are those of that one
    number  int64[m]   kind of each block
    like    int64[n]   the row of `batch` that each row of the whole is like
    ahead   int64[m]   how many rows the block stands behind the one that it is like
    """

    batch: EventBatch
    number: NDArray[np.int64]
    like: NDArray[np.int64]
    ahead: NDArray[np.int64]

    def spread(self, tree: Tree, block: NDArray[np.int64]) -> Tree:
        """The tree of the whole, from that of `batch`; `block` is int64[n], the block of each row."""
        if len(self.number) == len(self.batch.blocks):
            return tree
        parent = tree.parent[self.like]
        parent += np.where(parent == NOWHERE, 0, self.ahead[block])
        root = tree.root[self.number]
        root += np.where(root == NOWHERE, 0, self.ahead)
        return Tree(
            block=block,
            parent=parent,
            place=tree.place[self.like],
            parent_place=tree.parent_place[self.like],
            root=root,
            kernel=tree.kernel[self.like],
            failed=tree.failed[self.number],
        )


def kinds_of(batch: EventBatch, meanings: Iterable[Hashable]) -> Kinds:
    """The kinds of a batch; blocks with different `meanings` are not alike, whatever they ran."""
    number, first = _numbered(batch, meanings)
    if len(first) == len(number):
        return Kinds(batch, np.arange(len(number)), np.arange(len(batch)), np.zeros(len(number), np.int64))
    chosen, begin = np.array(first, np.int64), batch.bounds[:-1]
    size = np.diff(batch.bounds)
    bounds = np.concatenate(([0], np.cumsum(size[chosen])))
    rows = np.repeat(begin[chosen] - bounds[:-1], size[chosen]) + np.arange(bounds[-1])
    columns = ("kind", "instruction", "chain", "name", "start", "duration", "clock", "metadata")
    examples = replace(
        batch,
        blocks=tuple([batch.blocks[index] for index in first]),
        bounds=bounds,
        occurrence=batch.occurrence[rows] if batch.occurrence is not None else None,
        **{column: getattr(batch, column)[rows] for column in columns},
    )
    of_block = np.array(number, np.int64)
    ahead = begin - bounds[of_block]
    return Kinds(examples, of_block, np.arange(len(batch)) - np.repeat(ahead, size), ahead)


def _numbered(batch: EventBatch, meanings: Iterable[Hashable]) -> tuple[list[int], list[int]]:
    """The kind of each block, and the first block of each kind."""
    rows = np.empty(len(batch), _ROW)
    for column in _ROW.names or ():
        rows[column] = getattr(batch, column)
    said, edges = rows.tobytes(), (batch.bounds * _ROW.itemsize).tolist()
    numbers: dict[Hashable, int] = {}
    number: list[int] = []
    first: list[int] = []
    for index, (block, meaning) in enumerate(zip(batch.blocks, meanings, strict=True)):
        key: Hashable = index
        if block.part is None:
            key = (said[edges[index] : edges[index + 1]], int(block.kind), block.name, block.method, meaning)
        found = numbers.setdefault(key, len(first))
        if found == len(first):
            first.append(index)
        number.append(found)
    return number, first
