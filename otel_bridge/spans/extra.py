"""
Attributes of a span that depend on the one event: where it really lay, and how long it really was.

Only few events have any: those that were moved, and those of length 0. Both ways to build spans take them from here.
"""

from otel_bridge.backends.facts import TimeQuality
from otel_bridge.spans import attributes as at
from otel_bridge.spans.scene import Scene

_INSTANT: tuple[tuple[str, at.Value], ...] = ((at.TIME_DURATION_NS, 0),)

_TRUSTED = frozenset({TimeQuality.MEASURED, TimeQuality.LAID_OUT, TimeQuality.ESTIMATED})


def own_attributes(scene: Scene, row: int) -> tuple[tuple[str, at.Value], ...]:
    """All that the row's span says beside its face: decoded metadata, then what only this row has."""
    decoded = int(scene.decoded[row])
    return (scene.metadata[decoded].attributes if decoded >= 0 else ()) + extra_attributes(scene, row)


def extra_attributes(scene: Scene, row: int) -> tuple[tuple[str, at.Value], ...]:
    """The attributes that only this row has: decoded metadata excepted, which many rows share."""
    if scene.timeline.moved[row]:
        return _moved(scene, row)
    return _INSTANT if scene.timeline.length[row] == 0 else ()


def _moved(scene: Scene, row: int) -> tuple[tuple[str, at.Value], ...]:
    """Of an event that does not lie where its ticks say: the ticks, and the true duration where the clock is known."""
    batch = scene.batch
    start = int(batch.start[row])
    end = (start + int(batch.duration[row])) % 2**64
    said: list[tuple[str, at.Value]] = [
        (at.TIME_START_TICKS, str(start)),
        (at.TIME_END_TICKS, str(end)),
        (at.TIME_UNIT, "ticks"),
    ]
    true = int(scene.timeline.length[row])
    shown = int(scene.timeline.end[row] - scene.timeline.start[row])
    if scene.templates[scene.template[row]].face.quality in _TRUSTED and shown != true:
        said.append((at.TIME_DURATION_NS, true))
    return tuple(said)
