"""
Where the fields of a table are, and how all fields of a ProfileEvent are read at once.

    table:  [to the vtable: i32][fields ...]     the vtable stands at the table's place minus that number
    vtable: [its bytes: u16][the table's bytes: u16][offset of field 0 in the table: u16][of field 1] ...   0: not there

Thousands of events share one vtable, so it is compiled once, into a single `unpack`.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter

from otel_bridge.etdump.limits import malformed

# Fields in the order of their slots (devtools/etdump/etdump_schema_flatcc.fbs).
ETDUMP = ("version", "run_data")
RUN_DATA = ("name", "bundled_input_index", "allocators", "events")
EVENT = ("profile_event", "allocation_event", "debug_event")
PROFILE_EVENT = (
    "name",
    "chain_index",
    "instruction_id",
    "delegate_debug_id_int",
    "delegate_debug_id_str",
    "delegate_debug_metadata",
    "start_time",
    "end_time",
)
_PROFILE_CODES = "IiiiIIQQ"  # of `struct`; a reference is an "I"
_PROFILE_DEFAULTS = (0, 0, -1, -1, 0, 0, 0, 0)

_read_u16 = struct.Struct("<H").unpack_from


def read_vtable(data: bytes, vtable: int, slots: int) -> tuple[int, ...]:
    """
    Offsets of the first `slots` fields in the tables of the vtable at byte `vtable`; 0: the field is not there.

    Raises MalformedETDump where the vtable stands before the file or its slots pass the end, struct.error where all of it does.
    """
    if vtable < 0:
        raise malformed("a vtable", vtable, "it stands before the file")
    # 3, not 4: flatbuffers takes a slot that merely begins inside the vtable.
    there = min(slots, max(0, (_read_u16(data, vtable)[0] - 3) // 2))
    if vtable + 4 + 2 * there > len(data):
        raise malformed("a vtable", vtable, "it passes the end of the file")
    return (*struct.unpack_from(f"<{there}H", data, vtable + 4), *(0,) * (slots - there))


@dataclass(frozen=True, slots=True)
class ProfileLayout:
    """
    A vtable of ProfileEvents, compiled: `pick(unpack(data, table) + absent)` are all fields, in the order of the schema.

    `name`, `id_str` and `metadata` are the offsets of the three references in the table, 0: not there. A reference counts from
    its own place: it leads to table + offset + value.
    """

    unpack: Callable[[bytes, int], tuple[int, ...]]
    absent: tuple[int, ...]
    pick: Callable[[tuple[int, ...]], tuple[int, ...]]
    name: int
    id_str: int
    metadata: int


def read_profile_layout(data: bytes, vtable: int) -> ProfileLayout:
    """Compile the vtable at byte `vtable`. Raises as `read_vtable`, and MalformedETDump where fields overlap."""
    layout = _compile(read_vtable(data, vtable, len(PROFILE_EVENT)))
    if layout is None:
        raise malformed("the vtable of a ProfileEvent", vtable, "its fields overlap")
    return layout


@lru_cache(maxsize=256)
def _compile(offsets: tuple[int, ...]) -> ProfileLayout | None:
    """None: the fields overlap."""
    form, end, order = "<", 0, []
    for offset, slot in sorted((offset, slot) for slot, offset in enumerate(offsets) if offset):
        if offset < end:
            return None
        form += f"{offset - end}x{_PROFILE_CODES[slot]}"
        end = offset + struct.calcsize(f"<{_PROFILE_CODES[slot]}")
        order.append(slot)
    absent = [slot for slot, offset in enumerate(offsets) if not offset]
    order += absent
    return ProfileLayout(
        unpack=struct.Struct(form).unpack_from,
        absent=tuple(_PROFILE_DEFAULTS[slot] for slot in absent),
        pick=itemgetter(*map(order.index, range(len(offsets)))),
        name=offsets[PROFILE_EVENT.index("name")],
        id_str=offsets[PROFILE_EVENT.index("delegate_debug_id_str")],
        metadata=offsets[PROFILE_EVENT.index("delegate_debug_metadata")],
    )
