"""What the order of nodes costs: bounded by what the calls mean, not by how a device words their identifiers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.programs import Call, Kernel, Methods, write_program, xnnpack_payload
from support.scenes import E, batch_of, call, delegated, execute, runtime, stages_with

from otel_bridge.mapping import xnnpack_order
from otel_bridge.mapping.align import align
from otel_bridge.mapping.pte import read_program
from otel_bridge.mapping.xnnpack_order import Plan, plan_of
from otel_bridge.model.events import EventBatch, Identifier
from otel_bridge.pipeline import order
from otel_bridge.pipeline.stages import Stages
from otel_bridge.v1 import mapping_pb2 as pb

CALLS = 200
PAYLOAD = xnnpack_payload([("Conv2d", 1), *[("Clamp", node) for node in range(2, 40)], ("Softmax", 40)])
STEPS: Methods = {"forward": [Call("XnnpackBackend", PAYLOAD), Kernel("k")]}
FILE = pb.MappingFile(mapping=read_program(write_program(STEPS)).mapping, build_id="build")


@pytest.fixture
def aligned(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many events each alignment was of."""
    seen: list[int] = []

    def counted(steps: object, events: tuple[str, ...]) -> object:
        seen.append(len(events))
        return align(steps, events)  # type: ignore[arg-type]

    monkeypatch.setattr(xnnpack_order, "align", counted)
    return seen


def inference(*calls: list[Identifier]) -> EventBatch:
    """An inference in which the delegate runs once for each of these."""
    events: list[E] = []
    for tick, identifiers in enumerate(calls):
        events += [delegated(identifier, 0, tick, tick + 1) for identifier in identifiers]
        events.append(call("DELEGATE_CALL", 0, tick, tick + 1))
    return batch_of((execute(), [*events, runtime("Method::execute", 0, len(calls) + 1)]))


def handles_in(stages: Stages, batch: EventBatch) -> set[tuple[int, ...]]:
    """The handles that delegate events got."""
    scene = stages.run(batch)
    resolutions = [scene.templates[number].face.resolution for number in scene.template.tolist()]
    return {resolution.handles for resolution in resolutions if resolution.status is not None}


def test_what_stands_in_brackets_costs_no_alignment(aligned: list[int]) -> None:
    """Calls whose identifiers all differ, but name the same operators, are aligned once, in this batch and in later ones."""
    stages = stages_with(FILE)
    for batch in range(3):
        calls: list[list[Identifier]] = [
            [f"Convolution (q{batch}-{each}) #1", f"Softmax (q{batch}-{each}) #1"] for each in range(CALLS)
        ]
        assert handles_in(stages, inference(*calls)) == {(1,), (40,)}
    assert aligned == [2]


def test_what_no_call_of_the_nodes_logs_is_not_aligned(aligned: list[int]) -> None:
    """Too few events, a name of no node, and numbers that do not count up cost no alignment, and nothing is kept of them."""
    stages = stages_with(FILE)
    few: list[list[Identifier]] = [[f"Convolution (q{each}) #1"] for each in range(CALLS)]
    foreign: list[list[Identifier]] = [["Convolution #1", f"Transpose (q{each}) #1", "Softmax #1"] for each in range(CALLS)]
    uncounted: list[list[Identifier]] = [["Convolution #1", f"Softmax #{each + 2}"] for each in range(CALLS)]
    numbers: list[list[Identifier]] = [[each, "Softmax #1"] for each in range(CALLS)]
    assert handles_in(stages, inference(*few, *foreign, *uncounted, *numbers)) == {()}
    assert aligned == []
    assert not stages._meanings._orders._known


def test_nodes_are_planned_once_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls of many lengths go through the nodes once, not once for each length."""
    planned = 0

    def counted(nodes: tuple[tuple[str, int], ...]) -> Plan:
        nonlocal planned
        planned += 1
        return plan_of(nodes)

    monkeypatch.setattr(order, "plan_of", counted)
    calls: list[list[Identifier]] = [
        ["Convolution #1", *[f"Clamp #{1 + n}" for n in range(each)], "Softmax #1"] for each in range(30)
    ]
    handles_in(stages_with(FILE), inference(*calls))
    assert planned == 1


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), max_size=30))
def test_calls_are_grouped_by_key_and_length(calls: list[tuple[int, int]]) -> None:
    """For any calls each is given once, with just its own rows, together with those of its key and length, in their order."""
    key = np.repeat(np.array([key for key, _ in calls], np.int64), [length for _, length in calls])
    parent = np.repeat(np.arange(len(calls)), [length for _, length in calls])
    wanted: dict[tuple[int, int], list[list[int]]] = {}
    for number, call_of in enumerate(calls):
        wanted.setdefault(call_of, []).append(np.flatnonzero(parent == number).tolist())
    found = [(key, members) for key, members in order._calls(key, parent)]
    assert {(key, members.shape[1]): members.tolist() for key, members in found} == wanted
    assert len(found) == len(wanted)
