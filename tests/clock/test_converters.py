"""Converters of delegates' times: the Inspector's, and ours."""

import math
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from support.mappings import mapping_of
from support.scenes import NOON_NS, STREAM, batch_of, call, delegated, execute, runtime, stages_with

from otel_bridge.clock.converters import NONSENSE, RAISED, Converters, Unconverted
from otel_bridge.errors import ConfigError
from otel_bridge.model.events import Identifier
from otel_bridge.model.stream import Clock
from otel_bridge.spans import attributes as at
from otel_bridge.spans.extra import extra_attributes
from otel_bridge.spans.place import UNKNOWN_NS
from otel_bridge.spans.scene import Scene
from otel_bridge.v1 import mapping_pb2

HERE = __name__
FILE = mapping_pb2.MappingFile(mapping=mapping_of({1: [1], 2: [2]}), build_id="build")


def as_core_ml(event_name: Identifier, time: float) -> float:
    """As examples/apple/coreml/scripts/inspector_utils.py has it: nanoseconds become milliseconds."""
    assert isinstance(event_name, int | str)
    return time / 1_000_000


def by_name(backend: str | None, identifier: Identifier, ticks: int) -> Fraction:
    """Ours: a clock of 3 GHz, but identifier 2 counts at 1 GHz; only the toy backend."""
    assert backend == "Toy"
    return Fraction(ticks, 1 if identifier == 2 else 3)


def broken_for_two(identifier: Identifier, ticks: int) -> int:
    """Raises for one identifier, by its type and value."""
    if identifier == 2:
        raise KeyError(identifier)
    return ticks


def backwards(_event_name: Identifier, time: int) -> int:
    """Time that runs to the past."""
    return -time


ANSWERS: dict[str, Any] = {}
HEARD: list[int] = []


def answering(_backend: str | None, identifier: Identifier, _ticks: int) -> Any:
    """Whatever the test wants to hear."""
    return ANSWERS[str(identifier)]


def test_the_inspectors_signature_gives_milliseconds() -> None:
    """A converter that was written for the Inspector runs unchanged: its answer is in the Inspector's own default unit."""
    found = Converters([f"{HERE}:as_core_ml"]).convert("CoreMLBackend", "out:conv", 1_500_000, 4_000_000)
    assert found == (1_500_000, 4_000_000)


def test_a_unit_may_be_given() -> None:
    """The Inspector's `target_time_scale` may have been another."""
    assert Converters([f"Toy={HERE}:broken_for_two@us"]).convert("Toy", 1, 3, 5) == (3000, 5000)


def test_ours_is_told_backend_and_identifier() -> None:
    """Three parameters make it ours: exact fractions of nanoseconds are rounded down."""
    read = Converters([f"Toy={HERE}:by_name"])
    assert read.convert("Toy", 1, 10, 20) == (3, 6)
    assert read.convert("Toy", 2, 10, 20) == (10, 20)


def listening(_event_name: Identifier, time: int) -> int:
    """Remembers the ticks that it is asked for."""
    HEARD.append(time)
    return time


@pytest.mark.parametrize("answer", [None, "12", True, math.nan, math.inf, 10**400, Decimal("1e999"), 2**63, [1], object()])
def test_nonsense_costs_the_event_its_conversion(answer: object) -> None:
    """Only finite numbers within the range of a time are times."""
    ANSWERS["x"] = answer
    assert Converters([f"{HERE}:answering"]).convert(None, "x", 1, 2) == Unconverted(f"{HERE}:answering", NONSENSE)


def test_an_end_before_the_start_is_nonsense_unless_the_ticks_say_so() -> None:
    """A converter that turns time around is not believed; an event whose ticks are reversed has no length, as always."""
    assert Converters([f"{HERE}:backwards"]).convert(None, 1, 5, 9) == Unconverted(f"{HERE}:backwards", NONSENSE)
    assert Converters([f"{HERE}:as_core_ml"]).convert(None, 1, 9, 5) == (9, 9)


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ("nothing", "must look like"),
        ("m:f@min", "UNIT one of"),
        ("no.such.module:f", "cannot be imported"),
        (f"{HERE}:no_such", "has no function"),
        (f"{HERE}:NOON_NS", "is not callable"),
    ],
)
def test_what_cannot_be_obeyed_is_refused_at_start(spec: str, complaint: str) -> None:
    """In the user's words, before any event comes."""
    with pytest.raises(ConfigError, match=complaint):
        Converters([spec])


def scene_with(spec: str, watch: Callable[[str, str], None] = lambda _converter, _reason: None) -> Scene:
    """Two delegate events with ticks far from their call, of a backend that is not known, resolved with a converter."""
    events = [delegated(1, 0, 3000, 6000), delegated(2, 0, 6000, 6600), delegated(2, 0, 6000, 6600)]
    block = (execute(), [*events, call("DELEGATE_CALL", 0, 100_000, 120_000), runtime("Method::execute", 100_000, 130_000)])
    return stages_with(FILE, converters=Converters([spec] if spec else [], watch=watch)).run(batch_of(block))


def test_a_converted_event_is_as_long_as_the_converter_says() -> None:
    """Its ticks stand beside it, and its times are of a clock of its own; without the converter nothing is known of them."""
    scene = scene_with(f"Toy={HERE}:by_name")
    lengths = (scene.timeline.end - scene.timeline.start)[:3].tolist()
    assert (lengths, scene.timeline.start[0]) == ([1000, 600, 600], NOON_NS + 100_000)
    assert [scene.templates[scene.template[row]].face.quality for row in range(3)] == ["foreign_clock"] * 3
    assert dict(extra_attributes(scene, 0)) == {at.TIME_START_TICKS: "3000", at.TIME_END_TICKS: "6000", at.TIME_UNIT: "ticks"}
    assert scene_with("").timeline.length[:3].tolist() == [UNKNOWN_NS] * 3


def test_a_converter_that_raises_costs_that_event_alone_and_is_counted() -> None:
    """Its neighbour is converted; it keeps its ticks, is `unknown`, and each such event is told."""
    told: list[tuple[str, str]] = []
    scene = scene_with(f"{HERE}:broken_for_two@ns", lambda converter, reason: told.append((converter, reason)))
    assert told == [(f"{HERE}:broken_for_two", RAISED)] * 2
    assert scene.timeline.length[:3].tolist() == [3000, UNKNOWN_NS, UNKNOWN_NS]
    said = [dict(scene.templates[scene.template[row]].face.attributes)[at.TIME_QUALITY] for row in range(3)]
    assert said == ["foreign_clock", "unknown", "unknown"]


def test_a_wrap_within_an_event_is_undone_before_the_converter_sees_it() -> None:
    """The end is never handed over as if it lay before the start; and one pair of ticks is asked for once."""
    HEARD.clear()
    stream = replace(STREAM, clocks=(Clock(counter_bits=32),))
    stages = stages_with(FILE, converters=Converters([f"{HERE}:listening"]))
    stages.run(batch_of((execute(), [delegated(1, 0, 2**32 - 2, 5), delegated(1, 0, 2**32 - 2, 5)]), stream=stream))
    assert HEARD == [2**32 - 2, 2**32 + 5]
