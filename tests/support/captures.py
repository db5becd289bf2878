"""
The captures of tests/fixtures as ExecuTorch's own tools read them: what spans are held against.

Invariants
* What is expected does not come from the bridge: events are those of the JSON beside each dump (ExecuTorch's deserializer),
  maps those of `maps.json` (ExecuTorch's program manager), operators those of the graphs in the ETRecord.
* A span is found by what identifies its event in the dump (block, time, instruction, identifier), never by its name or parent.
"""

import json
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from support.jaeger import StoredSpan

from otel_bridge.mapping.source import read_source
from otel_bridge.v1 import mapping_pb2

FIXTURES = Path(__file__).parents[1] / "fixtures"
CALLS = {"OPERATOR_CALL", "DELEGATE_CALL"}
ROOTS = {"Default": "Program::load_method", "Execute": "Method::execute"}
"""The event that encloses a block of that name, in every capture."""


@dataclass(frozen=True)
class Event:
    """A profiling event; `number` counts within the dump, `block` the blocks. Outside any instruction: `instruction` None."""

    number: int
    block: int
    block_name: str
    name: str | None
    identifier: int | str | None
    instruction: int | None
    start: int
    end: int
    metadata: bytes

    @property
    def is_call(self) -> bool:
        """Whether it is an instruction itself."""
        return self.name in CALLS

    @property
    def is_root(self) -> bool:
        """Whether it encloses its block."""
        return self.name == ROOTS[self.block_name]


@dataclass(frozen=True)
class Expected:
    """What `maps.json` says of a delegate event: status and handles, ascending and each once."""

    status: str
    handles: tuple[int, ...]


class Capture:
    """One dump of one model."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.model = path.parent.name
        self.id = f"{self.model}/{path.stem}"

    @cached_property
    def dump(self) -> bytes:
        """The ETDump."""
        return self.path.read_bytes()

    @cached_property
    def mapping(self) -> mapping_pb2.MappingFile:
        """The mapping that the bridge makes of the model's ETRecord."""
        return mapping_of(self.model)

    @cached_property
    def blocks(self) -> list[dict[str, Any]]:
        """The blocks of the dump, as ExecuTorch's deserializer gives them."""
        return list(json.loads(self.path.with_suffix(".json").read_bytes())["run_data"])

    @cached_property
    def events(self) -> list[Event]:
        """All profiling events, in the order of the file."""
        found: list[Event] = []
        for number, block in enumerate(self.blocks):
            for wrapped in block["events"]:
                if (event := wrapped["profile_event"]) is not None:
                    found.append(_event(len(found), number, block["name"], event))
        return found

    @property
    def other_events(self) -> int:
        """Events that are no profiling events."""
        return sum(len(block["events"]) for block in self.blocks) - len(self.events)

    @cached_property
    def maps(self) -> dict[str, Any]:
        """`maps.json` of the model."""
        return maps_of(self.model)

    @cached_property
    def methods(self) -> dict[int, str]:
        """The method that each `Execute` block ran: the one with its delegate calls."""
        methods = {}
        for block in {event.block for event in self.events if event.block_name == "Execute"}:
            ran = {event.instruction for event in self.events if event.block == block and event.name == "DELEGATE_CALL"}
            (methods[block],) = [name for name, calls in self.maps["delegate_map"].items() if set(map(int, calls)) == ran]
        return methods

    def method_of(self, event: Event) -> str | None:
        """The method that the event's block ran; None: it loaded."""
        return self.methods.get(event.block)

    def parent_of(self, event: Event) -> Event | None:
        """The event that the event lies in: its instruction's next completion, else its block's root; None: it is the root."""
        if event.is_root:
            return None
        inside = [each for each in self.events if each.block == event.block]
        if not event.is_call and event.instruction is not None:
            return next(e for e in inside if e.number > event.number and e.is_call and e.instruction == event.instruction)
        return next(each for each in inside if each.is_root)

    def delegate_of(self, event: Event) -> str | None:
        """Backend id of the delegate that an instruction calls."""
        call = self._delegate_calls(event).get(str(event.instruction))
        return call["name"] if call else None

    def resolution_of(self, event: Event) -> Expected:
        """What a delegate event stands for."""
        entries = self._delegate_calls(event)[str(event.instruction)]["delegate_map"]
        if not entries:
            return Expected("delegate", ())
        if str(event.identifier) not in entries:
            return Expected("unmapped_identifier", ())
        return Expected("exact", ascending(entries[str(event.identifier)]))

    def handles_of_call(self, event: Event) -> tuple[int, ...]:
        """The debug handles of an instruction."""
        return ascending(self.maps["debug_handle_map"][self.method_of(event)][str(event.instruction)])

    def operators_of(self, event: Event, handles: Sequence[int]) -> tuple[str, ...]:
        """Names of the operators of handles, in the order of handles and of the graph."""
        return operators_of(self.model, self.method_of(event) or "", handles)

    def _delegate_calls(self, event: Event) -> dict[str, Any]:
        return dict(self.maps["delegate_map"][self.method_of(event)])

    def pair(self, spans: Sequence[StoredSpan], tick_zero_ns: int) -> list[tuple[Event, StoredSpan]]:
        """
        Each event with its span, given where tick 0 lies on the time axis.

        A delegate event is found by instruction and identifier, since its time may be moved; the runtime's own by their time.
        AssertionError where an event has no span or more than one.
        """
        traces = {event.block: self._trace(event, spans, tick_zero_ns) for event in self.events if event.is_root}
        pairs = []
        for event in self.events:
            inside = [span for span in traces[event.block] if _is_image(event, span, tick_zero_ns)]
            assert len(inside) == 1, f"{self.id}: event {event.number} has {len(inside)} spans"
            pairs.append((event, inside[0]))
        return pairs

    def _trace(self, root: Event, spans: Sequence[StoredSpan], tick_zero_ns: int) -> list[StoredSpan]:
        times = (tick_zero_ns + root.start, tick_zero_ns + root.end)
        (trace_id,) = {span.trace_id for span in spans if (span.start_ns, span.end_ns) == times}
        return [span for span in spans if span.trace_id == trace_id]


def _is_image(event: Event, span: StoredSpan, tick_zero_ns: int) -> bool:
    attributes = span.attributes
    if event.identifier is not None:
        here = (attributes.get("executorch.instruction.id"), attributes.get("executorch.delegate.debug_id"))
        return here == (event.instruction, str(event.identifier))
    times = (tick_zero_ns + event.start, tick_zero_ns + event.end)
    return "executorch.delegate.debug_id" not in attributes and (span.start_ns, span.end_ns) == times


def _event(number: int, block: int, block_name: str, event: dict[str, Any]) -> Event:
    identifier = event["delegate_debug_id_str"] or None
    if event["delegate_debug_id_int"] != -1:
        identifier = event["delegate_debug_id_int"]
    return Event(
        number=number,
        block=block,
        block_name=block_name,
        name=event["name"] or None,
        identifier=identifier,
        instruction=None if event["chain_index"] == -1 else event["instruction_id"],
        start=event["start_time"],
        end=event["end_time"],
        metadata=bytes(event["delegate_debug_metadata"] or ()),
    )


def ascending(handles: int | Sequence[int]) -> tuple[int, ...]:
    """Handles as `maps.json` has them (one, or a list), ascending and each once."""
    return (handles,) if isinstance(handles, int) else tuple(sorted(set(handles)))


def maps_of(model: str) -> dict[str, Any]:
    """`maps.json` of a model."""
    return dict(json.loads((FIXTURES / model / "maps.json").read_bytes()))


def operators_of(model: str, method: str, handles: Sequence[int]) -> tuple[str, ...]:
    """Names of the operators of a method's handles, in the order of handles and of the graph."""
    return tuple(name for handle in handles for own, name in _named_handles(model, method) if own == handle)


@cache
def _named_handles(model: str, method: str) -> list[tuple[int, str]]:
    with zipfile.ZipFile(FIXTURES / model / "model.etrecord") as record:
        program = json.loads(record.read(f"edge_dialect_exported_program/{method}"))
    prefix = "executorch.exir.dialects.edge.ops."
    return [(int(node["metadata"]["debug_handle"]), node["target"].removeprefix(prefix)) for node in _nodes(program)]


def _nodes(program: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Nodes with a debug handle; in place of a call of a delegate those of its module, which hides as JSON in an input."""
    for node in program["graph_module"]["graph"]["nodes"]:
        if node["target"].endswith("executorch_call_delegate"):
            yield from _nodes(json.loads(node["inputs"][0]["arg"]["as_string"])["original_module"])
        elif "debug_handle" in node["metadata"]:
            yield node


def mapping_of(model: str) -> mapping_pb2.MappingFile:
    """The mapping that the bridge makes of a model's ETRecord."""
    return read_source((FIXTURES / model / "model.etrecord").read_bytes())


CAPTURES = {capture.id: capture for capture in map(Capture, sorted(FIXTURES.glob("*/*.etdp")))}
"""Every capture, by "model/dump"."""


def node_handles(run: Capture, program: mapping_pb2.Mapping) -> dict[int, int]:
    """The handle of each XNNPACK event by its number in the dump; in the captures the n-th event is of the n-th node."""
    nodes = {(method.name, each.id): each.nodes for method in program.methods for each in method.instructions}
    counted: dict[tuple[int, int | None], int] = {}
    handles = {}
    for event in run.events:
        if event.identifier is not None and run.delegate_of(event) == "XnnpackBackend":
            position = counted.get((event.block, event.instruction), 0)
            counted[event.block, event.instruction] = position + 1
            handles[event.number] = nodes[run.method_of(event) or "", event.instruction or 0][position].handle
    assert all(len(nodes[run.methods[block], number or 0]) == count for (block, number), count in counted.items())
    return handles
