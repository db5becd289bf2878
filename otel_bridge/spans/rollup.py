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
* What is said of one event alone (ticks, its own duration) is left out where a span stands for several. Metadata stand where all
  of them have the same; a counter is that of the last call.
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
from otel_bridge.spans.place import UNKNOWN_NS, Timeline
from otel_bridge.spans.scene import Scene
from otel_bridge.spans.tree import NOWHERE

OTHER = "(other)"
_OTHER = Template(Face(OTHER, (), Resolution()), span_face(OTHER, ()))
_SAID_BYTES = 250
"""About what a roll-up says, and all that `(other)` takes."""
_MOST_NS = 2**63 - 1


@dataclass(slots=True)
class _Columns:
    """The columns of a scene that a roll-up changes: copies."""

    start: NDArray[np.int64]
    end: NDArray[np.int64]
    moved: NDArray[np.bool_]
    length: NDArray[np.int64]
    parent_place: NDArray[np.uint64]
    template: NDArray[np.int64]
    decoded: NDArray[np.int64]
    silent: NDArray[np.bool_]
    borne: NDArray[np.int64]
    said: NDArray[np.int64]
    attributes: list[tuple[tuple[str, at.Value], ...]]

    @staticmethod
    def of(scene: Scene) -> "_Columns":
        timeline, counters = scene.timeline, scene.counters
        copied = [timeline.start, timeline.end, timeline.moved, timeline.length, scene.tree.parent_place, scene.template]
        copied += [scene.decoded, counters.silent, counters.borne, counters.said]
        return _Columns(*(column.copy() for column in copied), list(counters.attributes))


def roll_up(scene: Scene, blocks: NDArray[np.int64], sizes: NDArray[np.int64], max_spans: int, max_bytes: int) -> Scene:
    """The scene with these blocks rolled up; `sizes` is int64[n], about the bytes of each row's span. The given one stays."""
    columns = _Columns.of(scene)
    inferences, inference = list(scene.inferences), scene.inference.copy()
    for block in blocks.tolist():
        lone = _lone(scene, block)
        groups = gather_groups(scene, block, lone)
        _fold(scene, groups, block, lone[groups.first], sizes[groups.first] + _SAID_BYTES, max_spans, max_bytes)
        _write(scene, groups, columns)
        events = int(scene.batch.bounds[block + 1] - scene.batch.bounds[block])
        same = scene.inference_at(block)
        inference[block] = len(inferences)
        inferences.append(replace(same, attributes=(*same.attributes, (at.ROLLUP_EVENTS, events))))
    said = tuple(columns.attributes)
    encoded = (*scene.counters.encoded, *map(span_attributes, said[len(scene.counters.encoded) :]))
    return replace(
        scene,
        tree=replace(scene.tree, parent_place=columns.parent_place),
        timeline=Timeline(
            columns.start,
            columns.end,
            scene.timeline.root_start,
            scene.timeline.root_end,
            columns.moved,
            columns.length,
        ),
        inferences=tuple(inferences),
        inference=inference,
        templates=(*scene.templates, _OTHER),
        template=columns.template,
        decoded=columns.decoded,
        counters=Counters(columns.silent, columns.borne, columns.said, said, encoded),
    )


def _lone(scene: Scene, block: int) -> NDArray[np.bool_]:
    """bool[n]: rows that stay as they are: the root, and the calls of a part."""
    lone = np.zeros(len(scene.batch), np.bool_)
    if scene.tree.root[block] != NOWHERE:
        lone[scene.tree.root[block]] = True
    if scene.batch.blocks[block].part is not None:
        lone |= scene.batch.kind == EventKind.CALL
    return lone


def _fold(
    scene: Scene,
    groups: Groups,
    block: int,
    lone: NDArray[np.bool_],
    sizes: NDArray[np.int64],
    max_spans: int,
    max_bytes: int,
) -> None:
    """Choose which groups stay: the most of the longest with which the block is within its limits."""
    made = int(scene.tree.root[block] == NOWHERE)
    count = len(groups.first)
    if scene.batch.blocks[block].part is not None or (count + made <= max_spans and sizes.sum() <= max_bytes):
        return
    order = np.lexsort((groups.first, -groups.known_ns, ~lone))
    rank = np.empty(count, np.int64)
    rank[order] = np.arange(count)

    def stay(longest: int) -> tuple[NDArray[np.bool_], bool]:
        kept = groups.closed(rank < longest)
        others = len(np.unique(enclosing(groups.parent, kept)[~kept]))
        total = int(sizes[kept].sum()) + others * _SAID_BYTES
        return kept, int(kept.sum()) + others + made <= max_spans and total <= max_bytes

    low, high = int(lone.any()), min(count, max_spans) + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if stay(middle)[1] else (low, middle)
    groups.kept = stay(low)[0]


def _write(scene: Scene, groups: Groups, columns: _Columns) -> None:
    """Make each group one row, its first in the log, which bears the others."""
    bearer_of, is_direct = groups.bearers()
    rows, place = groups.rows, scene.tree.place
    bearer = bearer_of[groups.number]
    order = np.argsort(bearer, kind="stable")
    rows, bearer, direct = rows[order], bearer[order], is_direct[groups.number][order]
    begin = np.flatnonzero(np.diff(bearer, prepend=-1))
    bearers, counts = bearer[begin], np.diff(begin, append=len(rows))
    columns.borne[bearers] = np.add.reduceat(1 + scene.counters.borne[rows], begin) - 1
    columns.silent[rows] = True
    columns.silent[bearers] = False
    columns.start[bearers] = np.minimum.reduceat(scene.timeline.start[rows], begin)
    columns.end[bearers] = np.maximum.reduceat(scene.timeline.end[rows], begin)
    other = ~groups.kept[groups.number][order][begin]
    above = groups.parent_bearer(bearers)
    has_parent = above != NOWHERE
    columns.parent_place[bearers[has_parent]] = place[above[has_parent]]
    columns.parent_place[bearers[other & ~has_parent]] = ROOT_PLACE

    length = np.where(direct, scene.timeline.length[rows], 0)
    total = _exact_sums(np.maximum(length, 0), begin)
    unknown = np.add.reduceat((length == UNKNOWN_NS).astype(np.int64), begin)
    decoded = scene.decoded[rows]
    same = np.minimum.reduceat(decoded, begin) == np.maximum.reduceat(decoded, begin)
    left_out = np.where(same & ~other, 0, np.add.reduceat((decoded >= 0).astype(np.int64), begin))
    last_counter = np.maximum.reduceat(np.where(scene.counters.said[rows] >= 0, np.arange(len(rows)), -1), begin)
    for number in np.flatnonzero((counts > 1) | other).tolist():
        row, is_other, last = int(bearers[number]), bool(other[number]), int(last_counter[number])
        counted = () if is_other or last < 0 else scene.counters.attributes[int(scene.counters.said[rows[last]])]
        told: list[tuple[str, at.Value]] = [(at.ROLLUP_COUNT, int(counts[number]))]
        told.append((at.ROLLUP_DURATION_NS, total[number]))
        if unknown[number]:
            told.append((at.ROLLUP_UNTIMED, int(unknown[number])))
        if left_out[number]:
            told.append((at.ROLLUP_METADATA_LEFT_OUT, int(left_out[number])))
        columns.said[row] = len(columns.attributes)
        columns.attributes.append((*counted, *told))
        columns.moved[row], columns.length[row] = False, UNKNOWN_NS
        if is_other:
            columns.template[row] = len(scene.templates)
        if is_other or not same[number]:
            columns.decoded[row] = -1


def _exact_sums(values: NDArray[np.int64], begin: NDArray[np.int64]) -> list[int]:
    """Sums of stretches of non-negative numbers, in Python's integers; what no attribute can hold is shown as the most."""
    high, low = np.add.reduceat(values >> 32, begin), np.add.reduceat(values & 0xFFFFFFFF, begin)
    return [min((a << 32) + b, _MOST_NS) for a, b in zip(high.tolist(), low.tolist(), strict=True)]
