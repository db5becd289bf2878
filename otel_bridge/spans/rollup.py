"""
One inference with more spans than a trace may have, rolled up by operator.

Invariants
* Events with the same template (kind, chain, instruction, name) whose parents are rolled up together are one span. So all runs
  of an instruction in a loop are one, and what lies in them is rolled up below it.
* Of a span that stands for several events it says how many (`executorch.rollup.count`) and the sum of their true durations
  (`executorch.rollup.duration_ns`); it lies from the start of the first to the end of the last, so it contains its children.
* If that is still too much, the longest by that sum stay, under parents that stay, and the others are one span `(other)` under
  each parent. Its duration is that of the events which lay directly in the parent: what lies in those is in their time already.
* Each event counts once, in the row that bears it (`Counters.borne`); rows that are borne by others are silent.
* In a part of a split inference calls stay as they are, since other parts name them as parents, and nothing is `(other)`.
* What is said of one event alone (ticks, its own duration) is left out where a span stands for several. Metadata stand where
  all of them have the same; a counter is that of the last call.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from otel_bridge.model.events import EventKind
from otel_bridge.model.resolution import Resolution
from otel_bridge.spans import attributes as at
from otel_bridge.spans.compile import Template
from otel_bridge.spans.counters import Counters
from otel_bridge.spans.describe import Face
from otel_bridge.spans.encode import span_attributes, span_face
from otel_bridge.spans.folding import Groups, enclosing, gather_groups
from otel_bridge.spans.ids import ROOT_PLACE
from otel_bridge.spans.place import UNKNOWN_NS
from otel_bridge.spans.scene import Scene
from otel_bridge.spans.tree import NOWHERE

OTHER = "(other)"
_OTHER = Template(Face(OTHER, (), Resolution()), span_face(OTHER, ()))
_SAID_BYTES = 250
"""About what a roll-up says, and all that `(other)` takes."""
_MOST_NS = 2**63 - 1

Said = tuple[tuple[str, at.Value], ...]


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one trace: spans, and their bytes without what they share."""

    spans: int = 5_000
    size: int = 4_000_000


class _Columns:
    """The columns of a scene that a roll-up changes: copies."""

    def __init__(self, scene: Scene) -> None:
        timeline, counters = scene.timeline, scene.counters
        self.start, self.end = timeline.start.copy(), timeline.end.copy()
        self.moved, self.length = timeline.moved.copy(), timeline.length.copy()
        self.parent_place = scene.tree.parent_place.copy()
        self.template, self.decoded = scene.template.copy(), scene.decoded.copy()
        self.silent, self.borne, self.said = counters.silent.copy(), counters.borne.copy(), counters.said.copy()
        self.attributes = list(counters.attributes)


def roll_up(scene: Scene, blocks: NDArray[np.int64], sizes: NDArray[np.int64], limits: Limits) -> Scene:
    """The scene with these blocks rolled up; `sizes` is int64[n], about the bytes of each row's span. The given one stays."""
    columns = _Columns(scene)
    inferences, inference = list(scene.inferences), scene.inference.copy()
    for block in blocks.tolist():
        lone = _lone(scene, block)
        groups = gather_groups(scene, block, lone)
        if scene.batch.blocks[block].part is None:
            made = int(scene.tree.root[block] == NOWHERE)
            size = sizes[groups.first] + _SAID_BYTES
            groups.kept = _longest(groups, lone[groups.first], size, Limits(limits.spans - made, limits.size))
        _write(scene, groups, columns)
        events = int(scene.batch.bounds[block + 1] - scene.batch.bounds[block])
        same = scene.inference_at(block)
        inference[block] = len(inferences)
        inferences.append(replace(same, attributes=(*same.attributes, (at.ROLLUP_EVENTS, events))))
    said = tuple(columns.attributes)
    known = scene.counters.encoded
    timeline = replace(scene.timeline, start=columns.start, end=columns.end, moved=columns.moved, length=columns.length)
    return replace(
        scene,
        tree=replace(scene.tree, parent_place=columns.parent_place),
        timeline=timeline,
        inferences=tuple(inferences),
        inference=inference,
        templates=(*scene.templates, _OTHER),
        template=columns.template,
        decoded=columns.decoded,
        counters=Counters(
            columns.silent, columns.borne, columns.said, said, (*known, *map(span_attributes, said[len(known) :]))
        ),
    )


def _lone(scene: Scene, block: int) -> NDArray[np.bool_]:
    """bool[n]: rows that stay as they are: the root, and the calls of a part."""
    lone = np.zeros(len(scene.batch), np.bool_)
    if scene.tree.root[block] != NOWHERE:
        lone[scene.tree.root[block]] = True
    if scene.batch.blocks[block].part is not None:
        lone |= scene.batch.kind == EventKind.CALL
    return lone


def _longest(groups: Groups, root: NDArray[np.bool_], sizes: NDArray[np.int64], limits: Limits) -> NDArray[np.bool_]:
    """bool[g]: the groups that stay: `root`, and the most of the longest with which the spans are within the limits."""
    count = len(groups.first)
    if count <= limits.spans and sizes.sum() <= limits.size:
        return np.ones(count, np.bool_)
    order = np.lexsort((groups.first, -groups.known_ns, ~root))
    rank = np.empty(count, np.int64)
    rank[order] = np.arange(count)

    def stay(most: int) -> tuple[NDArray[np.bool_], bool]:
        kept = groups.closed(rank < most)
        others = len(np.unique(enclosing(groups.parent, kept)[~kept]))
        size = int(sizes[kept].sum()) + others * _SAID_BYTES
        return kept, int(kept.sum()) + others <= limits.spans and size <= limits.size

    low, high = int(root.any()), min(count, limits.spans) + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if stay(middle)[1] else (low, middle)
    return stay(low)[0]


def _write(scene: Scene, groups: Groups, columns: _Columns) -> None:
    """Make each group one row, its first in the log, which bears the others."""
    bearer_of, is_direct = groups.bearers()
    bearer = bearer_of[groups.number]
    order = np.argsort(bearer, kind="stable")
    rows, bearer, direct = groups.rows[order], bearer[order], is_direct[groups.number[order]]
    begin = np.flatnonzero(np.diff(bearer, prepend=-1))
    bearers = bearer[begin]
    columns.borne[bearers] = np.add.reduceat(1 + scene.counters.borne[rows], begin) - 1
    columns.silent[rows] = True
    columns.silent[bearers] = False
    columns.start[bearers] = np.minimum.reduceat(scene.timeline.start[rows], begin)
    columns.end[bearers] = np.maximum.reduceat(scene.timeline.end[rows], begin)
    is_other = ~groups.kept[groups.number[order[begin]]]
    above = groups.parent_bearer(bearers)
    under = above != NOWHERE
    columns.parent_place[bearers[under]] = scene.tree.place[above[under]]
    columns.parent_place[bearers[is_other & ~under]] = ROOT_PLACE

    changed = (np.diff(begin, append=len(rows)) > 1) | is_other
    columns.moved[bearers[changed]], columns.length[bearers[changed]] = False, UNKNOWN_NS
    columns.template[bearers[is_other]] = len(scene.templates)
    decoded = scene.decoded[rows]
    same = (np.minimum.reduceat(decoded, begin) == np.maximum.reduceat(decoded, begin)) & ~is_other
    columns.decoded[bearers[~same]] = -1
    said = _said(scene, rows, begin, direct, same)
    counted = scene.counters.said[rows]
    last = np.maximum.reduceat(np.where(counted >= 0, np.arange(len(rows)), -1), begin)
    for number in np.flatnonzero(changed).tolist():
        position = -1 if is_other[number] else int(last[number])
        columns.said[bearers[number]] = len(columns.attributes)
        counters = scene.counters.attributes[counted[position]] if position >= 0 else ()
        columns.attributes.append((*counters, *said[number]))


def _said(
    scene: Scene, rows: NDArray[np.int64], begin: NDArray[np.int64], direct: NDArray[np.bool_], same: NDArray[np.bool_]
) -> list[Said]:
    """What the roll-up of each stretch of rows says; `same`: its metadata are shown."""
    length = np.where(direct, scene.timeline.length[rows], 0)
    columns = (
        np.diff(begin, append=len(rows)).tolist(),
        _exact_sums(np.maximum(length, 0), begin),
        np.add.reduceat((length == UNKNOWN_NS).astype(np.int64), begin).tolist(),
        np.where(same, 0, np.add.reduceat((scene.decoded[rows] >= 0).astype(np.int64), begin)).tolist(),
    )
    told = []
    for count, total, untimed, left_out in zip(*columns, strict=True):
        one: list[tuple[str, at.Value]] = [(at.ROLLUP_COUNT, count), (at.ROLLUP_DURATION_NS, total)]
        if untimed:
            one.append((at.ROLLUP_UNTIMED, untimed))
        if left_out:
            one.append((at.ROLLUP_METADATA_LEFT_OUT, left_out))
        told.append(tuple(one))
    return told


def _exact_sums(values: NDArray[np.int64], begin: NDArray[np.int64]) -> list[int]:
    """Sums of stretches of non-negative numbers, in Python's integers; what no attribute can hold is shown as the most."""
    high, low = np.add.reduceat(values >> 32, begin), np.add.reduceat(values & 0xFFFFFFFF, begin)
    return [min((a << 32) + b, _MOST_NS) for a, b in zip(high.tolist(), low.tolist(), strict=True)]
