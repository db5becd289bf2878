"""
`inspect`: one row for each thing that a file's events are about.

Invariants
* A row is one (method or block, instruction, kind, name or identifier, what that stands for), over all inferences of the file.
  Every repeat counts, also those within one inference.
* Durations are true ones, in nanoseconds by the clock's ratio: not those of the picture. Where it is not known what the ticks
  of a delegate are, the ratio stands all the same, and `time_quality` tells.
* Shares are of the time of the inferences: the events that enclose a method's blocks, 100 % together. Rows nest (a delegate
  event lies in its call), so shares of all rows add up to more.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from otel_bridge.backends.backend import TimeQuality
from otel_bridge.clock.convert import duration_ns
from otel_bridge.model.events import NO_INSTRUCTION, BlockKind, EventKind, Identifier
from otel_bridge.model.resolution import Resolution
from otel_bridge.spans.distinct import distinct
from otel_bridge.spans.place import UNKNOWN_NS
from otel_bridge.spans.scene import Scene
from otel_bridge.spans.tree import NOWHERE


@dataclass(frozen=True, slots=True)
class Row:
    """
    One row. Durations in nanoseconds, percentiles by linear interpolation (as ExecuTorch's Inspector has them).

    subject     method that ran, or the block's name where it is not known
    instruction None: outside any instruction
    time_quality  what the durations of a delegate's events are worth; None for the runtime's own, which are measured
    share       of the time of the method's inferences, 1 for all of it; None where nothing encloses them
    """

    subject: str
    instruction: int | None
    kind: EventKind
    name: Identifier
    count: int
    min_ns: float
    p50_ns: float
    p90_ns: float
    p99_ns: float
    max_ns: float
    mean_ns: float
    share: float | None
    resolution: Resolution
    time_quality: TimeQuality | None

    @property
    def is_delegated(self) -> bool:
        """Whether a delegate logged it, so that `name` is a delegate debug identifier."""
        return self.kind is EventKind.DELEGATE


def tabulate(scene: Scene) -> list[Row]:
    """The rows of a scene, in the order in which they first occur."""
    batch, tree = scene.batch, scene.tree
    if not len(batch):
        return []
    subjects = [scene.inference_at(index).method or block.name for index, block in enumerate(batch.blocks)]
    numbers = {subject: number for number, subject in enumerate(dict.fromkeys(subjects))}
    subject = np.array([numbers[s] for s in subjects], np.int64)[tree.block]
    meanings: dict[Resolution, int] = {}
    meaning = np.array([meanings.setdefault(each.face.resolution, len(meanings)) for each in scene.templates], np.int64)
    event = [batch.instruction.astype(np.int64) + 1, batch.kind.astype(np.int64), batch.name.astype(np.int64)]
    columns = [subject, *event, meaning[scene.template]]
    first, group = distinct(columns)
    times = _durations(scene)
    totals = _enclosing_time(scene, subject, len(numbers), times)
    members = _members(group, len(first))
    rows = []
    for number in np.argsort(first, kind="stable").tolist():
        row = int(first[number])
        total = int(totals[subject[row]])
        rows.append(_row(scene, row, subjects[tree.block[row]], times[members[number]], total))
    return rows


def _durations(scene: Scene) -> NDArray[np.int64]:
    """True durations; ticks by the ratio where nobody knows what a tick is; 0 for what is no time."""
    is_counter = np.array([bool(each.face.counter) for each in scene.templates], np.bool_)[scene.template]
    unknown_ns = np.where(is_counter, 0, duration_ns(scene.batch))
    return np.where(scene.timeline.length == UNKNOWN_NS, unknown_ns, scene.timeline.length)


def _row(scene: Scene, row: int, subject: str, times: NDArray[np.int64], total: int) -> Row:
    batch = scene.batch
    instruction = int(batch.instruction[row])
    face = scene.templates[scene.template[row]].face
    p50, p90, p99 = np.percentile(times, (50, 90, 99)).tolist()
    return Row(
        subject=subject,
        instruction=None if instruction == NO_INSTRUCTION else instruction,
        kind=EventKind(int(batch.kind[row])),
        name=batch.names[batch.name[row]],
        count=len(times),
        min_ns=int(times.min()),
        p50_ns=p50,
        p90_ns=p90,
        p99_ns=p99,
        max_ns=int(times.max()),
        mean_ns=float(times.mean()),
        share=float(times.sum()) / total if total else None,
        resolution=face.resolution,
        time_quality=face.quality if batch.kind[row] == EventKind.DELEGATE else None,
    )


def _enclosing_time(scene: Scene, subject: NDArray[np.int64], subjects: int, times: NDArray[np.int64]) -> NDArray[np.int64]:
    totals = np.zeros(subjects, np.int64)
    for block in np.flatnonzero(scene.tree.root != NOWHERE).tolist():
        if scene.batch.blocks[block].kind is not BlockKind.OTHER:
            row = scene.tree.root[block]
            totals[subject[row]] += times[row]
    return totals


def _members(group: NDArray[np.int64], groups: int) -> list[NDArray[np.int64]]:
    order = np.argsort(group, kind="stable")
    return np.split(order, np.cumsum(np.bincount(group, minlength=groups))[:-1])
