"""
The stage that times a batch: what clocks, backends and converters say of when events happened, and where that puts them.

Invariants
* Converters come first, since they read ticks; what they answered is not read again by a backend's rule.
* Delegate events are placed in their calls before they are nested in each other: a call's bounds are the surer ones.
"""

import numpy as np
from numpy.typing import NDArray

from otel_bridge.backends.backend import TimeQuality
from otel_bridge.clock.convert import to_unix_ns
from otel_bridge.clock.converters import Converters
from otel_bridge.clock.timings import apply_timings
from otel_bridge.model.events import EventBatch
from otel_bridge.spans.compile import Template, Templates
from otel_bridge.spans.place import CODES, Timeline, axis_of, place
from otel_bridge.spans.tree import Tree, nest


def time_events(
    batch: EventBatch,
    tree: Tree,
    templates: list[Template],
    template: NDArray[np.int64],
    *,
    converters: Converters,
    compiled: Templates,
) -> tuple[Tree, Timeline, tuple[int, ...]]:
    """
    The tree with delegate events nested, where each span lies, and per stream what was added to its times (`Times.moved_ns`).

    Rows whose times turn out to be worth something else than their template says get another: both columns are changed.
    """
    times, done = to_unix_ns(batch), np.zeros(len(batch), np.bool_)
    if converters:
        delegates = [each.face.resolution.delegate for each in templates]
        times, done, failed = converters.apply(batch, times, delegates, template)
        _requalify(failed, TimeQuality.UNKNOWN, templates, template, compiled)
        unknown = done & (_qualities(templates, template) == CODES[TimeQuality.UNKNOWN])
        _requalify(unknown, TimeQuality.FOREIGN_CLOCK, templates, template, compiled)
    times = apply_timings(batch, times, [each.face.timing for each in templates], template, done)
    quality = _qualities(templates, template)
    timeline = place(batch, tree, times, quality)
    return nest(batch, tree, times.start, times.end, axis_of(batch, quality)), timeline, times.moved_ns


def _qualities(templates: list[Template], template: NDArray[np.int64]) -> NDArray[np.int64]:
    """int64[n]: what the times of each row are worth (`CODES`)."""
    timings = [each.face.timing for each in templates]
    code = {id(each): each for each in timings}  # few objects; to hash a member of an Enum takes long
    codes = {number: CODES[each.quality] for number, each in code.items()}
    return np.array([codes[id(each)] for each in timings] or [0], np.int64)[template]


def _requalify(
    chosen: NDArray[np.bool_],
    quality: TimeQuality,
    templates: list[Template],
    template: NDArray[np.int64],
    compiled: Templates,
) -> None:
    """Give these rows templates that say what their times are worth."""
    rows = chosen.nonzero()[0]
    before = template[rows]
    for number in np.unique(before).tolist():
        template[rows[before == number]] = len(templates)
        templates.append(compiled.requalify(templates[number], quality))
