"""
`mapping check`: how much of what delegates logged the mapping covers.

Invariants
* Covered is what the mapping can say something of: `exact`, `derived` and `delegate`; strictly, without `delegate`.
* A phase is no operator: it stands outside, in no share.
* Times are true ones. What is no time (cycles), or on a clock whose tick is not known, counts as an event and has none.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

import numpy as np

from otel_bridge.model.events import NO_INSTRUCTION, EventKind, Identifier
from otel_bridge.model.resolution import Status
from otel_bridge.report.shares import add_up
from otel_bridge.spans.distinct import distinct
from otel_bridge.spans.scene import Scene

COVERED = frozenset({Status.EXACT, Status.DERIVED, Status.DELEGATE})
EXACT = COVERED - {Status.DELEGATE}


@dataclass(frozen=True, slots=True)
class Place:
    """Where an identifier was logged, and what became of it; None: not known, or outside any instruction."""

    method: str | None
    instruction: int | None
    delegate: str | None
    identifier: Identifier
    status: Status


@dataclass(frozen=True, slots=True)
class Amount:
    """A number of events, and their time in nanoseconds."""

    events: int = 0
    time_ns: int = 0

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(self.events + other.events, self.time_ns + other.time_ns)


@dataclass(frozen=True, slots=True)
class Coverage:
    """The delegate events of some files, by place."""

    places: dict[Place, Amount]

    def of(self, statuses: Iterable[Status]) -> Amount:
        """All events of these statuses."""
        chosen = frozenset(statuses)
        return reduce(Amount.__add__, (amount for place, amount in self.places.items() if place.status in chosen), Amount())

    @property
    def counted(self) -> Amount:
        """All events but phases."""
        return self.of(set(Status) - {Status.PHASE})

    def shares(self, covered: frozenset[Status]) -> tuple[float, float | None]:
        """
        The share of events and the share of time that is covered; the latter None where no event took any.

        Raises `ValueError` where there is no event but phases.
        """
        part, whole = self.of(covered), self.counted
        if not whole.events:
            raise ValueError("there are no delegate events to be covered")
        return part.events / whole.events, part.time_ns / whole.time_ns if whole.time_ns else None

    def missing(self, covered: frozenset[Status]) -> list[tuple[Place, Amount]]:
        """The identifiers that are not covered, those with most events first."""
        return sorted(
            ((place, amount) for place, amount in self.places.items() if place.status not in covered | {Status.PHASE}),
            key=lambda item: (-item[1].events, item[0].instruction or 0, str(item[0].identifier)),
        )


def measure(scene: Scene) -> Coverage:
    """The delegate events of a scene."""
    batch = scene.batch
    rows = np.flatnonzero(batch.kind == EventKind.DELEGATE)
    if not len(rows):
        return Coverage({})
    first, group = distinct([scene.template[rows]])
    is_counter = np.array([bool(template.face.counter) for template in scene.templates])[scene.template[rows]]
    times = add_up(np.where(is_counter, 0, np.maximum(scene.timeline.length[rows], 0)), group, len(first))
    places: dict[Place, Amount] = {}
    for row, events, time_ns in zip(rows[first].tolist(), np.bincount(group).tolist(), times, strict=True):
        place = _place(scene, row)
        places[place] = places.get(place, Amount()) + Amount(events, time_ns)
    return Coverage(places)


def together(parts: Iterable[Coverage]) -> Coverage:
    """The coverage of several files as one."""
    places: dict[Place, Amount] = {}
    for part in parts:
        for place, amount in part.places.items():
            places[place] = places.get(place, Amount()) + amount
    return Coverage(places)


def _place(scene: Scene, row: int) -> Place:
    batch = scene.batch
    resolution = scene.templates[scene.template[row]].face.resolution
    instruction = int(batch.instruction[row])
    return Place(
        method=scene.inference_at(scene.tree.block[row]).method,
        instruction=None if instruction == NO_INSTRUCTION else instruction,
        delegate=resolution.delegate,
        identifier=batch.names[batch.name[row]],
        status=Status(resolution.status),  # a delegate event always has one (mapping/resolve.py)
    )
