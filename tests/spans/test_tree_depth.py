"""The search for the event that contains another: the same as an obvious one, and linear however the events lie."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.scenes import batch_of, call, delegated, execute

from otel_bridge.clock.convert import to_unix_ns
from otel_bridge.spans import tree as module
from otel_bridge.spans.tree import NOWHERE, grow, nest

Events = Sequence[tuple[bool, int]]
"""Of each position whether a group begins there, and its stop."""


def columns(events: Events) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    begins = np.array([begins for begins, _ in events], np.bool_)
    begins[0] = True
    return begins, np.array([stop for _, stop in events], np.int64)


def obvious(begins: NDArray[np.bool_], stop: NDArray[np.int64]) -> list[int]:
    """For each position all before it, back to the beginning of its group."""
    found = []
    for position in range(len(stop)):
        candidate = position
        while True:
            candidate = NOWHERE if begins[candidate] else candidate - 1
            if candidate == NOWHERE or stop[candidate] >= stop[position]:
                break
        found.append(candidate)
    return found


def overlapping(count: int) -> NDArray[np.int64]:
    """Stops of a nested chain, and of as many events after it that overlap all of the chain but its outermost."""
    chain = np.arange(count, 0, -1)
    chain[0] = 3 * count
    return np.concatenate([chain, np.arange(count + 1, 2 * count + 1)])


def from_outermost(count: int) -> list[int]:
    """What contains the events of `overlapping`."""
    return [*range(-1, count - 1), *[0] * count]


@pytest.mark.parametrize("rounds", [0, 1, 2, 32])
@given(events=st.lists(st.tuples(st.sampled_from([False] * 9 + [True]), st.integers(0, 12)), min_size=1, max_size=60))
def test_as_the_obvious_search(rounds: int, events: Events) -> None:
    """For any events, and wherever the jumps of all rows at once give way to one after the other."""
    begins, stop = columns(events)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_ROUNDS", rounds)
        assert module._nearest_as_long(begins, stop).tolist() == obvious(begins, stop)


class Counting(list[int]):
    """A list that counts what is read of it."""

    reads = 0

    def __getitem__(self, index: Any) -> Any:
        self.reads += 1
        return super().__getitem__(index)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 200)), min_size=1, max_size=300))
def test_steps_are_linear(events: Events) -> None:
    """Each position is passed over at most once, and a pointer is read only to pass over."""
    begins, stop = columns(events)
    pointers = Counting(np.where(begins, NOWHERE, np.arange(len(stop)) - 1).tolist())
    module._settle(pointers, stop.tolist(), np.flatnonzero(~begins).tolist())
    assert list.copy(pointers) == obvious(begins, stop)
    assert pointers.reads <= len(stop)


def test_steps_and_rounds_of_overlapping_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """The events that jumps alone take as many rounds for as there are events take `_ROUNDS`, and then linear steps."""
    count = 4_000
    rounds, reads = 0, 0
    unsettled, settle = module._unsettled, module._settle

    def counted_round(outer: NDArray[np.int64], stop: NDArray[np.int64], among: NDArray[np.int64]) -> NDArray[np.int64]:
        nonlocal rounds
        rounds += 1
        return unsettled(outer, stop, among)

    def counted_settle(outer: list[int], stop: list[int], rows: list[int]) -> None:
        nonlocal reads
        counting = Counting(outer)
        settle(counting, stop, rows)
        reads += counting.reads
        outer[:] = list.copy(counting)

    monkeypatch.setattr(module, "_unsettled", counted_round)
    monkeypatch.setattr(module, "_settle", counted_settle)
    stop = overlapping(count)
    begins = np.arange(len(stop)) == 0
    assert module._nearest_as_long(begins, stop).tolist() == from_outermost(count)
    assert rounds <= module._ROUNDS + 1
    assert 0 < reads <= len(stop)


def test_events_side_by_side_need_no_steps_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """What honest backends log stays with whole columns: siblings in one that contains them, nested a few deep."""

    def refuse(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(module, "_settle", refuse)
    size = 1 << 16
    depth = np.arange(size) % 4
    stop = np.arange(size) // 4 * 4 + 4 - depth
    stop[0] = 2 * size
    begins = np.arange(size) == 0
    found = module._nearest_as_long(begins, stop)
    assert (stop[found[1:]] >= stop[1:]).all()
    assert (found[depth == 0][1:] == 0).all()


def test_a_block_of_overlapping_events() -> None:
    """The same from events to parents."""
    count = 300
    stops = overlapping(count).tolist()
    events = [delegated("x", 0, start, 2 * count + stop) for start, stop in enumerate(stops)]
    batch = batch_of((execute(), [*events, call("DELEGATE_CALL", 0, 0, 6 * count)]))
    times = to_unix_ns(batch)
    nested = nest(batch, grow(batch), times.start, times.end, np.zeros(len(batch), np.int64))
    called = len(events)
    expected = [called if outer == NOWHERE else outer for outer in from_outermost(count)]
    assert nested.parent[:called].tolist() == expected
