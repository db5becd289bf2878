"""
Events as a device would send them, made up: inferences of one model whose delegates log under known identifiers.

Invariants
* An inference is whole: each instruction is called, `Method::execute` ends it, and delegate events come before their call.
* A pattern has exactly the events that were asked for, and patterns together use every identifier in turn.
* What differs from request to request is not here: a pattern is serialised once (fleet.py).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice

from otel_bridge.errors import ConfigError
from otel_bridge.model.events import EventKind, Identifier
from otel_bridge.v1 import mapping_pb2
from otel_bridge.v1 import profiling_pb2 as pb

EVENT_TICKS = 1_000
"""How long a made-up event takes: a microsecond of a clock of nanoseconds."""


@dataclass(frozen=True, slots=True)
class Call:
    """An instruction: the identifiers that its delegate logs under; None: a kernel."""

    instruction: int
    identifiers: Sequence[Identifier] | None


@dataclass(frozen=True, slots=True)
class Program:
    """
    A method, as far as its events show it.

    method   None: not known, and the bridge is not told
    build    build id of its mapping; None: the events name no model and are resolved against nothing
    """

    calls: Sequence[Call]
    method: str | None = None
    build: str | None = None

    @property
    def least_events(self) -> int:
        """Events of the shortest whole inference: each call, one delegate event, the end."""
        return len(self.calls) + 2


@dataclass(frozen=True, slots=True)
class Pattern:
    """The events of a request, without what says who sent them; `delegate_rows` of them may carry metadata."""

    request: pb.ExportEventsRequest
    delegate_rows: Sequence[int]
    ticks: int

    @property
    def events(self) -> int:
        """How many."""
        return len(self.request.events.kind)


def made_up(identifiers: int) -> Program:
    """A program that nobody has a mapping of: one delegate call."""
    return Program((Call(0, range(identifiers)),))


def program_of(mapping: mapping_pb2.Mapping, build: str, identifiers: int | None) -> Program:
    """
    The first method of a mapping whose delegates have identifiers; the first `identifiers` of them are used, None: all.

    Raises `ConfigError` where there is none, or there are fewer.
    """
    for method in mapping.methods:
        found = sum(len(each.entries) for each in method.instructions)
        if not found:
            continue
        if identifiers is not None and identifiers > found:
            raise ConfigError(f"--identifiers: is {identifiers}, and the mapping has {found}; ask for fewer")
        left = iter(range(found if identifiers is None else identifiers))
        calls = []
        for instruction in method.instructions:
            used = [_identifier(entry) for entry, _ in zip(instruction.entries, left, strict=False)]
            calls.append(Call(instruction.id, used if instruction.delegate else None))
        return Program(calls, method.name, build)
    raise ConfigError("--mapping: no method of it has a delegate with identifiers; take one with a debug handle map")


def _identifier(entry: mapping_pb2.MapEntry) -> Identifier:
    return entry.number if entry.WhichOneof("identifier") == "number" else entry.text or entry.untyped


def patterns(program: Program, events: int) -> list[Pattern]:
    """
    As many requests of so many events as it takes to use every identifier.

    Raises `ConfigError` where not even one inference fits.
    """
    if events < program.least_events:
        raise ConfigError(
            f"--batch: is {events}, and an inference of this program has at least {program.least_events}; send more at once"
        )
    logged = [(call.instruction, name) for call in program.calls for name in call.identifiers or ()]
    whole = len(program.calls) + 1 + len(logged)
    supply = cycle(logged)
    made: list[Pattern] = []
    used = 0
    while used < len(logged):
        pattern, taken = _pattern(program, events, whole, supply)
        made.append(pattern)
        used += taken
    return made


def _pattern(program: Program, events: int, whole: int, supply: Iterator[tuple[int, Identifier]]) -> tuple[Pattern, int]:
    """Inferences that log each identifier once, and a last one that takes what is left of `events`."""
    fixed = len(program.calls) + 1
    count = max(events // whole, 1)
    sizes = [whole - fixed] * (count - 1)
    sizes.append(events - fixed * count - sum(sizes))
    rows = _Rows()
    for position, delegates in enumerate(sizes):
        rows.add_inference(program, position, list(islice(supply, delegates)))
    return Pattern(rows.request, rows.delegate_rows, rows.ticks), sum(sizes)


class _Rows:
    """Columns as they grow. A call lasts from the start of its first event to its own end."""

    def __init__(self) -> None:
        self.request = pb.ExportEventsRequest()
        self.delegate_rows: list[int] = []
        self.ticks = 0
        self._before = 0
        self._names: dict[Identifier, int] = {}

    def add_inference(self, program: Program, position: int, logged: Sequence[tuple[int, Identifier]]) -> None:
        """The events of one inference, in the order in which they end."""
        begin, first = self.ticks, len(self.request.events.kind)
        by_instruction: dict[int, list[Identifier]] = {call.instruction: [] for call in program.calls}
        for instruction, name in logged:
            by_instruction[instruction].append(name)
        for call in program.calls:
            started = self.ticks
            for name in by_instruction[call.instruction]:
                self.delegate_rows.append(len(self.request.events.kind))
                self._add(EventKind.DELEGATE, call.instruction, name, self.ticks, EVENT_TICKS)
                self.ticks += EVENT_TICKS
            self.ticks += EVENT_TICKS
            kind = "OPERATOR_CALL" if call.identifiers is None else "DELEGATE_CALL"
            self._add(EventKind.CALL, call.instruction, kind, started, self.ticks - started)
        self.ticks += EVENT_TICKS
        self._add(EventKind.RUNTIME, -1, "Method::execute", begin, self.ticks - begin)
        block = self.request.blocks.add(kind=pb.BLOCK_KIND_EXECUTE, name=b"Execute", position=position)
        block.event_count = len(self.request.events.kind) - first
        block.method = (program.method or "").encode()

    def _add(self, kind: EventKind, instruction: int, name: Identifier, start: int, ticks: int) -> None:
        columns = self.request.events
        columns.kind.append(pb.EventKind.ValueType(kind.value))
        columns.instruction.append(instruction)
        columns.identifier.append(self._number(name))
        columns.start_delta.append(start - self._before)
        columns.duration.append(ticks)
        self._before = start

    def _number(self, name: Identifier) -> int:
        if name not in self._names:
            self._names[name] = len(self._names)
            if isinstance(name, int):
                self.request.identifiers.add(number=name)
            else:
                self.request.identifiers.add(text=name.encode())
        return self._names[name]
