"""
Scripts of calls that a C++ program plays on an EventTracer (tests/cpp/src/script.h), and what must become of them.

Invariants
* `Expected` says what ExecuTorch's ETDumpGen would record, where it would not abort, and counts a drop where it would.
* `received` reads requests by the bridge's own admission, and refuses what no device may send: a rejected event, sequence
  numbers with gaps, parts that do not fit each other.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from google.protobuf.internal.decoder import _DecodeVarint  # type: ignore[attr-defined]  # protobuf ships no stub of it
from support.requests import admitted_bytes

from otel_bridge.model.events import CALL_NAMES, NO_INSTRUCTION, BlockKind, EventBatch, EventKind, Identifier

Row = tuple[EventKind, Identifier, int, int, int, int, bytes]
"""Kind, name or identifier, instruction, chain, start, duration, metadata."""

Line = tuple[object, ...]
"""One call: its letter, and its arguments; None is a null pointer."""

U64 = 2**64


@dataclass
class Heard:
    """One block: what it says of itself, and its events."""

    kind: BlockKind
    name: str
    rows: list[Row] = field(default_factory=list)
    method: str | None = None
    error: int | None = None
    run_index: int | None = None
    attributes: tuple[tuple[str, object], ...] = ()
    context: str | None = None


def script_of(lines: Iterable[Line]) -> bytes:
    """A script as a program reads it."""
    return "".join(" ".join(map(_word, line)) + "\n" for line in lines).encode()


def _word(value: object) -> str:
    match value:
        case None:
            return "-"
        case "" | b"":
            return "."
        case bytes():
            return value.hex()
        case str() if len(value) > 1 or not value.isupper():
            return value.encode().hex()
        case _:
            return str(value)


class Expected:
    """The blocks and drops that a script must lead to, where memory is never short."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self.blocks: dict[int, Heard] = {}
        self.drops: Counter[str] = Counter()
        self._open: Heard | None = None
        self._position = self._executions = self._now = 0
        self._scope = (-1, 0)
        self._entries: dict[object, tuple[str, object, int, int, int]] = {}
        self._method: str | None = None
        self._attributes: dict[str, object] = {}
        calls: dict[object, Callable[..., None]] = {
            "B": self._begin_block,
            "M": self._set_method,
            "A": self._set_attribute,
            "X": self._end_block,
            "H": self._set_scope,
            "C": self._pass_time,
            "P": self._drain,
            "O": self._drain,
            "S": self._start,
            "D": self._start_delegate,
            "E": self._end,
            "F": self._end_delegate,
            "L": self._log_delegate,
        }
        for letter, *arguments in lines:
            calls[letter](*arguments)

    def _begin_block(self, name: str | None) -> None:
        kind = BlockKind.from_name(name or "unnamed")
        self._open = self.blocks[self._position] = Heard(kind, (name or "unnamed")[:64])
        self._position += 1
        if kind is BlockKind.EXECUTE:
            self._open.run_index = self._executions
            self._open.method = self._method
            self._open.attributes = tuple(self._attributes.items())
            self._executions += 1

    def _set_method(self, name: str | None) -> None:
        self._method = name if name and len(name) <= 128 else None

    def _set_attribute(self, key: str, value: str) -> None:
        self._attributes.setdefault(key, value)

    def _end_block(self, error: int) -> None:
        if self._open and error:
            self._open.error = error
        self._open = None
        self._attributes = {}

    def _set_scope(self, chain: int, handle: int) -> None:
        self._scope = (chain, handle)

    def _pass_time(self, ticks: int) -> None:
        self._now = (self._now + ticks) % U64

    def _drain(self) -> None:
        """Draining changes nothing."""

    def _start(self, key: object, name: str | None, chain: int, handle: int) -> None:
        self._tick()
        scope = self._scope if chain == -1 else (chain, handle)
        self._entries[key] = ("name", name, *scope, self._now)

    def _start_delegate(self, key: object, name: str | None, number: int) -> None:
        self._tick()
        self._entries[key] = ("delegate", (name, number), 0, 0, self._now)

    def _end(self, key: object) -> None:
        self._tick()
        sort, name, chain, handle, start = self._entries.get(key, ("none", None, 0, 0, 0))
        reason = "misuse" if sort != "name" or not name else None
        self._record(reason, EventKind.SCOPE, name, (chain, handle), start, self._now, b"")

    def _end_delegate(self, key: object, metadata: bytes | None) -> None:
        self._tick()
        sort, identifier, _, _, start = self._entries.get(key, ("none", None, 0, 0, 0))
        name, number = identifier if sort == "delegate" else (None, -1)  # type: ignore[misc]  # a pair, by its sort
        self._delegate(name, number, start, self._now, metadata)

    def _log_delegate(self, name: str | None, number: int, start: int, end: int, metadata: bytes | None) -> None:
        self._delegate(name, number, start, end, metadata)

    def _delegate(self, name: str | None, number: int, start: int, end: int, metadata: bytes | None) -> None:
        reason = "misuse" if (name is None) == (number == -1) or name == "" else None
        identifier: Identifier = number if name is None else name
        self._record(reason, EventKind.DELEGATE, identifier, self._scope, start, end, metadata or b"")

    def _record(  # noqa: PLR0917 - an event has no fewer columns
        self, reason: str | None, kind: EventKind, name: object, scope: tuple[int, int], start: int, end: int, metadata: bytes
    ) -> None:
        chain, handle = scope
        if reason is None and self._open is None:
            reason = "no_block"
        if reason is None and not -1 <= chain <= 255:
            reason = "chain_out_of_range"
        if reason is not None or self._open is None:
            self.drops[reason or ""] += 1
            return
        inside = chain != -1 and handle < 2**31
        if kind is EventKind.SCOPE:
            kind = EventKind.RUNTIME if not inside else EventKind.CALL if name in CALL_NAMES else EventKind.SCOPE
        place = (handle, chain) if inside else (NO_INSTRUCTION, 0)
        assert isinstance(name, int | str)
        self._open.rows.append((kind, name, *place, start, (end - start) % U64, metadata))

    def _tick(self) -> None:
        self._now = (self._now + 1) % U64


@dataclass
class Received:
    """What came out of a program: blocks by position, drops as the requests tell them, and the requests themselves."""

    blocks: dict[int, Heard] = field(default_factory=dict)
    drops: Counter[str] = field(default_factory=Counter)
    bodies: list[bytes] = field(default_factory=list)

    @property
    def rows(self) -> list[Row]:
        """All events."""
        return [row for block in self.blocks.values() for row in block.rows]


def undelimited(data: bytes) -> list[bytes]:
    """The messages of a length-delimited file."""
    bodies, at = [], 0
    while at < len(data):
        size, at = _DecodeVarint(data, at)
        bodies.append(data[at : at + size])
        assert len(bodies[-1]) == size
        at += size
    return bodies


def received(bodies: Sequence[bytes]) -> Received:
    """What the bridge hears from these requests of one stream."""
    heard = Received(bodies=list(bodies))
    parts: dict[int, int] = {}
    for number, body in enumerate(bodies):
        admitted = admitted_bytes(body)
        assert (admitted.rejected, admitted.first_rejection) == ({}, "")
        assert admitted.batch.streams[0].sequence == number
        heard.drops.update(admitted.sender_dropped)
        for index, block in enumerate(admitted.batch.blocks):
            rows = rows_of(admitted.batch, index)
            if block.part is None:
                assert block.position not in heard.blocks
                heard.blocks[block.position] = Heard(block.kind, block.name)
            else:
                whole = heard.blocks.setdefault(block.position, Heard(block.kind, block.name))
                assert parts.setdefault(block.position, 0) == block.part.number
                assert block.part.first_event == len(whole.rows)
                parts[block.position] = -1 if block.part.last else block.part.number + 1
                _check_occurrences(admitted.batch, index, whole.rows)
            said = heard.blocks[block.position]
            said.method, said.run_index, said.attributes = block.method, block.run_index, block.attributes
            said.error = block.error
            if block.context is not None:
                said.context = f"{block.context.trace_id.hex()} {block.context.span_id.hex()} {block.context.state}"
            said.rows += rows
    assert all(state == -1 for state in parts.values())
    return heard


def rows_of(batch: EventBatch, block: int) -> list[Row]:
    """The events of a block."""
    rows = range(batch.bounds[block], batch.bounds[block + 1])
    return [
        (
            EventKind(batch.kind[row]),
            batch.names[batch.name[row]],
            int(batch.instruction[row]),
            int(batch.chain[row]),
            int(batch.start[row]),
            int(batch.duration[row]),
            batch.payloads[batch.metadata[row]],
        )
        for row in rows
    ]


def _check_occurrences(batch: EventBatch, block: int, before: Sequence[Row]) -> None:
    """Each event of a part says how often its instruction had been completed before (docs/protocol.md, "Parts")."""
    completed: Counter[tuple[int, int]] = Counter()
    counted = []
    here = rows_of(batch, block)
    for kind, _, instruction, chain, *_ in [*before, *here]:
        counted.append(completed[instruction, chain] if instruction != NO_INSTRUCTION else 0)
        completed[instruction, chain] += kind is EventKind.CALL
    assert batch.occurrence is not None
    said = batch.occurrence[batch.bounds[block] : batch.bounds[block + 1]].tolist()
    assert said == counted[len(before) :]
