"""
What ExecuTorch's Inspector says of a dump, held against what the bridge says of it, event by event.

Invariants
* Events are paired by where they stand: block by block, sample by sample, and of several alike in one block the last, since
  the Inspector keeps that one. Pairing asks for equal ticks, so a pair is of one event in the file.
* Nothing is left out: an event of the file that is in no pair is told as `lost`.
* A comparison has no opinion. Whether a difference is one that the documentation knows is for the test to say.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.spans import TICK_ZERO_NS, Resolved, resolve_dump

from otel_bridge.mapping.merge import merge
from otel_bridge.mapping.pte import read_program
from otel_bridge.mapping.source import read_source
from otel_bridge.model.events import NO_INSTRUCTION, EventKind, Identifier
from otel_bridge.model.resolution import Resolution
from otel_bridge.report.table import Row, tabulate
from otel_bridge.spans.place import UNKNOWN_NS
from otel_bridge.spans.scene import Scene
from otel_bridge.v1 import mapping_pb2


@dataclass(frozen=True)
class Job:
    """A question to the Inspector: a dump, the model's ETRecord if it is to have one, and the unit to answer in."""

    dump: Path
    record: Path | None = None
    target: str = "ns"

    def as_json(self) -> dict[str, Any]:
        """As executorch/inspect_dumps.py reads it."""
        return {"dump": str(self.dump), "record": str(self.record) if self.record else None, "target": self.target}


@dataclass(frozen=True)
class Answer:
    """What the Inspector made of it: blocks with events, or the error that it raised."""

    blocks: list[dict[str, Any]] = field(default_factory=list)
    error: str = ""

    def events(self, block: str = "Execute") -> dict[tuple[int, str], dict[str, Any]]:
        """The events of the blocks of that name, by instruction and name; AssertionError where two are alike."""
        found = [event for each in self.blocks if each["name"] == block for event in each["events"]]
        by_place = {(event["instruction"], event["name"]): event for event in found}
        assert len(by_place) == len(found)
        return by_place


@dataclass(frozen=True)
class Both:
    """The Inspector's answer to a dump, and the bridge's."""

    theirs: Answer
    ours: Resolved

    @property
    def rows(self) -> dict[tuple[int | None, Any], Row]:
        """The rows of `inspect`, by instruction and name; loading left out."""
        return {(row.instruction, row.name): row for row in self.table}

    @property
    def table(self) -> list[Row]:
        """The rows of `inspect`; loading left out."""
        return [row for row in tabulate(self.ours.scene) if row.subject != "Default"]


@dataclass(frozen=True)
class Pair:
    """One event: the Inspector's, of which it is the sample `sample`, and the bridge's row."""

    theirs: dict[str, Any]
    block: str
    sample: int
    scene: Scene
    row: int

    @property
    def name(self) -> Identifier:
        """The bridge's name or identifier."""
        return self.scene.batch.names[self.scene.batch.name[self.row]]

    @property
    def kind(self) -> EventKind:
        """Whose event it is."""
        return EventKind(int(self.scene.batch.kind[self.row]))

    @property
    def resolution(self) -> Resolution:
        """What the bridge makes of it."""
        return self.scene.templates[self.scene.template[self.row]].face.resolution

    @property
    def call(self) -> Resolution | None:
        """What the bridge makes of the instruction's own event."""
        batch = self.scene.batch
        same = (self.scene.tree.block == self.scene.tree.block[self.row]) & (batch.instruction == batch.instruction[self.row])
        calls = (same & (batch.kind == EventKind.CALL)).nonzero()[0]
        return self.scene.templates[self.scene.template[calls[-1]]].face.resolution if len(calls) else None

    @property
    def ticks(self) -> tuple[int, int]:
        """Start and length as the file has them."""
        return int(self.scene.batch.start[self.row]), int(self.scene.batch.duration[self.row])

    @property
    def shown(self) -> tuple[int, int]:
        """Where the span lies: from tick 0 of the host's clock, and how long."""
        start, end = int(self.scene.timeline.start[self.row]), int(self.scene.timeline.end[self.row])
        return start - TICK_ZERO_NS, end - start


@dataclass(frozen=True)
class Difference:
    """One facet of one event, or a block or an event as a whole (`pair` None), on which the two do not agree."""

    facet: str
    theirs: Any
    ours: Any
    pair: Pair | None = None


def mapping_from(model: Path, *, with_program: bool = False) -> mapping_pb2.MappingFile:
    """The mapping of a model's ETRecord, and of its program."""
    file = read_source((model / "model.etrecord").read_bytes())
    if with_program:
        with (model / "model.pte").open("rb") as program:
            file.mapping.CopyFrom(merge(file.mapping, read_program(program)))
    return file


def compare(answer: Answer, dump: Path, mapping: mapping_pb2.MappingFile | None) -> tuple[int, list[Difference]]:
    """How many events were compared, and all differences."""
    resolved = resolve_dump(dump.read_bytes(), mapping)
    pairs, found = _pairs(answer, resolved.scene)
    found += [Difference("rejected", None, reason) for reason in resolved.rejected]
    for pair in pairs:
        found += [Difference(name, theirs, ours, pair) for name, theirs, ours in _facets(pair) if theirs != ours]
    return len(pairs), found


def _pairs(answer: Answer, scene: Scene) -> tuple[list[Pair], list[Difference]]:
    bounds = scene.batch.bounds.tolist()
    taken = [0] * len(answer.blocks)
    pairs: list[Pair] = []
    found: list[Difference] = []
    subjects: dict[str, set[int]] = {}
    for number, block in enumerate(scene.batch.blocks):
        rows = list(range(bounds[number], bounds[number + 1]))
        for index, theirs in enumerate(answer.blocks):
            matched = _match(theirs["events"], taken[index], scene, rows) if theirs["name"] == block.name else None
            if matched is not None:
                break
        else:
            found.append(Difference("block", None, block.name))
            continue
        pairs += [
            Pair(event, block.name, taken[index], scene, row) for event, row in zip(theirs["events"], matched, strict=True)
        ]
        taken[index] += 1
        subjects.setdefault(scene.inference_at(number).method or block.name, set()).add(index)
        found += [Difference("lost", None, _key(scene, row)) for row in rows if row not in matched]
        firsts = list(dict.fromkeys(_key(scene, row) for row in rows))
        if firsts != [_their_key(event) for event in theirs["events"]]:
            found.append(Difference("order", [_their_key(event) for event in theirs["events"]], firsts))
    found += [Difference("split", len(indexes), 1) for indexes in subjects.values() if len(indexes) > 1]
    for theirs, count in zip(answer.blocks, taken, strict=True):
        samples = {len(event["raw"] or ()) for event in theirs["events"]}
        if samples != {count}:
            found.append(Difference("samples", samples, count))
    return pairs, found


def _match(events: list[dict[str, Any]], sample: int, scene: Scene, rows: list[int]) -> list[int] | None:
    """The row of each event of an Inspector's block, the last of those alike; None where it is not of these rows."""
    last = {_key(scene, row): row for row in rows}
    matched = [last.get(_their_key(event)) for event in events]
    if {_their_key(event) for event in events} != last.keys():
        return None
    for event, row in zip(events, matched, strict=True):
        starts = event["start_time"]
        if row is None or sample >= len(starts) or starts[sample] != int(scene.batch.start[row]):
            return None
    return [row for row in matched if row is not None]


def _key(scene: Scene, row: int) -> tuple[int, bool, Identifier]:
    instruction = int(scene.batch.instruction[row])
    name = scene.batch.names[scene.batch.name[row]]
    return (0 if instruction == NO_INSTRUCTION else instruction, scene.batch.kind[row] == EventKind.DELEGATE, name)


def _their_key(event: dict[str, Any]) -> tuple[int, bool, Identifier]:
    return event["instruction"], event["delegated"], event["identifier"] if event["delegated"] else event["name"]


def _facets(pair: Pair) -> Iterator[tuple[str, Any, Any]]:
    """(what, the Inspector's, ours) in one form."""
    theirs, scene, row, resolution = pair.theirs, pair.scene, pair.row, pair.resolution
    instruction, length = int(scene.batch.instruction[row]), int(scene.timeline.length[row])
    raw, handles = theirs["raw"][pair.sample], theirs["handles"]
    block = int(scene.tree.block[row])
    yield "method", pair.block, scene.inference_at(block).method or pair.block
    yield "name", theirs["name"], pair.name
    yield "instruction", theirs["instruction"], None if instruction == NO_INSTRUCTION else instruction
    yield "delegated", theirs["delegated"], pair.kind is EventKind.DELEGATE
    yield "backend", theirs["backend"] or None, resolution.delegate
    yield "start", theirs["start_time"][pair.sample], pair.shown[0]
    yield "length", raw, None if length == UNKNOWN_NS else length
    yield "shown", raw, pair.shown[1]
    yield "handles", [handles] if isinstance(handles, int) else handles or [], list(resolution.handles)
    yield "operators", theirs["operators"], [operator.name for operator in resolution.operators]
    yield "sources", theirs["traces"], {operator.node: (operator.file, operator.line) for operator in resolution.operators}
    yield "modules", theirs["modules"], {operator.node: operator.module_path for operator in resolution.operators}
    metadata = bytes.fromhex(theirs["metadata"][pair.sample]) if theirs["metadata"] else b""
    yield "metadata", metadata, scene.batch.payloads[scene.batch.metadata[row]]
