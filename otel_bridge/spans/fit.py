"""
Traces of a size that back ends take (Tempo refuses what is over 5 MB in a trace; viewers get slow long before).

Invariants
* A trace that the bridge makes has at most `Limits.spans` spans and about `Limits.size` bytes: an inference that has more is
  rolled up (spans/rollup.py). A part of a split inference is rolled up for itself, within its calls alone.
* In an app's trace one request has no more than that: the inferences beyond, in the order of the request, are traces of their
  own with a link to the app's span. A part of a split inference stays, since other parts name its spans as parents. What the
  app itself or other requests add to the trace is not known here.
* What is done follows from the request, whatever is resolved with it. A request that is resolved in several passes is one, by
  what `Taken` remembers.
* Nothing is lost: each event still counts once (`Counters.borne`).
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from otel_bridge.spans.inference import apart
from otel_bridge.spans.rollup import Limits, roll_up
from otel_bridge.spans.scene import Scene
from otel_bridge.spans.tree import NOWHERE

_HEAD_BYTES = 90
_MOVED_BYTES = 170
"""About what the ids and times of a span take, and the ticks of one that does not lie where they say."""

LIMITS = Limits()

Taken = dict[tuple[int, bytes], tuple[int, int]]
"""Spans and bytes of requests (by `id` of their `Stream`, which is alive as long as this) in the app's traces (by trace id)."""


def fit(scene: Scene, taken: Taken | None = None, limits: Limits = LIMITS, *, sizes: NDArray[np.int64] | None = None) -> Scene:
    """
    The scene whose traces are within the limits; the given one stays.

    `taken` is what the requests' earlier passes took, and is added to. `sizes` are those of the scene, where they are known.
    """
    sizes = sizes_of(scene) if sizes is None else sizes
    spans, size = _measure(scene, sizes)
    large = (spans > limits.spans) | (size > limits.size)
    if large.any():
        scene = roll_up(scene, np.flatnonzero(large), sizes, limits)
        spans, size = _measure(scene, sizes_of(scene))
    return _leave_full_traces(scene, spans, size, {} if taken is None else taken, limits)


def sizes_of(scene: Scene) -> NDArray[np.int64]:
    """int64[n]: about the bytes of each row's span."""
    template = np.array([len(each.encoded) for each in scene.templates] or [0], np.int64)
    size = _HEAD_BYTES + template[scene.template] + _MOVED_BYTES * scene.timeline.moved
    if len(scene.metadata):
        size += scene.metadata.sizes[scene.decoded]
    if scene.counters.encoded:
        size += np.array([*map(len, scene.counters.encoded), 0], np.int64)[scene.counters.said]  # -1 is the 0 at the end
    return size


def _measure(scene: Scene, sizes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Of each block: spans, and about their bytes."""
    bounds, silent = scene.batch.bounds, scene.counters.silent
    before = np.zeros(len(sizes) + 1, np.int64)
    spans = bounds[1:] - bounds[:-1]
    if silent.any():
        sizes = np.where(silent, 0, sizes)
        spans = spans - np.bincount(scene.tree.block[silent], minlength=len(spans))
    sizes.cumsum(out=before[1:])
    made = scene.has_root_span & (scene.tree.root == NOWHERE)
    return spans + made, before[bounds[1:]] - before[bounds[:-1]]


def _leave_full_traces(scene: Scene, spans: NDArray[np.int64], size: NDArray[np.int64], taken: Taken, limits: Limits) -> Scene:
    """The inferences that are beyond the limits of the app's trace as traces of their own."""
    in_app = np.array([bool(each.trace_id) for each in scene.inferences], np.bool_)
    if not in_app.any():
        return scene
    inferences, inference = list(scene.inferences), scene.inference.copy()
    for block in np.flatnonzero(in_app[scene.inference]).tolist():
        joined, said = scene.inference_at(block), scene.batch.blocks[block]
        key = id(scene.batch.streams[said.stream]), joined.trace_id
        before = taken.get(key, (0, 0))
        after = taken[key] = before[0] + int(spans[block]), before[1] + int(size[block])
        if (after[0] > limits.spans or after[1] > limits.size) and said.part is None:
            inference[block] = len(inferences)
            inferences.append(apart(joined))
    if len(inferences) == len(scene.inferences):
        return scene
    return replace(scene, inferences=tuple(inferences), inference=inference)
