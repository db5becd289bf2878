"""
Counters: values that a delegate logs as if they were times, and that are none (bytes, counts, cycles of no known frequency).

Invariants
* A counter has no span and no length. It is an attribute of its delegate call, `executorch.delegate.counter.<key>`, an integer:
  the event's end minus its start, which is the value, since such events start at 0.
* Of several values of one key in one call the last is shown, and the key is told: whether they would add up, or are levels, no
  backend says.
* A cycle of known length is a time after all: the sender described the event's clock, or a converter did. Bytes never are.
* A counter whose call is not in the batch (it came in another part of the inference), or that has metadata, has a span of 1 ns
  that bears it.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from otel_bridge.backends.backend import Unit
from otel_bridge.model.events import EventBatch, EventKind
from otel_bridge.spans import attributes as at
from otel_bridge.spans.compile import Template
from otel_bridge.spans.encode import span_attributes
from otel_bridge.spans.place import UNKNOWN_NS, Timeline
from otel_bridge.spans.tree import NOWHERE, Tree

MAX_COUNTERS = 512
"""Of one call. A graph of the NPU may have hundreds of nodes, each with its cycles; they take some 70 bytes each."""

_INT64 = np.uint64(2**63)
_NEVER_TIME = (Unit.BYTES, Unit.COUNT)


@dataclass(frozen=True, slots=True, eq=False)
class Counters:
    """
    The counters of n rows.

    silent      bool[n]    rows that have no span: their values stand on their calls
    borne       int64[n]   how many of them each row bears
    said        int64[n]   index into `attributes` and `encoded`; -1: the row bears none
    attributes  what a row says of its counters
    encoded     the same as fragments of a serialised `Span`
    """

    silent: NDArray[np.bool_]
    borne: NDArray[np.int64]
    said: NDArray[np.int64]
    attributes: tuple[tuple[tuple[str, at.Value], ...], ...] = ()
    encoded: tuple[bytes, ...] = ()


def gather(
    batch: EventBatch, tree: Tree, timeline: Timeline, templates: list[Template], template: NDArray[np.int64]
) -> Counters:
    """The counters of a batch; in `timeline` they lose their lengths, and those without a span that they were moved."""
    n = len(batch)
    found = Counters(np.zeros(n, np.bool_), np.zeros(n, np.int64), np.full(n, -1))
    faces = [each.face for each in templates]
    keys = sorted({face.counter for face in faces if face.counter})
    if not keys:
        return found
    key = np.array([keys.index(face.counter) if face.counter else -1 for face in faces], np.int64)[template]
    never_time = np.array([face.timing.unit in _NEVER_TIME for face in faces], np.bool_)[template]
    rows = np.flatnonzero((key >= 0) & (never_time | (timeline.length == UNKNOWN_NS)))
    if not len(rows):
        return found
    timeline.length[rows] = UNKNOWN_NS
    timeline.end[rows] = timeline.start[rows] + 1
    call = tree.parent[rows]
    at_call = (call != NOWHERE) & (batch.kind[call] == EventKind.CALL) & (batch.metadata[rows] == 0)
    found.silent[rows] = at_call
    timeline.moved[rows[at_call]] = False  # what is not shown lies nowhere
    bearer = np.where(at_call, call, rows)
    np.add.at(found.borne, bearer[at_call], 1)

    order = np.lexsort((key[rows], bearer))
    rows, bearer = rows[order], bearer[order]
    first = np.flatnonzero((np.diff(bearer, prepend=-1) != 0) | (np.diff(key[rows], prepend=-1) != 0))
    last = np.append(first[1:], len(rows)) - 1
    values = batch.duration[rows[last]]
    repeated = (last > first).tolist()
    bearers, begins = np.unique(bearer[last], return_index=True)
    found.said[bearers] = np.arange(len(bearers))
    ends = [*begins[1:].tolist(), len(last)]
    fits = (values < _INT64).tolist()
    names = [keys[number] for number in key[rows[last]].tolist()]
    shown = values.tolist()
    attributes = tuple(
        _say(names[begin:end], shown[begin:end], fits[begin:end], repeated[begin:end])
        for begin, end in zip(begins.tolist(), ends, strict=True)
    )
    return Counters(found.silent, found.borne, found.said, attributes, tuple(map(span_attributes, attributes)))


def _say(names: list[str], values: list[int], fits: list[bool], repeated: list[bool]) -> tuple[tuple[str, at.Value], ...]:
    fitting = [(at.COUNTER_PREFIX + name, value) for name, value, fit in zip(names, values, fits, strict=True) if fit]
    said: list[tuple[str, at.Value]] = list(fitting[:MAX_COUNTERS])
    again = tuple(name for name, is_repeated in zip(names, repeated, strict=True) if is_repeated)
    if again:
        said.append((at.COUNTERS_REPEATED, again[:MAX_COUNTERS]))
    if len(names) > len(fitting[:MAX_COUNTERS]):
        said.append((at.COUNTERS_LEFT_OUT, len(names) - len(fitting[:MAX_COUNTERS])))
    return tuple(said)
