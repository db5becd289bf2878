"""Alignment against the list of all alignments."""

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_bridge.mapping import align as room
from otel_bridge.mapping.align import Step, align

steps = st.builds(Step, st.frozensets(st.sampled_from("abc"), max_size=2), st.booleans())


def every_alignment(nodes: Sequence[Step], events: Sequence[str], first: int = 0) -> Iterator[tuple[int, ...]]:
    """The node of each event, in every way there is."""
    if not nodes:
        if not events:
            yield ()
        return
    node = nodes[0]
    if node.may_vanish:
        yield from every_alignment(nodes[1:], events, first + 1)
    if events and events[0] in node.fits:
        for rest in every_alignment(nodes[1:], events[1:], first + 1):
            yield (first, *rest)


def certain(nodes: Sequence[Step], events: Sequence[str]) -> list[int | None]:
    """What all alignments agree on, event by event."""
    ways = list(every_alignment(nodes, events))
    return [
        ways[0][index] if ways and all(way[index] == ways[0][index] for way in ways) else None for index in range(len(events))
    ]


@settings(max_examples=400)
@given(st.lists(steps, max_size=9), st.lists(st.sampled_from("abc"), max_size=8))
def test_equals_the_list_of_all_alignments(nodes: list[Step], events: list[str]) -> None:
    """An event has a node exactly if it has the same one in every alignment, and nothing if there is none."""
    assert align(nodes, events) == certain(nodes, events)


@settings(max_examples=200)
@given(st.data(), st.lists(steps.filter(lambda step: step.fits), max_size=12))
def test_never_wrong(data: st.DataObject, nodes: list[Step]) -> None:
    """Whichever nodes vanish and whatever the others are called, no event is said to be of another node than its own."""
    kept = [index for index, node in enumerate(nodes) if not node.may_vanish or data.draw(st.booleans())]
    events = [data.draw(st.sampled_from(sorted(nodes[index].fits, key=str))) for index in kept]
    found = align(nodes, events)
    assert all(said in (None, truth) for said, truth in zip(found, kept, strict=True))
    if len(kept) == len(nodes):
        assert found == kept


ADD, CLAMP = Step(frozenset({"add"})), Step(frozenset({"clamp"}), may_vanish=True)


@pytest.mark.parametrize(
    ("nodes", "events", "found"),
    [
        ([ADD, CLAMP, ADD], ["add", "add"], [0, 2]),
        ([CLAMP, ADD, CLAMP, ADD, CLAMP], ["add", "clamp", "add"], [1, 2, 3]),
        ([CLAMP, CLAMP, ADD], ["clamp", "add"], [None, 2]),
        ([ADD, ADD], ["add"], [None]),
        ([ADD], ["add", "add"], [None, None]),
        ([ADD, CLAMP], ["add", "unheard of"], [None, None]),
        ([CLAMP, CLAMP], [], []),
        ([], ["add"], [None]),
    ],
)
def test_examples(nodes: list[Step], events: list[str], found: list[int | None]) -> None:
    """What may vanish leaves no gap; what two nodes may have logged, and what no node can have, is of none."""
    assert align(nodes, events) == found


def test_work_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nodes and events are too many to be compared, nothing is said; one fewer, and they are."""
    monkeypatch.setattr(room, "MAX_CELLS", 9)
    assert align([ADD] * 3, ["add"] * 3) == [0, 1, 2]
    assert align([*[ADD] * 3, CLAMP], ["add"] * 3) == [None] * 3


def test_long_sequences() -> None:
    """Thousands of nodes with as many possible alignments as there are subsets of them take one pass."""
    nodes = [ADD, CLAMP, CLAMP] * 1500
    events = ["add", "clamp"] * 1500
    assert align(nodes, events) == [index // 2 * 3 if index % 2 == 0 else None for index in range(3000)]
