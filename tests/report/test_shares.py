"""Exact sums and shares."""

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from otel_bridge.report.shares import add_up, apportion

amounts = st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=5)
weights = st.lists(st.integers(0, 2**63 - 1) | st.integers(0, 3), min_size=1, max_size=6)


@given(amounts, weights)
def test_shares_add_up_and_are_as_near_as_whole_numbers_can_be(amounts: list[int], weights: list[int]) -> None:
    """No nanosecond is lost, and each share differs from its fraction by less than one; without weights all are alike."""
    whole = sum(weights)
    for amount, shares in zip(amounts, apportion(np.array(amounts, np.int64), weights).tolist(), strict=True):
        assert sum(shares) == amount
        for share, weight in zip(shares, weights, strict=True):
            exact = Fraction(amount * weight, whole) if whole else Fraction(amount, len(weights))
            assert abs(share - exact) < 1


def test_what_is_left_over_goes_to_the_largest_remainders_then_to_the_first() -> None:
    """10 by 1:1:1 leaves one to the first; 10 by 2:3:2 is 2.86, 4.29 and 2.86, so the outer two are rounded up."""
    assert apportion(np.array([10]), [1, 1, 1]).tolist() == [[4, 3, 3]]
    assert apportion(np.array([10]), [2, 3, 2]).tolist() == [[3, 4, 3]]


@given(st.lists(st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 3)), max_size=20))
def test_sums_have_no_bound(values: list[tuple[int, int]]) -> None:
    """As Python's own."""
    numbers, groups = (np.array([pair[column] for pair in values], np.int64) for column in (0, 1))
    assert add_up(numbers, groups, 4) == [sum(number for number, group in values if group == g) for g in range(4)]
