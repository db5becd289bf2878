"""
Exact sums and exact shares of nanoseconds, of any size.

Invariant: nothing is lost to rounding or overflow. Shares are whole numbers that add up to what was shared out; what division
leaves over goes, one each, to the largest remainders, of equal ones to the first.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_LOW_BITS = 32
_LOW = np.int64(2**_LOW_BITS - 1)


def add_up(values: NDArray[np.int64], group: NDArray[np.int64], groups: int) -> list[int]:
    """The sum of the values of each group; values are not negative, sums have no bound."""
    high, low = np.zeros(groups, np.int64), np.zeros(groups, np.int64)
    np.add.at(high, group, values >> _LOW_BITS)
    np.add.at(low, group, values & _LOW)
    return [(h << _LOW_BITS) + rest for h, rest in zip(high.tolist(), low.tolist(), strict=True)]


def apportion(amounts: NDArray[np.int64], weights: Sequence[int]) -> NDArray[np.int64]:
    """int64[amounts, weights]: each amount shared out by the weights; equally where all of them are 0."""
    whole = sum(weights)
    parts = np.array(weights if whole else [1] * len(weights), object)
    products = amounts.astype(object)[:, np.newaxis] * parts
    shares = products // (whole or len(weights))
    left_over = amounts - shares.sum(axis=1).astype(np.int64)
    order = np.argsort(-(products % (whole or len(weights))), axis=1, kind="stable")
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.arange(len(weights))[np.newaxis, :], axis=1)
    result: NDArray[np.int64] = shares.astype(np.int64) + (rank < left_over[:, np.newaxis])
    return result
