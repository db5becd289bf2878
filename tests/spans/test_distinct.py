"""Rows that are alike are found, whichever way is taken."""

from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from otel_bridge.spans.distinct import distinct

widths = st.sampled_from([1, 2, 60, 5000, 2**31, 2**62])


@given(st.lists(widths, min_size=1, max_size=7), st.integers(0, 40), st.randoms(use_true_random=False))
def test_distinct_rows_are_what_a_dictionary_finds(spans: list[int], n: int, random: Random) -> None:
    """Columns of few and of many numbers: rows have one number if and only if they are equal; the first stands for all."""
    kinds = [[random.choice((span - 1, random.randrange(span))) for span in spans] for _ in range(5)]
    rows = [random.choice(kinds) for _ in range(n)]
    columns = [np.array([row[column] for row in rows], np.int64) for column in range(len(spans))]
    first, number = distinct(columns)
    firsts: dict[tuple[int, ...], int] = {}
    for place, row in enumerate(rows):
        firsts.setdefault(tuple(row), place)
    assert sorted(first.tolist()) == sorted(firsts.values())
    assert first[number].tolist() == [firsts[tuple(row)] for row in rows]
    assert [rows[place] for place in first.tolist()] == sorted(rows[place] for place in firsts.values())


def test_narrow_columns_are_not_taken_beyond_their_type() -> None:
    """Columns of bytes are folded as numbers, not as bytes."""
    chains = np.array([255, 0, 255, 254], np.uint8)
    kinds = np.array([4, 4, 4, 1], np.uint8)
    assert distinct([chains, kinds])[1].tolist() == [2, 0, 2, 1]
