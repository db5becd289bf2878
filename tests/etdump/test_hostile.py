"""Files that are no ETDump, no whole ETDump, or none that a runtime wrote."""

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from support.batches import differences
from support.etdump_writer import ProfileEvent, RunData, write_etdump

from otel_bridge.errors import MalformedETDump
from otel_bridge.etdump.read import read
from otel_bridge.etdump.result import ETDump
from otel_bridge.model.stream import Stream

Reader = Callable[[bytes], ETDump]

STREAM = Stream(stream_id=bytes(range(16)))
FIXTURES = Path(__file__).parents[1] / "fixtures"
SMALL = [
    RunData("Default", [ProfileEvent(name="Method::init", chain=-1, instruction=0, start=1, end=9)]),
    RunData("Execute", [ProfileEvent(id_str="conv", chain=0, instruction=0, metadata=b"{}", start=12, end=13)]),
]
NAME, METADATA, START = 0, 5, 6
"""Slots of a ProfileEvent."""


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "0 bytes"),
        (b"\x00", "1 bytes"),
        (b"ED00", "4 bytes"),
        ((FIXTURES / "xnnpack" / "model.etrecord").read_bytes(), "ETRecord"),
        ((FIXTURES / "xnnpack" / "model.pte").read_bytes(), ".pte"),
        ((FIXTURES / "xnnpack" / "run.json").read_bytes(), "JSON"),
        (b"\x1b[31mnot a dump at all", "no ETDump"),
        (bytes(100), "no ETDump"),
    ],
    ids=["empty", "one-byte", "identifier-only", "etrecord", "pte", "json", "text", "zeros"],
)
def test_a_foreign_file_is_named_as_such(data: bytes, says: str, read_etdump: Reader) -> None:
    """What is no ETDump is refused in one printable line that says what it looks like."""
    with pytest.raises(MalformedETDump) as refusal:
        read_etdump(data)
    assert refusal.value.reason == "not_an_etdump"
    assert says in str(refusal.value)
    assert str(refusal.value).isprintable()


def test_a_cut_file_is_refused_wherever_it_was_cut(read_etdump: Reader) -> None:
    """A size-prefixed file that lacks even its last byte is refused, as truncated once the identifier is there."""
    data = write_etdump(SMALL)
    for length in range(len(data)):
        with pytest.raises(MalformedETDump) as refusal:
            read_etdump(data[:length])
        assert refusal.value.reason == ("not_an_etdump" if length < 12 else "truncated")


def test_a_cut_bare_file_is_refused_or_whole(read_etdump: Reader) -> None:
    """Without a size prefix a cut shows where something leads outside; what is accepted lacks nothing."""
    data = write_etdump(SMALL, size_prefixed=False)
    whole = read_etdump(data)
    refused = 0
    for length in range(len(data)):
        try:
            cut = read_etdump(data[:length])
        except MalformedETDump:
            refused += 1
        else:
            assert differences(cut.batch, whole.batch) == []
    assert refused > len(data) - 8  # the last string's padding and terminator


def test_a_size_prefix_too_small_for_a_header_is_refused(read_etdump: Reader) -> None:
    """The prefix rules: what lies behind its length does not exist, though it be an ETDump."""
    data = write_etdump(SMALL)
    for size in range(len(data) - 4 - 8):  # the last string's padding and terminator may go
        with pytest.raises(MalformedETDump) as refusal:
            read_etdump(struct.pack("<I", size) + data[4:])
        assert refusal.value.reason == "malformed_etdump"
        assert ("too few for a header" in str(refusal.value)) == (size < 8)


@pytest.mark.parametrize("word", [0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])
def test_an_offset_that_leads_outside_is_refused_with_its_place(word: int, read_etdump: Reader) -> None:
    """Whichever word of a file is overwritten with an extreme one: it is read or refused, and a refusal gives the byte."""
    data = write_etdump(SMALL)
    messages = []
    for at in range(12, len(data) - 3, 4):
        try:
            read_etdump(data[:at] + struct.pack("<I", word) + data[at + 4 :])
        except MalformedETDump as refusal:
            messages.append(str(refusal))
    assert len(messages) > 10
    assert all(" byte " in message and message.isprintable() for message in messages)


def test_a_table_whose_fields_overlap_is_refused() -> None:
    """The fast reader takes a table in one read, so two fields in one place are no table to it."""
    data = bytearray(write_etdump([RunData(events=[ProfileEvent(name="x", start=1, end=2)])]))
    vtable = data.index(struct.pack("<10H", 20, 24, 4, 0, 0, 0, 0, 0, 16, 8))
    struct.pack_into("<H", data, vtable + 4 + 2 * START, 8)
    with pytest.raises(MalformedETDump, match=f"byte {vtable}: its fields overlap"):
        read(bytes(data), STREAM)


@pytest.mark.parametrize(("blocks", "events"), [(1000, 1000), (1, 1000), (10, 100), (2000, 0)])
def test_an_aliasing_bomb_is_refused(blocks: int, events: int, read_etdump: Reader) -> None:
    """A file of 8 KB cannot claim more events than it has bytes for, over all its blocks, by pointing at one of them."""
    bomb = _share_tables(blocks, events).ljust(8192, b"\x00")
    with pytest.raises(MalformedETDump, match="its tables are shared") as refusal:
        read_etdump(bomb)
    assert refusal.value.reason == "too_many_events"


def test_sharing_within_bounds_is_legal(read_etdump: Reader) -> None:
    """Flatbuffers may share tables; what a file of that length could hold unshared is taken."""
    dump = read_etdump(_share_tables(blocks=5, events=10).ljust(8192, b"\x00"))
    assert dump.batch.bounds.tolist() == [0, 10, 20, 30, 40, 50]
    assert dump.batch.names == ("x",)


@pytest.mark.parametrize("slot", [NAME, METADATA])
def test_overlapping_texts_are_refused(slot: int, read_etdump: Reader) -> None:
    """Names and metadata that overlap, each at another byte, cannot add up to more bytes than the file has."""
    with pytest.raises(MalformedETDump) as refusal:
        read_etdump(_overlap_contents(slot, events=100, step=4))
    assert refusal.value.reason == "aliased"


@pytest.mark.parametrize("slot", [NAME, METADATA])
def test_a_text_that_all_events_share_is_counted_once(slot: int, read_etdump: Reader) -> None:
    """Writers may share strings: the same byte position costs its length once, however often it is named."""
    dump = read_etdump(_overlap_contents(slot, events=100, step=0))
    assert dump.rejected == {}
    assert len(dump.batch) == 100
    assert [len(dump.batch.names), len(dump.batch.payloads)] == ([1, 1] if slot == NAME else [100, 2])


def test_vtables_outside_the_file_are_refused(read_etdump: Reader) -> None:
    """The one signed offset of a table leads neither before the file nor behind it."""
    data = bytearray(write_etdump([]))
    root = 4 + struct.unpack_from("<I", data, 4)[0]
    for soffset in (root + 1, 2**31 - 1, -(2**31), root - len(data), root - len(data) + 1):
        struct.pack_into("<i", data, root, soffset)
        with pytest.raises(MalformedETDump) as refusal:
            read_etdump(bytes(data))
        assert refusal.value.reason == "malformed_etdump"


def _share_tables(blocks: int, events: int) -> bytes:
    """A bare ETDump, by hand: `blocks` times the same block, which has `events` times the same event, named "x"."""
    dump_vtable, run_vtable, event_vtable, root = 8, 16, 28, 36
    run_data = root + 12
    run = run_data + 4 + 4 * blocks
    event_vector = run + 8
    event = event_vector + 4 + 4 * events
    profile, name = event + 8, event + 16
    data = bytearray(name + 8)
    struct.pack_into("<I4s", data, 0, root, b"ED00")
    struct.pack_into("<4H", data, dump_vtable, 8, 12, 4, 8)
    struct.pack_into("<6H", data, run_vtable, 12, 8, 0, 0, 0, 4)
    struct.pack_into("<3H", data, event_vtable, 6, 8, 4)
    struct.pack_into("<iII", data, root, root - dump_vtable, 0, run_data - (root + 8))
    _pack_references(data, run_data, [run] * blocks)
    _pack_references(data, event_vector, [event] * events)
    struct.pack_into("<iI", data, run, run - run_vtable, event_vector - (run + 4))
    struct.pack_into("<iI", data, event, event - event_vtable, profile - (event + 4))
    struct.pack_into("<iI", data, profile, profile - event_vtable, name - (profile + 4))
    struct.pack_into("<I2s", data, name, 1, b"x\x00")
    return bytes(data)


def _overlap_contents(slot: int, events: int, step: int) -> bytes:
    """
    A size-prefixed ETDump whose events' `slot` is led into one region, each `step` bytes behind the one before.

    Every word of the region reads as `length`, so each place in it is a text of that many bytes, and of ASCII.
    """
    length = 321
    marks = [b"%04d" % number for number in range(events)]
    if slot == NAME:
        profile_events = [ProfileEvent(name=mark) for mark in marks]
    else:
        profile_events = [ProfileEvent(id_int=10**6 + number, metadata=mark) for number, mark in enumerate(marks)]
    data = bytearray(write_etdump([RunData(events=profile_events)]))
    region = len(data) + -len(data) % 4
    data = data.ljust(region, b"\x00") + struct.pack("<I", length) * (events + length // 4 + 1)
    for number, mark in enumerate(marks):
        text = data.index(struct.pack("<I", 4) + mark)
        reference = next(at for at in range(12, text, 4) if at + struct.unpack_from("<I", data, at)[0] == text)
        struct.pack_into("<I", data, reference, region + step * number - reference)
    struct.pack_into("<I", data, 0, len(data) - 4)
    return bytes(data)


def _pack_references(data: bytearray, vector: int, targets: list[int]) -> None:
    first = vector + 4
    struct.pack_into("<I", data, vector, len(targets))
    for number, target in enumerate(targets):
        struct.pack_into("<I", data, first + 4 * number, target - (first + 4 * number))
