"""
The bridge against ExecuTorch's Inspector, run live, event by event: every capture, and models made for the purpose.

Invariant: a difference is explained by an entry of docs/inspector-differences.md and by the rule that belongs to it here, which
looks at both answers. A rule never takes a difference because of the facet alone.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.captures import CAPTURES
from support.differences import documented
from support.etdump_writer import ProfileEvent, RunData, write_etdump
from support.inspections import Answer, Difference, Job, Pair, compare, mapping_from

from otel_bridge.model.events import EventKind
from otel_bridge.model.resolution import Status

pytestmark = pytest.mark.timeout(300)  # exporting models and importing torch take many seconds on a cold disk

Ask = Callable[[Sequence[Job]], list[Answer]]

MS = "mixed_ops/run10"
"""The capture that is compared in the Inspector's own unit, too."""
MODELS = ("numbers", "texts", "methods", "loop", "buffer")
WRITTEN = ("numbers", "texts")
"""Models that nothing here can run: their dumps are written, as a runtime would log them."""
NO_FORWARD = {"multi_method": "KeyError: 'forward'", "methods": "'dict' object has no attribute 'graph_module'"}
"""Models whose ETRecord the Inspector cannot take, and what it raises."""


def dump_of(maps: dict[str, Any], *, runs: int = 2) -> bytes:
    """
    What a runtime logs of `forward`, of a model with these maps.

    A delegate logs each identifier of its map, and one that the map lacks.
    """
    ticks = iter(range(1000, 10**6, 10))
    delegates = maps["delegate_map"]["forward"]
    blocks = []
    for _ in range(runs):
        began, events = next(ticks), []
        for instruction in map(int, maps["debug_handle_map"]["forward"]):
            start = next(ticks)
            call = delegates.get(str(instruction))
            for key in [*call["delegate_map"], "712" if "12" in call["delegate_map"] else "conv #2"] if call else []:
                number, text = (int(key), None) if key.isdigit() else (None, key)
                begin, end = next(ticks), next(ticks)
                events.append(ProfileEvent(None, 0, instruction, number, text, b"", begin, end))
            if call is None:
                begin, end = next(ticks), next(ticks)
                events.append(ProfileEvent("native_call_cumsum.out", 0, instruction, start=begin, end=end))
            name = "OPERATOR_CALL" if call is None else "DELEGATE_CALL"
            events.append(ProfileEvent(name, 0, instruction, start=start, end=next(ticks)))
        events.append(ProfileEvent("Method::execute", -1, 0, start=began, end=next(ticks)))
        blocks.append(RunData("Execute", events))
    return write_etdump(blocks)


class Sweep:
    """Every dump with the Inspector's answer to it."""

    def __init__(self, models: Path, ask: Ask) -> None:
        self.folders = {name: models / name for name in MODELS}
        for name in WRITTEN:
            maps = json.loads((models / name / "maps.json").read_text())
            (models / name / "run.etdp").write_bytes(dump_of(maps))
        dumps = {f"{name}/run": folder / "run.etdp" for name, folder in self.folders.items()}
        dumps |= {key: capture.path for key, capture in CAPTURES.items()}
        self.folders |= {capture.model: capture.path.parent for capture in CAPTURES.values()}
        self.jobs = {key: Job(path, self._record(key)) for key, path in dumps.items()}
        self.jobs["ms"] = Job(dumps[MS], self._record(MS), target="ms")
        refused = [Job(dumps[f"{model}/run"], self.folders[model] / "model.etrecord") for model in NO_FORWARD]
        answers = ask([*self.jobs.values(), *refused])
        self.answers = dict(zip(self.jobs, answers, strict=False))
        self.refused = dict(zip(NO_FORWARD, answers[len(self.jobs) :], strict=True))

    def _record(self, key: str) -> Path | None:
        model = key.split("/", maxsplit=1)[0]
        return None if model in NO_FORWARD else self.folders[model] / "model.etrecord"

    def differences(self, key: str, *, with_program: bool) -> list[Difference]:
        """All differences on one dump; of `with_program` see `mapping_from`."""
        job, answer = self.jobs[key], self.answers[key]
        assert answer.error == ""
        mapping = mapping_from(job.dump.parent, with_program=with_program)
        compared, found = compare(answer, job.dump, mapping)
        assert compared == sum(len(event["raw"] or ()) for block in answer.blocks for event in block["events"]) > 0
        return found


@pytest.fixture(scope="module")
def sweep(models: Path, ask: Ask) -> Sweep:
    return Sweep(models, ask)


KEYS = [*CAPTURES, *(f"{name}/run" for name in MODELS), "ms"]
RESOLVED = {"handles", "operators", "sources", "modules"}
"""Facets that follow from what an event stands for."""


def has_nothing(value: object) -> bool:
    return not value


def is_method(found: Difference, _pair: Pair) -> bool:
    return found.facet == "method" and found.theirs == "Execute" and found.ours in {"forward", "other", "encode", "decode"}


def is_number(found: Difference, _pair: Pair) -> bool:
    return found.facet == "name" and isinstance(found.ours, int) and found.theirs == str(found.ours)


def is_framework(found: Difference, pair: Pair) -> bool:
    if pair.kind is not EventKind.RUNTIME:
        return False
    outside = found.facet == "instruction" and (found.theirs, found.ours) == (0, None)
    return outside or (found.facet in RESOLVED and has_nothing(found.ours))


def operators_of(handles: Sequence[int], pair: Pair) -> list[str]:
    """The bridge's operators of handles, one handle after the other."""
    return [each.name for handle in handles for each in pair.resolution.operators if each.handle == handle]


def handles_agree(found: Difference, pair: Pair) -> bool:
    """Whether both have the same handles, order and repeats aside, and a difference in operators comes from these two."""
    theirs = pair.theirs["handles"]
    if not isinstance(theirs, list) or sorted(set(theirs)) != list(pair.resolution.handles):
        return False
    return found.facet == "handles" or (found.facet == "operators" and found.theirs == operators_of(theirs, pair))


def is_order(found: Difference, pair: Pair) -> bool:
    return handles_agree(found, pair) and len(pair.theirs["handles"]) == len(pair.resolution.handles)


def is_repeated(found: Difference, pair: Pair) -> bool:
    return handles_agree(found, pair) and len(pair.theirs["handles"]) > len(pair.resolution.handles)


def is_inside_kernel(found: Difference, pair: Pair) -> bool:
    """Whether the instruction's own event has what the Inspector gives to the kernel."""
    if found.facet not in RESOLVED or pair.kind is not EventKind.SCOPE or pair.call is None or found.ours:
        return False
    there = {"handles": list(pair.call.handles), "operators": [each.name for each in pair.call.operators]}
    names = {f"{each.node}_" for each in pair.call.operators}
    return found.theirs == there[found.facet] if found.facet in there else found.theirs.keys() == names


def is_source_line(found: Difference, _pair: Pair) -> bool:
    """Whether each node of the Inspector has our line in its stack trace, and our module as its innermost."""
    if found.facet not in {"sources", "modules"} or found.theirs.keys() != {f"{node}_" for node in found.ours}:
        return False
    if found.facet == "modules":
        return all([path for path, _ in found.theirs[f"{node}_"]][-1:] == [path] for node, path in found.ours.items())
    return all(
        f'File "{file}", line {line}, in ' in found.theirs[f"{node}_"] for node, (file, line) in found.ours.items() if file
    )


def is_substring(found: Difference, pair: Pair) -> bool:
    """Whether the Inspector took another entry of the map, whose key lies in the identifier, or made one up where none is."""
    if found.facet not in RESOLVED or pair.kind is not EventKind.DELEGATE:
        return False
    wrong = pair.theirs["handles"] != list(pair.resolution.handles)
    inside = pair.call is not None and set(pair.theirs["handles"] or ()) <= set(pair.call.handles)
    return wrong and inside and pair.resolution.status in {Status.EXACT, Status.UNMAPPED_IDENTIFIER}


def is_derived(found: Difference, pair: Pair) -> bool:
    """Whether the program tells what the Inspector does not know, and it is of the call's own handles."""
    if found.facet not in RESOLVED or pair.resolution.status is not Status.DERIVED or pair.call is None:
        return False
    return not found.theirs and set(pair.resolution.handles) <= set(pair.call.handles)


def is_of_method(found: Difference, pair: Pair) -> bool:
    return found.facet in RESOLVED | {"backend"} and pair.theirs["handles"] is None and not found.theirs


def is_zero(found: Difference, pair: Pair) -> bool:
    return found.facet == "shown" and (found.theirs, found.ours, pair.ticks[1]) == (0, 1, 0)


def is_unknown(found: Difference, pair: Pair) -> bool:
    if found.facet not in {"length", "shown"} or pair.kind is not EventKind.DELEGATE:
        return False
    return found.theirs == pair.ticks[1] and found.ours == {"length": None, "shown": 1}[found.facet]


def is_elsewhere(found: Difference, pair: Pair) -> bool:
    return found.facet == "start" and found.theirs == pair.ticks[0] and pair.kind is EventKind.DELEGATE


def is_unit(found: Difference, _pair: Pair) -> bool:
    return found.facet in {"length", "shown"} and abs(found.theirs * 10**6 - found.ours) < 1e-3


RULES: dict[str, Callable[[Difference, Pair], bool]] = {
    "methods": is_method,
    "identifier-types": is_number,
    "framework-events": is_framework,
    "operator-order": is_order,
    "repeated-handles": is_repeated,
    "native-calls": is_inside_kernel,
    "source-lines": is_source_line,
    "substrings": is_substring,
    "xnnpack-operators": is_derived,
    "zero-length": is_zero,
    "unknown-lengths": is_unknown,
    "start-times": is_elsewhere,
}


def rules(key: str) -> Iterator[tuple[str, Callable[[Difference, Pair], bool]]]:
    """The rules that apply to a dump: some differences can only be in some."""
    yield from RULES.items()
    if key == "ms":
        yield "units", is_unit
    if key.split("/", maxsplit=1)[0] in NO_FORWARD:
        yield "forward-only", is_of_method


def explanation(found: Difference, key: str) -> str | None:
    """The first entry of the page that explains a difference."""
    if found.pair is not None:
        pair = found.pair
        return next((name for name, holds in rules(key) if holds(found, pair)), None)
    whole = {
        ("rejected", "debug_event"): "debug-data",
        ("lost", None): "repeats",
    }
    return whole.get((found.facet, found.ours if found.facet == "rejected" else None))


@pytest.mark.parametrize("with_program", [False, True], ids=["etrecord", "program"])
@pytest.mark.parametrize("key", KEYS)
def test_every_difference_is_documented(key: str, with_program: bool, sweep: Sweep) -> None:  # noqa: FBT001 - a parameter
    """Each event is the Inspector's in all that can be compared, or differs in a way that the page names."""
    found = sweep.differences(key, with_program=with_program)
    wrong = [
        (each.facet, each.theirs, each.ours, each.pair and (each.pair.name, each.pair.resolution))
        for each in found
        if explanation(each, key) is None
    ]
    assert wrong[:5] == []


def test_every_rule_is_needed(sweep: Sweep) -> None:
    """Each rule has an entry on the page, and explains a difference that is there."""
    used = {
        explanation(each, key)
        for key in KEYS
        for program in (False, True)
        for each in sweep.differences(key, with_program=program)
    }
    assert used - {None} == {*RULES, "units", "forward-only", "debug-data", "repeats"}
    assert used <= documented().keys()


def test_a_record_of_several_methods_is_refused(sweep: Sweep) -> None:
    """The Inspector takes no ETRecord of several methods, with a `forward` among them or without; the bridge resolves each."""
    assert {model: message in sweep.refused[model].error for model, message in NO_FORWARD.items()} == dict.fromkeys(
        NO_FORWARD, True
    )
    calls = {
        (found.pair.scene.inference_at(int(found.pair.scene.tree.block[found.pair.row])).method, found.pair.resolution.delegate)
        for found in sweep.differences("methods/run", with_program=False)
        if found.pair is not None and found.facet == "backend"
    }
    assert calls == {("forward", "XnnpackBackend"), ("other", "XnnpackBackend")}


def test_generated_models_are_what_they_are_for(sweep: Sweep) -> None:
    """Two instances of one delegate with equal identifiers, a loop that repeats, several methods, a buffer that is written."""
    calls = sweep.answers["numbers/run"].events()
    assert {instruction for instruction, name in calls if name == "12"} == {0, 2}
    assert any(each.facet == "lost" for each in sweep.differences("loop/run", with_program=False))
    assert any(name == "native_call_copy_" for _, name in sweep.answers["buffer/run"].events())
    assert len([block for block in sweep.answers["methods/run"].blocks if block["name"] == "Execute"]) == 2
