"""
The rule `xnnpack.node_order`: which node an event of XNNPACK is of, by the order of nodes and events alone.

XNNPACK's debug handle map is empty, but its payload in the `.pte` lists the nodes with their handles (xnnpack_payload.py), and
the delegate logs one event for each operator, in the order of the nodes, as `NAME #N`: N counts equal names within one call
(backends/xnnpack/runtime/profiling/XNNProfiler.cpp, `submit_trace`).

Invariants
* The events of one whole call, or nothing: where the numbers do not count from 1, some are missing or of another call.
* A node without a handle gives none: layout transposes that ExecuTorch puts in are of no operator. Nor does a table look-up,
  which stands for several nodes.
"""

import re
from collections import OrderedDict
from collections.abc import Hashable, Sequence

from otel_bridge.mapping.align import align
from otel_bridge.mapping.xnnpack_kinds import LOOK_UP, step_of
from otel_bridge.model.events import Identifier
from otel_bridge.model.resolution import DebugHandle

RULE = "xnnpack.node_order"

_IDENTIFIER = re.compile(r"(.+) #([1-9][0-9]{0,8})\Z", re.ASCII | re.DOTALL)

Node = tuple[str, DebugHandle]
"""Kind and debug handle; 0: it has none."""


def handles_of(nodes: Sequence[Node], identifiers: Sequence[Identifier]) -> tuple[DebugHandle, ...]:
    """The debug handle of each event of one call, in the order in which it logged them; 0 where none is certain."""
    names = _names(identifiers)
    if names is None:
        return (0,) * len(identifiers)
    found = align([step_of(kind) for kind, _ in nodes], names)
    return tuple(0 if index is None or name == LOOK_UP else nodes[index][1] for index, name in zip(found, names, strict=True))


def _names(identifiers: Sequence[Identifier]) -> list[str] | None:
    """The operators that the identifiers name, without data types and microkernels; None: they are not those of one call."""
    counted: dict[str, int] = {}
    names = []
    for identifier in identifiers:
        match = _IDENTIFIER.match(identifier) if isinstance(identifier, str) else None
        if match is None:
            return None
        counted[match[1]] = counted.get(match[1], 0) + 1
        if int(match[2]) != counted[match[1]]:
            return None
        names.append(match[1].partition(" (")[0])
    return names


class Orders:
    """Handles of sequences of identifiers, worked out once each; at most `max_events` are kept, the last used ones."""

    def __init__(self, max_events: int) -> None:
        self._max_events = max_events
        self._events = 0
        self._known: OrderedDict[Hashable, tuple[DebugHandle, ...]] = OrderedDict()

    def get(self, call: Hashable, nodes: Sequence[Node], identifiers: tuple[Identifier, ...]) -> tuple[DebugHandle, ...]:
        """`handles_of(nodes, identifiers)`; `call` names the nodes: equal calls have equal nodes."""
        key = call, identifiers
        known = self._known.get(key)
        if known is not None:
            self._known.move_to_end(key)
            return known
        handles = self._known[key] = handles_of(nodes, identifiers)
        self._events += len(handles)
        while self._events > self._max_events and len(self._known) > 1:
            self._events -= len(self._known.popitem(last=False)[1])
        return handles
