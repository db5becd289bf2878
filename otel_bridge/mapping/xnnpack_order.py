"""
The rule `xnnpack.node_order`: which node an event of XNNPACK is of, by the order of nodes and events alone.

XNNPACK's debug handle map is empty, but its payload in the `.pte` lists the nodes with their handles (xnnpack_payload.py), and
the delegate logs one event for each operator, in the order of the nodes, as `NAME #N`: N counts equal names within one call
(backends/xnnpack/runtime/profiling/XNNProfiler.cpp, `submit_trace`).

Invariants
* The events of one whole call, or nothing: where the numbers do not count from 1, some are missing or of another call.
* A node without a handle gives none: layout transposes that ExecuTorch puts in are of no operator. Nor does a table look-up,
  which stands for several nodes.
* What is kept is bounded by bytes, and its keys are of names that nodes have: no identifier that a device made up is kept, nor
  is a call aligned again that differs from a known one only in data types, microkernels or the text of its identifiers.
"""

import sys
from collections import Counter, OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

from otel_bridge.mapping.align import align
from otel_bridge.mapping.xnnpack_kinds import LOOK_UP, step_of
from otel_bridge.model.events import Identifier
from otel_bridge.model.resolution import DebugHandle

RULE = "xnnpack.node_order"

MAX_BYTES = 1 << 26
"""Of memory that `Orders` takes."""

_SEQUENCE_BYTES = 512
_EVENT_BYTES = 48
"""What a kept sequence takes, about: its entry and tuples; then for each event a name's reference, and a handle and its own."""

Node = tuple[str, DebugHandle]
"""Kind and debug handle; 0: it has none."""

Names = tuple[Hashable, ...]
"""The operators that the events of a call name, without data types and microkernels."""

Call = tuple[Hashable, ...]
"""What tells a call's nodes from others: equal calls have equal nodes."""


@dataclass(frozen=True, slots=True)
class Plan:
    """
    The nodes of a call, and what they tell of its events before any alignment.

    nodes   in the order of the payload
    least   how many events there are at least: as many as nodes that cannot vanish
    names   what an event of any of these nodes may be called; each to itself, so that equal names kept are one object
    """

    nodes: Sequence[Node]
    least: int
    names: Mapping[Hashable, Hashable]

    def allows(self, events: int) -> bool:
        """Whether a call of these nodes can log so many events."""
        return self.least <= events <= len(self.nodes)

    def names_of(self, identifiers: Sequence[Identifier]) -> Names | None:
        """What the identifiers name; None: they are not those of one call, or no call of these nodes logs them."""
        if not self.allows(len(identifiers)):
            return None
        counted: dict[str, int] = {}
        names = []
        for identifier in identifiers:
            if not isinstance(identifier, str):
                return None
            operator, _, number = identifier.rpartition(" #")
            count = counted[operator] = counted.get(operator, 0) + 1
            name = self.names.get(operator.partition(" (")[0])
            if name is None or number != str(count):
                return None
            names.append(name)
        return tuple(names)

    def align(self, names: Names) -> tuple[DebugHandle, ...]:
        """The debug handle of each event; 0 where none is certain. Takes a step in Python for each node."""
        found = align([step_of(kind) for kind, _ in self.nodes], names)
        return tuple(
            0 if index is None or name == LOOK_UP else self.nodes[index][1] for index, name in zip(found, names, strict=True)
        )


def plan_of(nodes: Sequence[Node]) -> Plan:
    """What the nodes of a call tell of its events."""
    times = Counter(map(itemgetter(0), nodes))  # nodes are many, kinds are few
    steps = {kind: step_of(kind) for kind in times}
    least = sum(count for kind, count in times.items() if not steps[kind].may_vanish)
    return Plan(nodes, least, {name: name for step in steps.values() for name in step.fits})


def handles_of(nodes: Sequence[Node], identifiers: Sequence[Identifier]) -> tuple[DebugHandle, ...]:
    """The debug handle of each event of one call, in the order in which it logged them; 0 where none is certain."""
    plan = plan_of(nodes)
    names = plan.names_of(identifiers)
    return (0,) * len(identifiers) if names is None else plan.align(names)


class Orders:
    """
    Handles of sequences of names, worked out once each while they are kept; the least recently used go first.

    Kept are at most `max_events` events, in about `max_bytes` of memory.
    """

    def __init__(self, max_events: int, max_bytes: int = MAX_BYTES) -> None:
        self._max_events, self._max_bytes = max_events, max_bytes
        self._events = self._bytes = 0
        self._known: OrderedDict[tuple[Call, Names], tuple[DebugHandle, ...]] = OrderedDict()

    def get(self, call: Call, plan: Plan, identifiers: Sequence[Identifier]) -> tuple[DebugHandle, ...]:
        """`handles_of(plan.nodes, identifiers)`; `call` names the nodes."""
        names = plan.names_of(identifiers)
        if names is None:
            return (0,) * len(identifiers)
        key = call, names
        known = self._known.get(key)
        if known is not None:
            self._known.move_to_end(key)
            return known
        handles = self._known[key] = plan.align(names)
        self._events += len(handles)
        self._bytes += _bytes_of(key)
        while self._events > self._max_events or self._bytes > self._max_bytes:
            oldest, its_handles = self._known.popitem(last=False)
            self._events -= len(its_handles)
            self._bytes -= _bytes_of(oldest)
        return handles


def _bytes_of(key: tuple[Call, Names]) -> int:
    """What a kept sequence takes in memory, about and at most. The names are those of the table, which is there anyway."""
    call, names = key
    return _SEQUENCE_BYTES + sum(map(sys.getsizeof, call)) + _EVENT_BYTES * len(names)
