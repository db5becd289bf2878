"""The columns of a request, checked and made into an `EventBatch`. Part of admission; pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otel_bridge.errors import MalformedRequest
from otel_bridge.model.events import NO_INSTRUCTION, Block, EventBatch, EventKind, Identifier
from otel_bridge.model.stream import Stream
from otel_bridge.v1 import profiling_pb2 as pb

_MAX_NAME_BYTES = 4096
_MAX_METADATA_BYTES = 16 << 20
_MAX_CHAIN = 255
_MAX_INT = 2**31 - 1


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
    request: pb.ExportEventsRequest, stream: Stream, blocks: tuple[Block, ...]
) -> tuple[EventBatch, dict[str, int], str]:
    """
    The events of a request as a batch, events rejected by reason, and the first rejection as text ("": none).

    Raises `MalformedRequest` where the columns do not fit each other or the blocks.
    """
    columns = _read_columns(request, split=any(block.part is not None for block in blocks))
    n = len(columns["kind"])
    counts = np.array([block.event_count for block in request.blocks], np.int64)
    if int(counts.sum()) != n:
        raise MalformedRequest(
            f"blocks: their event_count adds up to {int(counts.sum())}, and events.kind has {n} entries; "
            "each event belongs to one block"
        )
    names, name_faults = _names(request.identifiers)
    payloads = (b"", *request.metadata)
    sieve = _Sieve(np.ones(n, np.bool_))
    _check(columns, sieve, name_faults, stream, payloads)
    _check_numbers(columns, sieve, names)
    start = _starts(columns["start_delta"], np.minimum(columns["clock"], len(stream.clocks)))  # beyond: rejected rows
    kept = sieve.kept
    kind = columns["kind"][kept].astype(np.uint8)
    empty = np.array([not payload for payload in payloads], np.bool_)
    metadata = columns["metadata"][kept]
    bounds = np.concatenate(([0], np.cumsum(kept)))[np.concatenate(([0], np.cumsum(counts)))]
    batch = EventBatch(
        streams=(stream,),
        blocks=blocks,
        names=names,
        payloads=payloads,
        bounds=bounds.astype(np.int64),
        kind=kind,
        instruction=np.where(kind == EventKind.RUNTIME, NO_INSTRUCTION, columns["instruction"][kept]).astype(np.int32),
        chain=columns["chain"][kept].astype(np.uint8),
        name=columns["identifier"][kept].astype(np.uint32),
        start=start[kept],
        duration=columns["duration"][kept].astype(np.uint64),
        clock=columns["clock"][kept].astype(np.uint8),
        metadata=np.where(empty[metadata], 0, metadata).astype(np.uint32),
        occurrence=columns["occurrence"][kept].astype(np.uint32) if "occurrence" in columns else None,
    )
    return batch, sieve.rejected, sieve.first_rejection


def _read_columns(request: pb.ExportEventsRequest, *, split: bool) -> dict[str, NDArray[Any]]:
    events = request.events
    n = len(events.kind)
    columns: dict[str, NDArray[Any]] = {"kind": np.fromiter(events.kind, np.int64, n)}
    whole = {"instruction", "identifier", "start_delta", "duration"} | ({"occurrence"} if split else set())
    for name in ("instruction", "identifier", "start_delta", "duration", "chain", "clock", "metadata", "occurrence"):
        values = getattr(events, name)
        if len(values) not in ({n} if name in whole else {0, n}):
            raise MalformedRequest(
                f"events.{name}: has {len(values)} entries, and events.kind has {n}; "
                f"it must have as many{'' if name in whole else ', or none'}"
            )
        if name == "occurrence" and not split:
            continue
        dtype = np.uint64 if name == "duration" else np.int64
        columns[name] = np.fromiter(values, dtype, n) if len(values) else np.zeros(n, dtype)
    return columns


def _names(identifiers: Sequence[pb.Identifier]) -> tuple[tuple[Identifier, ...], list[tuple[str, str]]]:
    """The table, and for each entry (reason, fault), ("", "") where it is sound; a faulty entry's name is never used."""
    names: list[Identifier] = []
    faults = []
    for identifier in identifiers:
        name, reason, fault = _name(identifier)
        names.append(name)
        faults.append((reason, fault))
    return tuple(names), faults


def _name(identifier: pb.Identifier) -> tuple[Identifier, str, str]:
    match identifier.WhichOneof("value"):
        case "number":
            number = identifier.number
            if number == -1 or not -_MAX_INT - 1 <= number <= _MAX_INT:
                return 0, "identifier_out_of_range", f"is {number}; an int identifier has 32 bits, and -1 means none"
            return number, "", ""
        case "text":
            if not 0 < len(identifier.text) <= _MAX_NAME_BYTES:
                fault = f"has {len(identifier.text)} bytes; 1 to {_MAX_NAME_BYTES} are allowed"
                return "", "name_too_long" if identifier.text else "unnamed", fault
            try:
                return identifier.text.decode("utf-8"), "", ""
            except UnicodeDecodeError as error:
                return "", "not_utf8", f"is not UTF-8 at byte {error.start}; send text, or a number"
        case _:
            return "", "unnamed", "is not set; set number or text"


def _check(
    columns: dict[str, NDArray[Any]],
    sieve: _Sieve,
    name_faults: list[tuple[str, str]],
    stream: Stream,
    payloads: tuple[bytes, ...],
) -> None:
    kind, instruction, index = columns["kind"], columns["instruction"], columns["identifier"]

    def found(column: str, rule: str) -> Callable[[int], str]:
        return lambda row: f"events.{column}[{row}]: is {int(columns[column][row])}; {rule}"

    sieve.reject((kind < 1) | (kind > len(EventKind)), "unknown_kind", found("kind", "it must be one of EventKind"))
    unknown = index >= len(name_faults)
    rule = f"request.identifiers has {len(name_faults)} entries; send the whole table with every request"
    sieve.reject(unknown, "identifier_index", found("identifier", rule))
    if any(reason for reason, _ in name_faults):
        _check_names(index, unknown, sieve, name_faults)
    bad = (instruction < NO_INSTRUCTION) | ((instruction == NO_INSTRUCTION) & np.isin(kind, (EventKind.CALL, EventKind.SCOPE)))
    sieve.reject(bad, "no_instruction", found("instruction", "a CALL or SCOPE is of an instruction, from 0; else send -1"))
    sieve.reject(columns["chain"] > _MAX_CHAIN, "chain_out_of_range", found("chain", f"it must be 0 to {_MAX_CHAIN}"))
    clocks = len(stream.clocks)
    sieve.reject(columns["clock"] >= clocks, "clock_index", found("clock", f"the stream has {clocks} clocks"))
    sieve.reject(
        columns["metadata"] >= len(payloads), "metadata_index", found("metadata", f"the table has {len(payloads) - 1}")
    )
    large = np.array([len(payload) > _MAX_METADATA_BYTES for payload in payloads], np.bool_)
    if large.any():
        reachable = np.minimum(columns["metadata"], len(payloads) - 1)
        sieve.reject(
            large[reachable], "metadata_too_large", found("metadata", f"that entry is over {_MAX_METADATA_BYTES} bytes")
        )


def _check_names(
    index: NDArray[np.int64], unknown: NDArray[np.bool_], sieve: _Sieve, name_faults: list[tuple[str, str]]
) -> None:
    safe = np.where(unknown, 0, index)
    for reason in dict.fromkeys(reason for reason, _ in name_faults if reason):
        faulty = np.array([found == reason for found, _ in name_faults], np.bool_)
        sieve.reject(
            faulty[safe] & ~unknown,
            reason,
            lambda row: f"identifiers[{int(index[row])}], used by event {row}: {name_faults[int(index[row])][1]}",
        )


def _check_numbers(columns: dict[str, NDArray[Any]], sieve: _Sieve, names: tuple[Identifier, ...]) -> None:
    """Only delegates go by numbers; to be called when rows with an unknown or faulty name are out."""
    numbers = np.array([isinstance(name, int) for name in names] or [False], np.bool_)
    index = np.minimum(columns["identifier"], len(numbers) - 1)
    sieve.reject(
        (columns["kind"] != EventKind.DELEGATE) & numbers[index],
        "numeric_name",
        lambda row: f"identifiers[{int(index[row])}], used by event {row}: is a number; only a DELEGATE event goes by one",
    )


def _starts(delta: NDArray[np.int64], clock: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Start ticks: running sums per clock, modulo 2^64. Rows that are rejected count too: the next delta builds on them."""
    steps = delta.view(np.uint64)
    if not clock.any():
        return np.cumsum(steps, dtype=np.uint64)
    start = np.zeros(len(steps), np.uint64)
    for index in np.unique(clock):
        rows = clock == index
        start[rows] = np.cumsum(steps[rows], dtype=np.uint64)
    return start
