"""What a profiling event becomes: sentinels, kinds, tables, times."""

from collections.abc import Callable

import pytest
from support.batches import differences
from support.etdump_writer import ProfileEvent, RunData, write_etdump

from otel_bridge.etdump.result import ETDump
from otel_bridge.model.events import CALL_NAMES, NO_INSTRUCTION, BlockKind, EventKind

Reader = Callable[[bytes], ETDump]

ROWS = [
    # event -> kind, chain, instruction, name
    (ProfileEvent(name="Method::execute", chain=-1, instruction=0), (EventKind.RUNTIME, 0, NO_INSTRUCTION, "Method::execute")),
    (ProfileEvent(name="DELEGATE_CALL", chain=-1, instruction=0), (EventKind.RUNTIME, 0, NO_INSTRUCTION, "DELEGATE_CALL")),
    (ProfileEvent(name="DELEGATE_CALL", chain=0, instruction=-1), (EventKind.RUNTIME, 0, NO_INSTRUCTION, "DELEGATE_CALL")),
    (ProfileEvent(name="DELEGATE_CALL", chain=3, instruction=-7), (EventKind.RUNTIME, 0, NO_INSTRUCTION, "DELEGATE_CALL")),
    (ProfileEvent(name="native_call_add.out", chain=0), (EventKind.RUNTIME, 0, NO_INSTRUCTION, "native_call_add.out")),
    (ProfileEvent(name="DELEGATE_CALL", chain=0, instruction=0), (EventKind.CALL, 0, 0, "DELEGATE_CALL")),
    (ProfileEvent(name="DELEGATE_CALL", instruction=5), (EventKind.CALL, 0, 5, "DELEGATE_CALL")),
    (ProfileEvent(name="OPERATOR_CALL", chain=255, instruction=2**31 - 1), (EventKind.CALL, 255, 2**31 - 1, "OPERATOR_CALL")),
    (ProfileEvent(name="native_call_add.out", chain=1, instruction=2), (EventKind.SCOPE, 1, 2, "native_call_add.out")),
    (ProfileEvent(id_int=0, chain=0, instruction=1), (EventKind.DELEGATE, 0, 1, 0)),
    (ProfileEvent(id_int=-2, chain=0, instruction=1), (EventKind.DELEGATE, 0, 1, -2)),
    (ProfileEvent(id_str="conv #1", chain=0, instruction=1), (EventKind.DELEGATE, 0, 1, "conv #1")),
    (ProfileEvent(id_str="DELEGATE_CALL", chain=0, instruction=1), (EventKind.DELEGATE, 0, 1, "DELEGATE_CALL")),
    (ProfileEvent(id_str="VGF_INIT", chain=-1, instruction=0), (EventKind.DELEGATE, 0, NO_INSTRUCTION, "VGF_INIT")),
    (ProfileEvent(id_int=7, id_str="seven", name="7"), (EventKind.DELEGATE, 0, NO_INSTRUCTION, 7)),
    (ProfileEvent(id_int=7, id_str=b"\xff", name=b"\xff"), (EventKind.DELEGATE, 0, NO_INSTRUCTION, 7)),
    (ProfileEvent(id_int=-1, id_str="seven", name="n"), (EventKind.DELEGATE, 0, NO_INSTRUCTION, "seven")),
    (ProfileEvent(id_int=-1, id_str="", name="JF_CALL", instruction=4), (EventKind.CALL, 0, 4, "JF_CALL")),
    (ProfileEvent(id_str="größe", instruction=4), (EventKind.DELEGATE, 0, 4, "größe")),
    (ProfileEvent(id_str="x" * 4096, instruction=4), (EventKind.DELEGATE, 0, 4, "x" * 4096)),
]


@pytest.mark.parametrize(("event", "row"), ROWS)
def test_sentinels_end_at_the_door(
    event: ProfileEvent, row: tuple[EventKind, int, int, int | str], read_etdump: Reader
) -> None:
    """Unset ids, chains and instructions become a kind, a name and "no instruction"; an int identifier wins over a str."""
    dump = read_etdump(write_etdump([RunData(events=[event])]))
    batch = dump.batch
    assert dump.rejected == {}
    assert dump.first_rejection is None
    assert (batch.kind[0], batch.chain[0], batch.instruction[0], batch.names[batch.name[0]]) == row


@pytest.mark.parametrize("name", sorted(CALL_NAMES))
def test_instructions_are_calls(name: str, read_etdump: Reader) -> None:
    """Each of ExecuTorch's instruction names is a call where an instruction is set."""
    assert read_etdump(write_etdump([RunData(events=[ProfileEvent(name=name, instruction=0)])])).batch.kind.tolist() == [
        EventKind.CALL
    ]


@pytest.mark.parametrize(
    ("start", "end", "duration"),
    [
        (None, None, 0),
        (5, 12, 7),
        (5, 5, 0),
        (12, 5, 2**64 - 7),
        (0, 2**64 - 1, 2**64 - 1),
        (2**64 - 1, 1, 2),
    ],
)
def test_durations_are_modulo_2_to_the_64(start: int | None, end: int | None, duration: int, read_etdump: Reader) -> None:
    """`start + duration` is the end modulo 2^64, also where the counter wrapped or the event ended before it began."""
    batch = read_etdump(write_etdump([RunData(events=[ProfileEvent(name="x", start=start, end=end)])])).batch
    assert (batch.start[0], batch.duration[0]) == (start or 0, duration)


def test_tables_hold_distinct_values_in_the_order_of_rows(read_etdump: Reader) -> None:
    """Equal names and payloads share an entry, `1` and `"1"` do not; payload 0 is b"", for absent and for empty metadata."""
    events = [
        ProfileEvent(id_str="1", metadata=b"\x00\xff"),
        ProfileEvent(id_int=1, metadata=b""),
        ProfileEvent(name="b"),
        ProfileEvent(id_str="1", metadata=b"other"),
        ProfileEvent(name="1", metadata=b"\x00\xff"),
    ]
    batch = read_etdump(write_etdump([RunData(events=events[:2]), RunData(events=events[2:])])).batch
    assert batch.names == ("1", 1, "b")
    assert [type(name) for name in batch.names] == [str, int, str]
    assert batch.name.tolist() == [0, 1, 2, 0, 0]
    assert batch.payloads == (b"", b"\x00\xff", b"other")
    assert batch.metadata.tolist() == [1, 0, 0, 2, 1]


def test_names_and_payloads_of_rejected_events_leave_no_trace(read_etdump: Reader) -> None:
    """The tables hold only what rows use."""
    events = [ProfileEvent(name="gone", metadata=b"gone", chain=-2), ProfileEvent(id_str=b"\xff", metadata=b"gone")]
    batch = read_etdump(write_etdump([RunData(events=events)])).batch
    assert (batch.names, batch.payloads, len(batch)) == ((), (b"",), 0)


def test_a_block_each(read_etdump: Reader) -> None:
    """Every `RunData` is one block, in file order, also one without events; its kind follows from its name."""
    one = [ProfileEvent(name="x")]
    names = ["Default", "Execute", "warm-up", None, b"caf\xc3\xa9 \xff", "y" * 5000]
    blocks = [RunData(name, one * (n % 3)) for n, name in enumerate(names)] + [RunData("none", None)]
    batch = read_etdump(write_etdump(blocks)).batch
    assert [block.name for block in batch.blocks] == ["Default", "Execute", "warm-up", "", "café \\xff", "y" * 4096, "none"]
    assert [block.kind for block in batch.blocks] == [BlockKind.LOAD, BlockKind.EXECUTE, *[BlockKind.OTHER] * 5]
    assert [block.position for block in batch.blocks] == list(range(7))
    assert batch.bounds.tolist() == [0, 0, 1, 3, 3, 4, 6, 6]
    assert {block.stream for block in batch.blocks} == {0}


@pytest.mark.parametrize("blocks", [None, []])
def test_a_dump_without_blocks_is_an_empty_batch(blocks: list[RunData] | None, read_etdump: Reader) -> None:
    """An ETDump that holds nothing is no error, and its columns have their types."""
    dump = read_etdump(write_etdump(blocks))
    assert (len(dump.batch), dump.batch.blocks, dump.batch.bounds.tolist()) == (0, (), [0])
    full = read_etdump(write_etdump([RunData(events=[ProfileEvent(name="x")])])).batch
    columns = [name for name in differences(dump.batch, full) if name not in ("blocks", "names")]
    assert all(getattr(dump.batch, name).dtype == getattr(full, name).dtype for name in columns)


def test_a_bare_dump_reads_as_a_size_prefixed_one(read_etdump: Reader) -> None:
    """What ExecuTorch's `serialize_to_etdump_flatcc` writes, without size prefix, is read like what a runtime writes."""
    blocks = [RunData("Default", [ProfileEvent(name="Method::init", chain=-1)]), RunData(events=[ProfileEvent(id_int=3)])]
    bare, prefixed = (write_etdump(blocks, size_prefixed=prefix) for prefix in (False, True))
    assert (bare[4:8], prefixed[8:12]) == (b"ED00", b"ED00")
    assert differences(read_etdump(bare).batch, read_etdump(prefixed).batch) == []


@pytest.mark.parametrize("trailing", [b"\x00", b"junk" * 100, write_etdump([RunData("old", [ProfileEvent(name="old")])])])
def test_bytes_after_the_prefixed_length_are_ignored(trailing: bytes, read_etdump: Reader) -> None:
    """A drained static buffer still holds older dumps behind the new one; they are not read again."""
    blocks = [RunData(events=[ProfileEvent(name="x", metadata=b"m")])]
    alone = read_etdump(write_etdump(blocks))
    followed = read_etdump(write_etdump(blocks, trailing=trailing))
    assert differences(alone.batch, followed.batch) == []


def test_a_payload_that_events_share_is_one_payload(read_etdump: Reader) -> None:
    """However many events carry the same bytes, the table holds them once."""
    events = [ProfileEvent(id_int=n, metadata=b"m" * 1000) for n in range(50)]
    batch = read_etdump(write_etdump([RunData(events=events)])).batch
    assert len(batch.payloads) == 2
    assert set(batch.metadata.tolist()) == {1}
