"""A bad event costs only itself, and is counted under the reason."""

from collections.abc import Callable

import pytest
from support.etdump_writer import AllocationEvent, DebugEvent, EmptyEvent, Event, ProfileEvent, RunData, write_etdump

from otel_bridge.etdump.result import ETDump

Reader = Callable[[bytes], ETDump]

GOOD = ProfileEvent(name="good", chain=0, instruction=0)

BAD: list[tuple[Event, str]] = [
    (DebugEvent(chain=2**64 - 1, instruction=0, name="output"), "debug_event"),
    (AllocationEvent(allocator=1, size=64), "allocation_event"),
    (EmptyEvent(), "empty_event"),
    (ProfileEvent(start=1, end=2), "unnamed"),
    (ProfileEvent(name="", id_str="", id_int=-1), "unnamed"),
    (ProfileEvent(name=b"caf\xe9"), "not_utf8"),
    (ProfileEvent(id_str=b"\xff\xfe", name="fine"), "not_utf8"),
    (ProfileEvent(id_str=b"\xed\xa0\x80"), "not_utf8"),
    (ProfileEvent(name="x" * 4097), "name_too_long"),
    (ProfileEvent(id_str=b"\xff" * 5000), "name_too_long"),
    (ProfileEvent(name="x", chain=-2), "chain_out_of_range"),
    (ProfileEvent(name="x", chain=256), "chain_out_of_range"),
    (ProfileEvent(id_int=1, chain=-(2**31)), "chain_out_of_range"),
]


@pytest.mark.parametrize(("event", "reason"), BAD)
def test_a_bad_event_costs_only_itself(event: Event, reason: str, read_etdump: Reader) -> None:
    """Its neighbours stand in the batch, it is counted once under its reason, and the message says which one it was."""
    dump = read_etdump(write_etdump([RunData(events=[GOOD]), RunData(events=[GOOD, event, GOOD])]))
    assert dump.batch.bounds.tolist() == [0, 1, 3]
    assert dump.batch.names == ("good",)
    assert dump.rejected == {reason: 1}
    assert dump.first_rejection is not None
    assert dump.first_rejection.startswith("block 1, event 1: ")


def test_the_first_rejection_is_the_first_fault(read_etdump: Reader) -> None:
    """Debug and allocation events are no faults: they are described only where there is nothing worse."""
    events: list[Event] = [DebugEvent(), AllocationEvent(), ProfileEvent(name="x", chain=999), ProfileEvent()]
    dump = read_etdump(write_etdump([RunData(events=events)]))
    assert dump.rejected == {"debug_event": 1, "allocation_event": 1, "chain_out_of_range": 1, "unnamed": 1}
    assert dump.first_rejection == ("block 0, event 2: its chain index is 999; write -1 (outside any instruction) or 0 to 255")
    harmless = read_etdump(write_etdump([RunData(events=events[:2])]))
    assert harmless.first_rejection == "block 0, event 0: a debug_event gives no span; ExecuTorch's own tools read it"


@pytest.mark.parametrize("text", [b"\x1b[31m\xff", b"\x00\xff", b"\n\xff"])
def test_a_message_never_repeats_foreign_bytes(text: bytes, read_etdump: Reader) -> None:
    """What a device logged does not reach a terminal or a log through a rejection."""
    message = read_etdump(write_etdump([RunData(events=[ProfileEvent(name=text)])])).first_rejection
    assert message is not None
    assert message.isprintable()
    assert f"({len(text)} bytes) is not UTF-8" in message


def test_no_event_is_lost_or_counted_twice(read_etdump: Reader) -> None:
    """Rows and rejections together are all events of the file."""
    events: list[Event] = [event for event, _ in BAD] * 3 + [GOOD] * 7
    dump = read_etdump(write_etdump([RunData(events=events)]))
    assert len(dump.batch) + sum(dump.rejected.values()) == len(events)
