"""What is kept of alignments: by meaning, within bounds, and with the same results as without."""

import re
import tracemalloc
from collections.abc import Sequence
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_bridge.mapping.align import align
from otel_bridge.mapping.xnnpack_kinds import LOOK_UP, STEPS, step_of
from otel_bridge.mapping.xnnpack_order import Node, Orders, handles_of, plan_of
from otel_bridge.model.events import Identifier

NODES: list[Node] = [("Softmax", 1), ("Softmax", 2), ("Softmax", 3)]
"""None of them can vanish."""


def counted(count: int, more: str = " (ND)") -> tuple[str, ...]:
    """The identifiers of so many of these nodes."""
    return tuple(f"Softmax{more} #{number + 1}" for number in range(count))


def plainly(nodes: Sequence[Node], identifiers: Sequence[Identifier]) -> tuple[int, ...]:
    """The rule written down a second time: every name is read, and every call is aligned."""
    read = [
        re.fullmatch(r"(.+) #([1-9]\d{0,8})", each, re.ASCII | re.DOTALL) if isinstance(each, str) else None
        for each in identifiers
    ]
    matches = [match for match in read if match]
    whole = [match[1] for match in matches]
    if len(matches) < len(read) or any(int(m[2]) != whole[: index + 1].count(m[1]) for index, m in enumerate(matches)):
        return (0,) * len(identifiers)
    names = [operator.partition(" (")[0] for operator in whole]
    found = align([step_of(kind) for kind, _ in nodes], names)
    return tuple(0 if at is None or name == LOOK_UP else nodes[at][1] for at, name in zip(found, names, strict=True))


def test_orders_are_kept_within_bounds() -> None:
    """A sequence is aligned once while it is kept; beyond the bound the one that was used least recently goes."""
    orders = Orders(max_events=5)
    three, two = plan_of(NODES), plan_of(NODES[:2])
    kept = orders.get(("call",), three, counted(3))
    assert kept == (1, 2, 3)
    assert orders.get(("call",), three, counted(3)) is kept
    assert orders.get(("other",), two, counted(2)) == (1, 2)
    assert orders.get(("call",), three, counted(3)) is kept
    orders.get(("third",), two, counted(2))
    assert orders.get(("call",), three, counted(3)) is kept
    assert len(orders._known) == 2


def test_equal_names_are_one_sequence() -> None:
    """What is kept is found by the operators that identifiers name, and holds none of their text."""
    orders = Orders(max_events=100)
    kept = orders.get(("call",), plan_of(NODES), counted(3))
    for more in ("", " (NC, F32)", f" ({'x' * 4096})"):
        assert orders.get(("call",), plan_of(NODES), counted(3, more)) is kept
    ((_, names),) = orders._known
    table = {id(name) for step in STEPS.values() for name in step.fits}
    assert {id(name) for name in names} <= table


@pytest.mark.parametrize(
    "identifiers", [counted(2), counted(4), (*counted(2), "Softmax (ND) #4"), (*counted(2), "Nothing #1"), (1, 2, 3)]
)
def test_what_is_no_call_is_not_kept(identifiers: tuple[Identifier, ...]) -> None:
    """Too few, too many, not counted up, of no node, and no names at all: nothing is derived, and nothing kept."""
    orders = Orders(max_events=100)
    assert orders.get(("call",), plan_of(NODES), identifiers) == (0,) * len(identifiers)
    assert not orders._known


def test_memory_is_bounded() -> None:
    """Whatever is asked for, what is kept takes no more than `max_bytes`; the short sequences that cost the most included."""
    most = 1 << 17
    plan = plan_of([("Minimum", 1), ("Maximum", 2), ("Multiply", 3), ("Square", 4), ("Sigmoid", 5)])
    tracemalloc.start()
    try:
        orders = Orders(1 << 30, max_bytes=most)
        before = tracemalloc.get_traced_memory()[0]
        for call in range(100):
            for names in product(["Minimum", "Clamp"], ["Maximum"], ["Multiply", "Square"]):
                orders.get((f"digest {call}", "é" * 20, call), plan, [f"{name} #1" for name in names])
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert most // 4 < taken <= most
    assert 0 < len(orders._known) < 100 * 4
    assert orders._bytes <= most


def test_what_is_larger_than_the_bound_is_not_kept() -> None:
    """It is worked out each time, and the account is right after it."""
    orders = Orders(max_events=100, max_bytes=100)
    assert orders.get(("call",), plan_of(NODES), counted(3)) == (1, 2, 3)
    assert (len(orders._known), orders._events, orders._bytes) == (0, 0, 0)


NAMES = ["Add", "Softmax", "Clamp", "Copy", "Minimum", LOOK_UP, "Convolution", "Fully Connected", "Nothing", "", "Add #1"]


@given(
    st.lists(
        st.lists(st.sampled_from(["Add", "Clamp", "Conv2d", "Softmax", "Minimum", "Copy", "XNode48"]), max_size=6),
        min_size=1,
        max_size=3,
    ),
    st.lists(
        st.lists(
            st.builds(
                "{}{}{}".format,
                st.sampled_from(NAMES),
                st.sampled_from(["", " (ND)", " (", "(x)", "\n"]),
                st.sampled_from([" #1", " #1", " #2", " #3", " #01", "#1", " #", " #1\n", " #²", ""]),
            )
            | st.integers(0, 2),
            max_size=5,
        ),
        max_size=8,
    ),
    st.sampled_from([0, 3, 100]),
)
def test_same_results(kinds: list[list[str]], calls: list[list[Identifier]], most: int) -> None:
    """For any nodes and identifiers what is kept, what is refused at once and what is read faster change no handle."""
    orders = Orders(most)
    for number, of_call in enumerate(kinds):
        nodes = [(kind, index + 1) for index, kind in enumerate(of_call)]
        for identifiers in [*calls, *calls]:
            expected = plainly(nodes, identifiers)
            assert orders.get((number,), plan_of(nodes), identifiers) == expected
            assert handles_of(nodes, identifiers) == expected
