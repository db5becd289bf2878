"""
Two sequences laid side by side: the nodes of a delegate call, and the events that it logged.

    nodes    Transpose  Conv  Clamp  Conv  Clamp  Reshape
    events   Transpose  Conv         Conv         Reshape

Invariants
* In an alignment every event is of one node, in order; a node is of at most one event, and only one that may vanish of none.
* An event is said to be of a node only if it is so in every possible alignment. Where there is none, nothing is said.

The alignments are not listed, for there can be exponentially many. A set of events is an integer, one bit an event: going
forth over the nodes gives the events that may have been used up before each, going back those that must be left after it.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

MAX_CELLS = 1 << 26
"""Of nodes times events; beyond, nothing is said. A call of 8,000 nodes fits, and takes some 30 ms once."""


@dataclass(frozen=True, slots=True)
class Step:
    """
    A node as far as alignment goes.

    fits        what its event may be called
    may_vanish  whether the backend may run it inside another node, so that it logs nothing
    """

    fits: frozenset[Hashable]
    may_vanish: bool = False


def align(steps: Sequence[Step], events: Sequence[Hashable]) -> list[int | None]:
    """For each event the index of its node; None where alignments disagree or there is none."""
    none: list[int | None] = [None] * len(events)
    if len(events) > len(steps) or len(steps) * len(events) > MAX_CELLS:
        return none
    fitting = list(_fitting(steps, events))
    before = [1]  # bit j: the nodes so far may have taken exactly the first j events
    for step, fits in zip(steps, fitting, strict=True):
        before.append((before[-1] if step.may_vanish else 0) | (before[-1] & fits) << 1)
    if not before[-1] >> len(events) & 1:
        return none
    taken = [0] * len(steps)  # bit j: in some alignment the node takes event j
    once = twice = 0
    after = 1 << len(events)  # bit j: the nodes from here on may take exactly the events from j on
    for index in reversed(range(len(steps))):
        takes = fitting[index] & after >> 1
        taken[index] = before[index] & takes
        twice |= once & taken[index]
        once |= taken[index]
        after = takes | (after if steps[index].may_vanish else 0)
    result = none
    for index, events_of_node in enumerate(taken):
        if certain := events_of_node & ~twice:  # at most one bit: a node takes one event in an alignment
            result[certain.bit_length() - 1] = index
    return result


def _fitting(steps: Sequence[Step], events: Sequence[Hashable]) -> Iterator[int]:
    """For each node the events that fit it."""
    named: dict[Hashable, int] = {}
    for index, event in enumerate(events):
        named[event] = named.get(event, 0) | 1 << index
    known: dict[frozenset[Hashable], int] = {}
    for step in steps:
        if step.fits not in known:
            known[step.fits] = _union(named, step.fits)
        yield known[step.fits]


def _union(named: Mapping[Hashable, int], names: frozenset[Hashable]) -> int:
    union = 0
    for name in names:
        union |= named.get(name, 0)
    return union
