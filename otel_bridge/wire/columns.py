"""The columns of a request, checked and made into an `EventBatch`. Part of admission; pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otel_bridge.errors import MalformedRequest
from otel_bridge.model.events import NO_INSTRUCTION, Block, EventBatch, EventKind
from otel_bridge.model.stream import Stream
from otel_bridge.model.ticks import AnyTicks, SentNumbers, SentTicks, Ticks
from otel_bridge.wire.frame import COLUMNS, Frame
from otel_bridge.wire.names import Names
from otel_bridge.wire.shape import MAX_CHAIN, Columns, Shape

_MAX_METADATA_BYTES = 16 << 20
_WHOLE = {"kind", "instruction", "identifier", "start_delta", "duration"}
"""Columns that have every row; others have every row or none."""
_FEW_NAMES = 64
"""So many are looked up one by one: for an index numpy lets go of the interpreter, and waits to get it back."""
_OUTSIDE = (EventKind.RUNTIME.value, EventKind.DELEGATE.value)
"""Kinds of events that may be of no instruction."""


@dataclass(slots=True)
class _Sieve:
    """Rows that may go on, and the account of those that may not."""

    kept: NDArray[np.bool_]
    rejected: dict[str, int] = field(default_factory=dict)
    first_rejection: str = ""

    def reject(self, bad: NDArray[np.bool_], reason: str, describe: Callable[[int], str]) -> None:
        """Take rows out; one that is out already is not counted again."""
        bad = bad & self.kept
        count = int(bad.sum())
        if count:
            self.rejected[reason] = self.rejected.get(reason, 0) + count
            self.first_rejection = self.first_rejection or describe(int(np.flatnonzero(bad)[0]))
            self.kept &= ~bad


def batch_of(
    frame: Frame, stream: Stream, blocks: tuple[Block, ...], counts: Sequence[int]
) -> tuple[EventBatch, dict[str, int], str]:
    """
    The events of a request as a batch, events rejected by reason, and the first rejection as text ("": none).

    `counts` are the events of each block. Raises `MalformedRequest` where the columns do not fit each other or the blocks.
    """
    shape = frame.shape
    split = any(block.part is not None for block in blocks)
    _check_lengths(frame, split=split)
    bounds = np.array([0, *accumulate(counts)], np.int64)
    if sum(counts) != len(shape):
        raise MalformedRequest(
            f"blocks: their event_count adds up to {sum(counts)}, and events.kind has {len(shape)} entries; "
            "each event belongs to one block"
        )
    payloads = (b"", *frame.metadata)
    columns: dict[str, Any] = {
        "kind": shape.kind,
        "instruction": shape.instruction,
        "chain": shape.chain,
        "name": shape.name,
        "ticks": _ticks(frame.times, shape, stream),
        "clock": shape.clock,
        "metadata": shape.metadata,
    }
    if split:
        columns["occurrence"] = shape.occurrence
    rejected: dict[str, int] = {}
    first_rejection = ""
    if len(shape) and not _is_sound(frame, stream, payloads):
        sieve = _Sieve(np.ones(len(shape), np.bool_))
        given = {name: column for name, column in frame.columns.items() if len(column)}
        wide = {name: column if name == "duration" else column.astype(np.int64) for name, column in given.items()}
        _check(wide, sieve, frame.names, stream, payloads)
        rejected, first_rejection = sieve.rejected, sieve.first_rejection
        columns = {name: column[sieve.kept] for name, column in columns.items()}
        bounds = np.concatenate(([0], np.cumsum(sieve.kept)))[bounds]
    if b"" in payloads[1:]:
        empty = np.array([not payload for payload in payloads], np.bool_)
        columns["metadata"] = np.where(empty[columns["metadata"]], np.uint32(0), columns["metadata"])
    batch = EventBatch((stream,), blocks, frame.names.names, payloads, bounds, **columns)
    return batch, rejected, first_rejection


def _check_lengths(frame: Frame, *, split: bool) -> None:
    """Raise `MalformedRequest` where a column has neither every row nor, if it may be left out, none."""
    n = len(frame.shape)
    times = frame.times
    is_whole = isinstance(times, SentTicks) or len(times.start_delta) == n == len(times.duration)
    if is_whole and frame.shape.even and (not split or len(frame.shape.occurrence) == n):
        return
    whole = _WHOLE | {"occurrence"} if split else _WHOLE
    columns = frame.columns
    for name in COLUMNS:
        entries = len(columns[name])
        if entries != n and (entries or name in whole):
            raise MalformedRequest(
                f"events.{name}: has {entries} entries, and events.kind has {n}; "
                f"it must have as many{'' if name in whole else ', or none'}"
            )


def _is_sound(frame: Frame, stream: Stream, payloads: tuple[bytes, ...]) -> bool:
    """Whether no row can be rejected: what `_check` looks for row by row, asked of what is known of the shape."""
    shape, names = frame.shape, frame.names
    return (
        shape.sound
        and names.sound
        and shape.most_name < len(names)
        and shape.most_clock < len(stream.clocks)
        and shape.most_metadata < len(payloads)
        and (len(payloads) == 1 or max(map(len, payloads)) <= _MAX_METADATA_BYTES)
        and not _is_any_a_number(shape.plain, names.number)
    )


def _is_any_a_number(plain: NDArray[np.uint32], number: bytes) -> bool:
    if b"\x01" not in number:
        return False
    if len(plain) <= _FEW_NAMES:
        return 1 in map(number.__getitem__, plain.tolist())
    return b"\x01" in np.frombuffer(number, np.uint8)[plain].tobytes()


def _check(
    columns: Columns,
    sieve: _Sieve,
    names: Names,
    stream: Stream,
    payloads: tuple[bytes, ...],
) -> None:
    kind, instruction, index = columns["kind"], columns["instruction"], columns["identifier"]

    def found(column: str, rule: str) -> Callable[[int], str]:
        return lambda row: f"events.{column}[{row}]: is {int(columns[column][row])}; {rule}"

    sieve.reject((kind < 1) | (kind > len(EventKind)), "unknown_kind", found("kind", "it must be one of EventKind"))
    unknown = index >= len(names)
    rule = f"request.identifiers has {len(names)} entries; send the whole table with every request"
    sieve.reject(unknown, "identifier_index", found("identifier", rule))
    if not names.sound:
        _check_names(index, unknown, sieve, names.faults)
    bad = (instruction < NO_INSTRUCTION) | ((instruction == NO_INSTRUCTION) & ~np.isin(kind, _OUTSIDE))
    sieve.reject(bad, "no_instruction", found("instruction", "a CALL or SCOPE is of an instruction, from 0; else send -1"))
    if "chain" in columns:
        bad = columns["chain"] > MAX_CHAIN
        sieve.reject(bad, "chain_out_of_range", found("chain", f"it must be 0 to {MAX_CHAIN}"))
    if "clock" in columns:
        clocks = len(stream.clocks)
        sieve.reject(columns["clock"] >= clocks, "clock_index", found("clock", f"the stream has {clocks} clocks"))
    if "metadata" in columns:
        _check_metadata(columns["metadata"], sieve, payloads, found)
    _check_numbers(columns, sieve, names)


def _check_metadata(
    index: NDArray[np.int64], sieve: _Sieve, payloads: tuple[bytes, ...], found: Callable[[str, str], Callable[[int], str]]
) -> None:
    sieve.reject(index >= len(payloads), "metadata_index", found("metadata", f"the table has {len(payloads) - 1}"))
    large = np.array([len(payload) > _MAX_METADATA_BYTES for payload in payloads], np.bool_)
    if large.any():
        rule = f"that entry is over {_MAX_METADATA_BYTES} bytes"
        sieve.reject(large[np.minimum(index, len(payloads) - 1)], "metadata_too_large", found("metadata", rule))


def _check_names(
    index: NDArray[np.int64], unknown: NDArray[np.bool_], sieve: _Sieve, faults: tuple[tuple[str, str], ...]
) -> None:
    safe = np.where(unknown, 0, index)
    for reason in dict.fromkeys(reason for reason, _ in faults if reason):
        faulty = np.array([found == reason for found, _ in faults], np.bool_)
        sieve.reject(
            faulty[safe] & ~unknown,
            reason,
            lambda row: f"identifiers[{int(index[row])}], used by event {row}: {faults[int(index[row])][1]}",
        )


def _check_numbers(columns: Columns, sieve: _Sieve, names: Names) -> None:
    """Only delegates go by numbers; to be called when rows with an unknown or faulty name are out."""
    number = np.frombuffer(names.number or b"\0", np.bool_)
    index = np.minimum(columns["identifier"], len(number) - 1)
    sieve.reject(
        (columns["kind"] != EventKind.DELEGATE) & number[index],
        "numeric_name",
        lambda row: f"identifiers[{int(index[row])}], used by event {row}: is a number; only a DELEGATE event goes by one",
    )


def _ticks(times: SentTicks | SentNumbers, shape: Shape, stream: Stream) -> AnyTicks:
    """As they came where that is all there is to know: of one clock."""
    if isinstance(times, SentTicks) and shape.most_clock < 1:
        return times
    delta, duration = times.numbers if isinstance(times, SentTicks) else times
    return Ticks(_starts(delta, shape, stream), duration)


def _starts(delta: NDArray[np.int64], shape: Shape, stream: Stream) -> NDArray[np.uint64]:
    """Start ticks: running sums per clock, modulo 2^64. Rows that are rejected count too: the next delta builds on them."""
    steps = delta.view(np.uint64)
    if shape.most_clock < 1:
        return steps.cumsum()
    clock = np.minimum(shape.columns["clock"].astype(np.int64), len(stream.clocks))  # beyond: rejected rows
    start = np.zeros(len(steps), np.uint64)
    for index in np.unique(clock):
        rows = clock == index
        start[rows] = np.cumsum(steps[rows], dtype=np.uint64)
    return start
