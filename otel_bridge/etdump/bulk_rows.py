"""
What the events of a large ETDump become: the rules of read.py, a column at a time.

Text is the one thing that is looked at event by event: equal names must be found, and they stand in the file once for each.
"""

from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otel_bridge.etdump.limits import MAX_CHAIN, MAX_NAME_BYTES
from otel_bridge.etdump.result import Rejection, Rejections
from otel_bridge.etdump.tables import Texts
from otel_bridge.model.events import CALL_NAMES, NO_INSTRUCTION, EventKind, Identifier
from otel_bridge.model.ticks import Ticks

_UNSET_ID = -1


@dataclass(frozen=True, slots=True, eq=False)
class Logged:
    """
    The k profiling events of a file as they stand in it.

    rows     int64[k]   number of each among all events of the file
    others   events that are none: number, and what they are
    """

    rows: NDArray[np.int64]
    others: list[tuple[int, Rejection]]
    name: Texts
    chain: NDArray[np.int64]
    instruction: NDArray[np.int64]
    id_int: NDArray[np.int64]
    id_str: Texts
    metadata: Texts
    start: NDArray[np.uint64]
    end: NDArray[np.uint64]


def columns_of(data: bytes, logged: Logged, bounds: NDArray[np.int64]) -> tuple[dict[str, Any], Rejections]:
    """
    Columns and tables of a batch, and the events that are not in it.

    `bounds` is int64[m + 1]: the events of block b are bounds[b] to bounds[b + 1].
    """
    by_number = logged.id_int != _UNSET_ID
    by_text = ~by_number & (logged.id_str.length > 0)
    text = Texts(
        np.where(by_text, logged.id_str.at, logged.name.at), np.where(by_text, logged.id_str.length, logged.name.length)
    )
    bad_chain = (logged.chain < -1) | (logged.chain > MAX_CHAIN)
    too_long = ~by_number & ~bad_chain & (text.length > MAX_NAME_BYTES)
    kept = ~(bad_chain | too_long)
    keys = _keys(data, logged, text, by_number, kept)
    names, number, faults = _numbered(keys)

    found = [*_described(logged.rows, bad_chain, Rejection.CHAIN_OUT_OF_RANGE, logged.chain)]
    found += _described(logged.rows, too_long, Rejection.NAME_TOO_LONG, text.length)
    rows = kept.nonzero()[0]
    faulty = number < 0
    found += [(row, *faults[key]) for row, key in zip(logged.rows[rows[faulty]].tolist(), compress(keys, faulty), strict=True)]
    rows, number = rows[~faulty], number[~faulty]
    rejections = _account(bounds, found, logged.others)

    all_events = np.zeros(int(bounds[-1]) + 1, np.int64)
    all_events[logged.rows[rows] + 1] = 1
    chain, instruction = logged.chain[rows], logged.instruction[rows]
    inside = (chain >= 0) & (instruction >= 0)
    calls = np.array([isinstance(name, str) and name in CALL_NAMES for name in names] or [False], np.bool_)
    own = np.where(inside, np.where(calls[number], int(EventKind.CALL), int(EventKind.SCOPE)), int(EventKind.RUNTIME))
    payloads, metadata = _payloads(data, logged.metadata, rows)
    columns = {
        "names": names,
        "payloads": payloads,
        "bounds": all_events.cumsum()[bounds],
        "kind": np.where((by_number | by_text)[rows], int(EventKind.DELEGATE), own).astype(np.uint8),
        "instruction": np.where(inside, instruction, NO_INSTRUCTION).astype(np.int32),
        "chain": np.where(inside, chain, 0).astype(np.uint8),
        "name": number.astype(np.uint32),
        "ticks": Ticks(logged.start[rows], logged.end[rows] - logged.start[rows]),
        "metadata": metadata,
    }
    return columns, rejections


def contents(data: bytes, texts: Texts) -> list[bytes]:
    """The bytes of each text. Those that many share are copied once, where together they would exceed the file."""
    if int(texts.length.sum()) > len(data):
        at, first, which = np.unique(texts.at, return_index=True, return_inverse=True)
        return list(map(contents(data, Texts(at, texts.length[first])).__getitem__, which.tolist()))
    begin = texts.at + 4
    return [data[first:last] for first, last in zip(begin.tolist(), (begin + texts.length).tolist(), strict=True)]


def _keys(data: bytes, logged: Logged, text: Texts, by_number: NDArray[np.bool_], kept: NDArray[np.bool_]) -> list[int | bytes]:
    """What each event that is kept goes by, as it stands in the file."""
    worded = kept & ~by_number
    words = contents(data, Texts(text.at[worded], text.length[worded]))
    if not by_number.any():
        return [*words]
    keys: list[int | bytes] = logged.id_int[kept].tolist()
    for place, word in zip(worded[kept].nonzero()[0].tolist(), words, strict=True):
        keys[place] = word
    return keys


def _numbered(
    keys: list[int | bytes],
) -> tuple[tuple[Identifier, ...], NDArray[np.int64], dict[int | bytes, tuple[Rejection, int]]]:
    """The names that events go by, the number of each event's (negative: it has none), and the keys that are no names."""
    numbers: dict[int | bytes, int] = dict.fromkeys(keys, -1)
    names: list[Identifier] = []
    faults: dict[int | bytes, tuple[Rejection, int]] = {}
    for key in numbers:
        name = key if isinstance(key, int) else _decode(key)
        if isinstance(name, tuple):
            faults[key] = name
        else:
            numbers[key] = len(names)
            names.append(name)
    return tuple(names), np.array(list(map(numbers.__getitem__, keys)), np.int64), faults


def _decode(text: bytes) -> str | tuple[Rejection, int]:
    try:
        return text.decode() if text else (Rejection.UNNAMED, 0)
    except UnicodeDecodeError:
        return Rejection.NOT_UTF8, len(text)


def _payloads(data: bytes, metadata: Texts, rows: NDArray[np.int64]) -> tuple[tuple[bytes, ...], NDArray[np.uint32]]:
    column = np.zeros(len(rows), np.uint32)
    there = metadata.length[rows].nonzero()[0]
    if not len(there):
        return (b"",), column
    found = contents(data, Texts(metadata.at[rows[there]], metadata.length[rows[there]]))
    numbers = {payload: number for number, payload in enumerate(dict.fromkeys([b"", *found]))}
    column[there] = list(map(numbers.__getitem__, found))
    return tuple(numbers), column


def _described(
    rows: NDArray[np.int64], chosen: NDArray[np.bool_], reason: Rejection, found: NDArray[np.int64]
) -> list[tuple[int, Rejection, int]]:
    return [(row, reason, number) for row, number in zip(rows[chosen].tolist(), found[chosen].tolist(), strict=True)]


def _account(
    bounds: NDArray[np.int64], faulty: list[tuple[int, Rejection, int]], others: list[tuple[int, Rejection]]
) -> Rejections:
    """The ledger of the events that are not taken, in the order of the file."""
    rejections = Rejections()
    found = sorted([*faulty, *((row, reason, 0) for row, reason in others)])
    if not found:
        return rejections
    blocks = np.searchsorted(bounds, [row for row, _, _ in found], "right") - 1
    for (row, reason, number), block in zip(found, blocks.tolist(), strict=True):
        rejections.add(reason, block, row - int(bounds[block]), number)
    return rejections
