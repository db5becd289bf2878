"""Totals of real captures, held against what ExecuTorch's own tools say of them."""

from collections import Counter
from fractions import Fraction

import pytest
from support.captures import CAPTURES, Capture, Event, ascending
from support.spans import resolve_dump

from otel_bridge.report.keys import By
from otel_bridge.report.totals import add_up_by

RUN = [each for each in CAPTURES if each.endswith(("/run", "/run10"))]


@pytest.mark.parametrize("name", RUN)
def test_captures_add_up_as_their_events_say(name: str) -> None:
    """By identifier, backend and framework, from ExecuTorch's own reading of the dump; by operator, from the maps."""
    found = CAPTURES[name]
    scene = resolve_dump(found.dump, found.mapping).scene
    for method in set(found.methods.values()):
        expected = expected_times(found, method)
        rows = {row.key: row.total_ns for row in add_up_by(scene, By.IDENTIFIER).rows if row.method == method}
        assert rows == expected
        whole = sum(e.end - e.start for e in found.events if e.is_root and found.method_of(e) == method)
        for by in By:
            assert sum(row.total_ns for row in add_up_by(scene, by).rows if row.method == method) == whole
        operators = {row.key: row.total_ns for row in add_up_by(scene, By.OPERATOR).rows if row.method == method}
        for operator, time in exact_operators(found, method).items():
            assert abs(operators[operator] - time) <= len(found.methods) * 10


def expected_times(found: Capture, method: str) -> Counter[str]:
    """Nanoseconds by key. An event that does not begin in its call is of another clock, whose tick is not known."""
    result: Counter[str] = Counter()
    for event in found.events:
        if found.method_of(event) != method:
            continue
        parent = found.parent_of(event)
        time = event.end - event.start
        if event.is_root:
            result["(framework)"] += time
        elif event.is_call:
            result["(framework)"] -= time
            result[call_key(found, event)] += time
        elif event.identifier is not None and parent is not None:
            own = time if parent.start <= event.start <= parent.end else 0
            result[f"{event.instruction}: {event.identifier}"] += own
            result[call_key(found, parent)] -= own
    return result


def call_key(found: Capture, event: Event) -> str:
    """What the time of an instruction that is in none of its events is called."""
    delegate = found.delegate_of(event)
    if delegate:
        return f"({delegate})"
    native = next(e.name for e in found.events if lies_in(e, event) and (e.name or "").startswith("native_call_"))
    return f"{event.instruction}: {(native or '').removeprefix('native_call_')}"


def lies_in(inner: Event, outer: Event) -> bool:
    """Whether an event lies in an instruction of its block."""
    return (
        inner.block == outer.block
        and inner.instruction == outer.instruction
        and outer.start <= inner.start <= inner.end <= outer.end
    )


def exact_operators(found: Capture, method: str) -> dict[str, Fraction]:
    """Time of the operators of resolved identifiers and of kernels with one operator, split equally."""
    result: dict[str, Fraction] = {}
    for event in found.events:
        if found.method_of(event) != method or event.identifier is None:
            continue
        handles = found.resolution_of(event).handles
        for handle in handles:
            (name,) = found.operators_of(event, [handle])
            result[name] = result.get(name, Fraction(0)) + Fraction(event.end - event.start, len(handles))
    for event in found.events:
        if found.method_of(event) == method and event.name == "OPERATOR_CALL":
            names = found.operators_of(event, ascending(found.maps["debug_handle_map"][method][str(event.instruction)]))
            if len(names) == 1:
                result[names[0]] = result.get(names[0], Fraction(0)) + event.end - event.start
    return result
