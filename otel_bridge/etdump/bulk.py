"""
The reader of large ETDumps: all events of a file at once, a field at a time, with numpy.

Invariants
* It reads what the plain reader (read.py) reads, with an equal result, or nothing: whatever could be wrong with a file, from
  an offset that leads outside to texts that overlap, is for the plain reader to find again and to name. So no error leaves
  here, and none of the plain reader's is missed.
* No byte outside the file is read (tables.py).
* Work and memory are linear in the file: what it claims is measured before it is copied.
"""

import struct
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from otel_bridge.errors import MalformedETDump
from otel_bridge.etdump.bulk_rows import Logged, columns_of, contents
from otel_bridge.etdump.layout import ETDUMP, EVENT, PROFILE_EVENT, RUN_DATA
from otel_bridge.etdump.limits import BYTES_PER_BLOCK, BYTES_PER_EVENT, Frame, block_name
from otel_bridge.etdump.result import ETDump, Rejection
from otel_bridge.etdump.tables import Positions, Source, Texts, Unusual, require
from otel_bridge.model.events import Block, BlockKind, EventBatch
from otel_bridge.model.stream import Stream

_ABSENT = (Rejection.EMPTY_EVENT, Rejection.DEBUG_EVENT, Rejection.ALLOCATION_EVENT)
"""Of events that are no profiling event: weakest first, as fields say it."""


def read_at_once(frame: Frame, stream: Stream) -> ETDump | None:
    """The dump in a frame; None: it is for the plain reader."""
    try:
        return _read(Source(frame.data), frame.root_at, stream)
    except (Unusual, MalformedETDump, struct.error):
        return None


def _read(source: Source, root_at: int, stream: Stream) -> ETDump:
    root = source.follow(np.array([root_at]))
    blocks, _ = _entries(source, root, source.fields(root, len(ETDUMP))[ETDUMP.index("run_data")], BYTES_PER_BLOCK)
    fields = source.fields(blocks, len(RUN_DATA))
    names = source.texts(blocks, fields[RUN_DATA.index("name")])
    events, counts = _entries(source, blocks, fields[RUN_DATA.index("events")], BYTES_PER_EVENT)
    bounds = np.zeros(len(blocks) + 1, np.int64)
    counts.cumsum(out=bounds[1:])
    logged = _logged(source, events)
    _require_room(source.size, [names, logged.name, logged.id_str, logged.metadata])
    columns, rejections = columns_of(source.data, logged, bounds)
    batch = EventBatch(
        streams=(stream,), blocks=_blocks(source, names), clock=np.zeros(len(columns["kind"]), np.uint8), **columns
    )
    return ETDump(batch, rejections.counts, rejections.first)


def _entries(
    source: Source, tables: Positions, field: NDArray[np.int64], bytes_per_entry: int
) -> tuple[Positions, NDArray[np.int64]]:
    """The tables that vectors of these tables refer to, vector by vector, and how many each has; all together are bounded."""
    at, counts = np.zeros(len(tables), np.int64), np.zeros(len(tables), np.int64)
    there = field.nonzero()[0]
    at[there] = source.follow(tables[there] + field[there])
    counts[there] = source.numbers(at[there], "<u4")
    require((at + 4 + 4 * counts)[there].max(initial=0) <= source.size)
    total = int(counts.sum())
    require(total <= source.size // bytes_per_entry)
    slots = (at + 4 - 4 * (counts.cumsum() - counts)).repeat(counts) + 4 * np.arange(total)
    return source.follow(slots), counts


def _logged(source: Source, events: Positions) -> Logged:
    profile, allocation, debug = source.fields(events, len(EVENT))
    rows = profile.nonzero()[0]
    absent = np.where(allocation > 0, 2, (debug > 0).astype(np.int64))
    tables = source.follow((events + profile)[rows])
    name, chain, instruction, id_int, id_str, metadata, start, end = source.fields(tables, len(PROFILE_EVENT), profile=True)
    return Logged(
        rows=rows,
        others=[(row, _ABSENT[absent[row]]) for row in (profile == 0).nonzero()[0].tolist()],
        name=source.texts(tables, name),
        chain=source.values(tables, chain, "<i4", 0),
        instruction=source.values(tables, instruction, "<i4", -1),
        id_int=source.values(tables, id_int, "<i4", -1),
        id_str=source.texts(tables, id_str),
        metadata=source.texts(tables, metadata),
        start=source.values(tables, start, "<u8", 0),
        end=source.values(tables, end, "<u8", 0),
    )


def _require_room(size: int, texts: Sequence[Texts]) -> None:
    """That the texts of a file fit into it: each counts once, however many events share it."""
    if sum(int(each.length.sum()) for each in texts) <= size:
        return
    at = np.concatenate([each.at for each in texts])
    length = np.concatenate([each.length for each in texts])
    first = np.unique(at, return_index=True)[1]
    require(int(length[first].sum()) <= size)


def _blocks(source: Source, names: Texts) -> tuple[Block, ...]:
    raws = contents(source.data, names)
    names_of = {raw: block_name(raw) for raw in set(raws)}
    known = {raw: (BlockKind.from_name(name), name) for raw, name in names_of.items()}
    return tuple([Block(*known[raw], number) for number, raw in enumerate(raws)])
