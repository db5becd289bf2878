"""
`inspect --by`: where the time of the inferences went, each nanosecond in one row.

Invariants
* The rows of a method add up to its inferences, exactly: see budget.py for whose time it is, keys.py for what it is called.
* A row is one (method, key). Methods are apart: their inferences are not alike.
* Percentiles are over the inferences of the method, one value each, 0 where the row has no time in it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from otel_bridge.model.events import EventKind
from otel_bridge.report.budget import Budget, share_out
from otel_bridge.report.keys import FRAMEWORK, By, Piece, shares_of
from otel_bridge.report.shares import apportion
from otel_bridge.spans.distinct import distinct
from otel_bridge.spans.scene import Scene


@dataclass(frozen=True, slots=True)
class Total:
    """
    One row. Times in nanoseconds; percentiles by linear interpolation.

    method     that ran, or the block's name where it is not known
    count      events that have a share in the row; inferences, for the framework's
    share      of the time of the method's inferences, 1 for all of it; None where they took none
    is_scaled  some of its events were scaled to what they lie in
    """

    method: str
    key: str
    count: int
    total_ns: int
    share: float | None
    mean_ns: float
    p50_ns: float
    p90_ns: float
    p99_ns: float
    is_scaled: bool


@dataclass(frozen=True, slots=True)
class Totals:
    """
    All rows, methods in the order in which they first ran, within one the longest first.

    inferences   by method, how many are in the rows
    left_out     inferences in no row, since no event encloses them: they failed, or are parts
    """

    rows: tuple[Total, ...]
    inferences: dict[str, int]
    left_out: int


@dataclass(slots=True)
class _Sum:
    """What a row is made of so far; `per_inference` is int64[k], nanoseconds."""

    per_inference: NDArray[np.int64]
    count: int = 0
    is_scaled: bool = False


def add_up_by(scene: Scene, by: By) -> Totals:
    """The totals of a scene."""
    budget = share_out(scene)
    names = [scene.inference_at(block).method or scene.batch.blocks[block].name for block in budget.inferences.tolist()]
    rows: list[Total] = []
    inferences: dict[str, int] = {}
    for method in dict.fromkeys(names):
        own = np.array([name == method for name in names], np.bool_)
        sums = _sums(scene, budget, own, by)
        whole = sum(budget.total_ns[own].tolist())
        inferences[method] = int(own.sum())
        rows += sorted(
            (_total(method, key, each, whole) for key, each in sums.items()), key=lambda row: (-row.total_ns, row.key)
        )
    return Totals(tuple(rows), inferences, budget.left_out)


def _sums(scene: Scene, budget: Budget, own: NDArray[np.bool_], by: By) -> dict[str, _Sum]:
    """The rows of the inferences that `own` chooses."""
    number = np.full(len(scene.batch.blocks), -1)
    number[budget.inferences[own]] = np.arange(int(own.sum()))
    sums = {FRAMEWORK: _Sum(budget.rest_ns[own], int(own.sum()))}
    for row, inference, members in _alike(scene, budget, number):
        shares = shares_of(_piece(scene, row), by)
        amounts = np.zeros(int(own.sum()), np.int64)
        np.add.at(amounts, inference, budget.own_ns[members])
        parts = apportion(amounts, list(shares.values())) if len(shares) > 1 else amounts[:, np.newaxis]
        for column, key in enumerate(shares):
            total = sums.setdefault(key, _Sum(np.zeros(len(amounts), np.int64)))
            total.per_inference = total.per_inference + parts[:, column]
            total.count += len(members)
            total.is_scaled |= bool(budget.scaled[members].any())
    return sums


def _alike(
    scene: Scene, budget: Budget, number: NDArray[np.int64]
) -> Iterator[tuple[int, NDArray[np.int64], NDArray[np.int64]]]:
    """Each distinct event of the numbered blocks: its first row; of all like it, the inference and the index in `budget`."""
    inference = number[scene.tree.block[budget.rows]]
    chosen = np.flatnonzero(inference >= 0)
    if not len(chosen):
        return
    first, group = distinct([scene.template[budget.rows[chosen]]])
    order = np.argsort(group, kind="stable")
    for index, members in zip(first.tolist(), np.split(order, np.cumsum(np.bincount(group))[:-1]), strict=True):
        yield int(budget.rows[chosen[index]]), inference[chosen[members]], chosen[members]


def _piece(scene: Scene, row: int) -> Piece:
    batch = scene.batch
    chain, instruction = int(batch.chain[row]), int(batch.instruction[row])
    kernel = int(scene.tree.kernel[row])
    return Piece(
        place=f"{chain}/{instruction}" if chain else str(instruction),
        name=batch.names[batch.name[row]],
        is_delegate=batch.kind[row] == EventKind.DELEGATE,
        resolution=scene.templates[scene.template[row]].face.resolution,
        kernel=str(batch.names[kernel]) if kernel >= 0 else None,
    )


def _total(method: str, key: str, total: _Sum, whole_ns: int) -> Total:
    total_ns = sum(total.per_inference.tolist())
    p50, p90, p99 = np.percentile(total.per_inference, (50, 90, 99)).tolist()
    return Total(
        method=method,
        key=key,
        count=total.count,
        total_ns=total_ns,
        share=total_ns / whole_ns if whole_ns else None,
        mean_ns=total_ns / len(total.per_inference),
        p50_ns=p50,
        p90_ns=p90,
        p99_ns=p99,
        is_scaled=total.is_scaled,
    )
