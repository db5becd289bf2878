"""The columns of a request, checked and made into an `EventBatch`. Part of admission; pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otel_bridge.errors import MalformedRequest
from otel_bridge.model.events import NO_INSTRUCTION, Block, EventBatch, EventKind
from otel_bridge.model.stream import Stream
from otel_bridge.wire.frame import COLUMNS, Columns, Frame
from otel_bridge.wire.names import Names

_MAX_METADATA_BYTES = 16 << 20
_MAX_CHAIN = 255
_WHOLE = {"kind", "instruction", "identifier", "start_delta", "duration"}
"""Columns that have every row; others have every row or none."""
_OUTSIDE = (EventKind.RUNTIME.value, EventKind.DELEGATE.value)
"""Kinds of events that may be of no instruction."""
_DELEGATE = EventKind.DELEGATE.value
_KINDS = len(EventKind)


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
    columns = _fitting(frame.columns, split=any(block.part is not None for block in blocks))
    n = len(columns["kind"])
    bounds = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(np.array(counts, np.int64), out=bounds[1:])
    if int(bounds[-1]) != n:
        raise MalformedRequest(
            f"blocks: their event_count adds up to {int(bounds[-1])}, and events.kind has {n} entries; "
            "each event belongs to one block"
        )
    payloads = (b"", *frame.metadata)
    start = _starts(columns["start_delta"], columns.get("clock"), len(stream.clocks))
    rejected: dict[str, int] = {}
    first_rejection = ""
    if n and not _is_sound(columns, frame.names, stream, payloads):
        sieve = _Sieve(np.ones(n, np.bool_))
        wide = {name: column if name == "duration" else column.astype(np.int64) for name, column in columns.items()}
        _check(wide, sieve, frame.names, stream, payloads)
        rejected, first_rejection = sieve.rejected, sieve.first_rejection
        columns = {name: column[sieve.kept] for name, column in columns.items()}
        start = start[sieve.kept]
        bounds = np.concatenate(([0], np.cumsum(sieve.kept)))[bounds]
    kind, instruction = columns["kind"].astype(np.uint8), columns["instruction"].astype(np.int32)
    instruction[kind == EventKind.RUNTIME] = NO_INSTRUCTION
    metadata = _column(columns, "metadata", np.uint32)
    if b"" in frame.metadata:
        metadata[np.array([not payload for payload in payloads], np.bool_)[metadata]] = 0
    batch = EventBatch(
        streams=(stream,),
        blocks=blocks,
        names=frame.names.names,
        payloads=payloads,
        bounds=bounds,
        kind=kind,
        instruction=instruction,
        chain=_column(columns, "chain", np.uint8),
        name=_column(columns, "identifier", np.uint32),
        start=start,
        duration=_column(columns, "duration", np.uint64),
        clock=_column(columns, "clock", np.uint8),
        metadata=metadata,
        occurrence=_column(columns, "occurrence", np.uint32) if "occurrence" in columns else None,
    )
    return batch, rejected, first_rejection


def _column(columns: Columns, name: str, dtype: type[np.unsignedinteger[Any]]) -> NDArray[Any]:
    return columns[name].astype(dtype) if name in columns else np.zeros(len(columns["kind"]), dtype)


def _fitting(columns: Columns, *, split: bool) -> dict[str, NDArray[Any]]:
    """The columns that say something: those that are left out, and occurrences of whole inferences, are not there."""
    n = len(columns["kind"])
    whole = _WHOLE | {"occurrence"} if split else _WHOLE
    for name in COLUMNS:
        entries = len(columns[name])
        if entries != n and (entries or name in whole):
            raise MalformedRequest(
                f"events.{name}: has {entries} entries, and events.kind has {n}; "
                f"it must have as many{'' if name in whole else ', or none'}"
            )
    return {name: columns[name] for name in COLUMNS if name in whole or (len(columns[name]) and name != "occurrence")}


def _is_sound(columns: Columns, names: Names, stream: Stream, payloads: tuple[bytes, ...]) -> bool:
    """Whether no row can be rejected: what `_check` looks for row by row, asked of whole columns."""
    kind, instruction, index = columns["kind"], columns["instruction"], columns["identifier"]
    if not names.sound or kind.min() < 1 or kind.max() > _KINDS or index.max() >= len(names):
        return False
    lowest = instruction.min()
    if lowest < NO_INSTRUCTION:
        return False
    if lowest == NO_INSTRUCTION and ((instruction == NO_INSTRUCTION) & (kind != _OUTSIDE[0]) & (kind != _OUTSIDE[1])).any():
        return False
    if names.numbers and (names.number[index] & (kind != _DELEGATE)).any():
        return False
    return (
        ("chain" not in columns or columns["chain"].max() <= _MAX_CHAIN)
        and ("clock" not in columns or columns["clock"].max() < len(stream.clocks))
        and ("metadata" not in columns or columns["metadata"].max() < len(payloads))
        and max(map(len, payloads)) <= _MAX_METADATA_BYTES
    )


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
        bad = columns["chain"] > _MAX_CHAIN
        sieve.reject(bad, "chain_out_of_range", found("chain", f"it must be 0 to {_MAX_CHAIN}"))
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
    index = np.minimum(columns["identifier"], len(names.number) - 1)
    sieve.reject(
        (columns["kind"] != EventKind.DELEGATE) & names.number[index],
        "numeric_name",
        lambda row: f"identifiers[{int(index[row])}], used by event {row}: is a number; only a DELEGATE event goes by one",
    )


def _starts(delta: NDArray[Any], clock: NDArray[Any] | None, clocks: int) -> NDArray[np.uint64]:
    """Start ticks: running sums per clock, modulo 2^64. Rows that are rejected count too: the next delta builds on them."""
    steps = delta.astype(np.int64, copy=False).view(np.uint64)
    if clock is None or not clock.any():
        return np.cumsum(steps, dtype=np.uint64)
    clock = np.minimum(clock.astype(np.int64), clocks)  # beyond: rejected rows
    start = np.zeros(len(steps), np.uint64)
    for index in np.unique(clock):
        rows = clock == index
        start[rows] = np.cumsum(steps[rows], dtype=np.uint64)
    return start
