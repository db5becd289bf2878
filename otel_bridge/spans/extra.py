"""
Attributes of a span that depend on the one event: where it really lay, and how long it really was.

Those that were moved have some, and those of length 0: for some backends that is every event. Both ways to build spans take
them from here; the fast one as bytes (`moved_tails`), which the tests compare.
"""

import numpy as np
from numpy.typing import NDArray

from otel_bridge.backends.backend import Unit
from otel_bridge.clock.convert import HOST
from otel_bridge.spans import attributes as at
from otel_bridge.spans.encode import span_attributes
from otel_bridge.spans.place import UNKNOWN_NS
from otel_bridge.spans.scene import Scene

INSTANT: tuple[tuple[str, at.Value], ...] = ((at.TIME_DURATION_NS, 0),)
"""Of an event without length that was not moved."""
_MOST_DIGITS = 20
"""Of a number of 64 bits."""


def own_attributes(scene: Scene, row: int) -> tuple[tuple[str, at.Value], ...]:
    """All that the row's span says beside its face: decoded metadata, counters, then what only this row has."""
    decoded, counted = int(scene.decoded[row]), int(scene.counters.said[row])
    return (
        (scene.metadata[decoded].attributes if decoded >= 0 else ())
        + (scene.counters.attributes[counted] if counted >= 0 else ())
        + extra_attributes(scene, row)
    )


def extra_attributes(scene: Scene, row: int) -> tuple[tuple[str, at.Value], ...]:
    """The attributes that only this row has: decoded metadata excepted, which many rows share."""
    if not scene.timeline.moved[row]:
        return INSTANT if scene.timeline.length[row] == 0 else ()
    start, duration = int(scene.batch.start[row]), int(scene.batch.duration[row])
    ticks = ((at.TIME_START_TICKS, str(start)), (at.TIME_END_TICKS, str((start + duration) % 2**64)))
    true = int(scene.timeline.length[row])
    shown = int(scene.timeline.end[row] - scene.timeline.start[row])
    stream = scene.batch.blocks[int(scene.tree.block[row])].stream
    unsaid = true in (shown, UNKNOWN_NS)
    return ticks + _about_ticks(
        scene, stream, int(scene.batch.clock[row]), int(scene.template[row]), UNKNOWN_NS if unsaid else true
    )


def moved_tails(scene: Scene, rows: NDArray[np.int64]) -> list[bytes]:
    """`extra_attributes` of rows that were moved, each as a fragment of a serialised `Span`, made a column at a time."""
    if not len(rows):
        return []
    batch, timeline = scene.batch, scene.timeline
    start = batch.start[rows]
    shown, true = timeline.end[rows] - timeline.start[rows], timeline.length[rows]
    said = np.where(true == shown, UNKNOWN_NS, true)
    stream = np.array([block.stream for block in batch.blocks], np.int64)[scene.tree.block[rows]]
    about = list(
        zip(stream.tolist(), batch.clock[rows].tolist(), scene.template[rows].tolist(), said.tolist(), strict=True)
    )  # fmt: skip
    encoded = {each: span_attributes(_about_ticks(scene, *each)) for each in set(about)}
    columns = (
        _encode_ticks(at.TIME_START_TICKS, start),
        _encode_ticks(at.TIME_END_TICKS, start + batch.duration[rows]),
        map(encoded.__getitem__, about),
    )
    return list(map(b"".join, zip(*columns, strict=True)))


def _about_ticks(scene: Scene, stream: int, clock: int, template: int, true_ns: int) -> tuple[tuple[str, at.Value], ...]:
    """What stands beside the ticks: unit, clock, and the true duration where it is known and not shown."""
    unit = scene.templates[template].face.timing.unit if clock == HOST else Unit.TICKS
    said: list[tuple[str, at.Value]] = [(at.TIME_UNIT, unit.value)]
    name = scene.batch.streams[stream].clocks[clock].name
    if clock != HOST and name:
        said.append((at.TIME_CLOCK, name))
    if true_ns != UNKNOWN_NS:
        said.append((at.TIME_DURATION_NS, true_ns))
    return tuple(said)


def _encode_ticks(key: str, ticks: NDArray[np.uint64]) -> list[bytes]:
    """An attribute whose value is a decimal, for each row: its head depends on the number of digits alone."""
    heads = [span_attributes([(key, "0" * digits)])[: -digits or None] for digits in range(_MOST_DIGITS + 1)]
    return [heads[len(text)] + text for text in ticks.astype(f"S{_MOST_DIGITS}").tolist()]
