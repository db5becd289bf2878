"""
Blocks that ran the same, so that what follows from it is worked out once: a model does the same in each inference, but for
when.

Invariants
* Blocks of one kind agree row by row in instruction, name, kind and chain, and in all that decides what these stand for.
* A part of a split inference is a kind of its own: what it is depends on what the sender counted.
* Kinds with equal keys mean the same, whichever batches they are of: a key holds all that decides it.
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

    first   the first block of each kind
    bounds  int64[kinds + 1]   where the rows of each kind stand in `examples`
    number  int64[m]   kind of each block
    like    int64[n]   the row of `examples` that each row of the whole is like
    ahead   int64[m]   how many rows the block stands behind the one that it is like
    key     what the kinds are by, in their order; None: some are parts, of which only their batch says what they are
    """

    first: list[int]
    bounds: NDArray[np.int64]
    number: NDArray[np.int64]
    like: NDArray[np.int64]
    ahead: NDArray[np.int64]
    key: tuple[tuple[Hashable, ...], ...] | None

    def examples(self, batch: EventBatch) -> EventBatch:
        """One block of each kind, the first; times and metadata are those of that one. `batch` is the one of the kinds."""
        if len(self.first) == len(batch.blocks):
            return batch
        size = self.bounds[1:] - self.bounds[:-1]
        rows = (batch.bounds[self.first] - self.bounds[:-1]).repeat(size) + np.arange(self.bounds[-1])
        return replace(
            batch,
            blocks=tuple([batch.blocks[index] for index in self.first]),
            bounds=self.bounds,
            **batch.columns_at(rows),
        )

    def spread(self, tree: Tree, block: NDArray[np.int64]) -> Tree:
        """The tree of the whole, from that of `examples`; `block` is int64[n], the block of each row."""
        if len(self.number) == len(self.first):
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
    number, first, keys = _numbered(batch, meanings)
    whole = [each for each in keys if not isinstance(each, int)]
    key = (batch.names, *whole) if len(whole) == len(keys) else None
    of_block, begin = np.array(number, np.int64), batch.bounds[:-1]
    if len(first) == len(number):
        return Kinds(first, batch.bounds, of_block, np.arange(len(batch)), np.zeros(len(number), np.int64), key)
    size = batch.bounds[1:] - begin
    bounds = np.zeros(len(first) + 1, np.int64)
    size[first].cumsum(out=bounds[1:])
    ahead = begin - bounds[of_block]
    return Kinds(first, bounds, of_block, np.arange(len(batch)) - ahead.repeat(size), ahead, key)


def _numbered(batch: EventBatch, meanings: Iterable[Hashable]) -> tuple[list[int], list[int], list[tuple[Hashable, ...] | int]]:
    """The kind of each block, the first block of each kind, and what it is by; a part by its index."""
    rows = np.empty(len(batch), _ROW)
    for column in _ROW.names or ():
        rows[column] = getattr(batch, column)
    said, edges = rows.tobytes(), (batch.bounds * _ROW.itemsize).tolist()
    numbers: dict[tuple[Hashable, ...] | int, int] = {}
    number: list[int] = []
    first: list[int] = []
    begin = 0
    for index, (block, meaning, end) in enumerate(zip(batch.blocks, meanings, edges[1:], strict=True)):
        key: tuple[Hashable, ...] | int = index
        if block.part is None:
            key = (said[begin:end], int(block.kind), block.name, block.method, meaning)  # a member of an Enum is hashed slowly
        begin = end
        found = numbers.setdefault(key, len(first))
        if found == len(first):
            first.append(index)
        number.append(found)
    return number, first, list(numbers)
