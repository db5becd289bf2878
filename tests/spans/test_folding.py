"""Which groups of events stay, and under which they go that do not."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from otel_bridge.spans.folding import Groups, enclosing
from otel_bridge.spans.tree import NOWHERE


@st.composite
def forests(draw: st.DrawFn) -> tuple[list[int], list[bool]]:
    """Parents of some groups, in any order, and which of them are wanted."""
    count = draw(st.integers(1, 12))
    name = draw(st.permutations(range(count)))
    parent = [NOWHERE] * count
    for number in range(1, count):
        above = draw(st.integers(NOWHERE, number - 1))
        parent[name[number]] = NOWHERE if above == NOWHERE else name[above]
    return parent, draw(st.lists(st.booleans(), min_size=count, max_size=count))


def ancestors(parent: list[int], number: int) -> list[int]:
    """From the group itself upwards."""
    path = []
    while number != NOWHERE:
        path.append(number)
        number = parent[number]
    return path


@given(forests())
def test_a_group_stays_only_under_parents_that_stay(forest: tuple[list[int], list[bool]]) -> None:
    """All its ancestors are wanted; the others go under the nearest that stays, and only the topmost lay directly there."""
    parent, wanted = forest
    count = len(parent)
    numbers = np.arange(count)
    groups = Groups(numbers, numbers, numbers, np.array(parent), np.zeros(count, np.int64))
    kept = groups.kept = groups.closed(np.array(wanted))
    paths = [ancestors(parent, number) for number in range(count)]
    assert kept.tolist() == [all(wanted[each] for each in path) for path in paths]
    nearest = [next((each for each in path if kept[each]), count) for path in paths]
    assert enclosing(groups.parent, kept).tolist() == nearest
    bearer, is_direct = groups.bearers()
    folded = [number for number in range(count) if not kept[number]]
    for number in folded:
        assert bearer[number] == min(other for other in folded if nearest[other] == nearest[number])
        assert is_direct[number] == (parent[number] in (NOWHERE, nearest[number]))
    assert bearer[kept].tolist() == numbers[kept].tolist()
