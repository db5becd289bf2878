"""The fast reader and the reference reader agree: on captures, on files of the writer, and on damaged ones."""

import struct
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.agreement import STREAM, agreed_outcome
from support.etdump_writer import AllocationEvent, DebugEvent, EmptyEvent, Event, ProfileEvent, RunData, write_etdump

from otel_bridge.etdump.bulk import read_at_once
from otel_bridge.etdump.limits import open_frame
from otel_bridge.etdump.result import ETDump

CAPTURES = sorted((Path(__file__).parents[1] / "fixtures").glob("*/*.etdp"))

texts = st.one_of(
    st.none(),
    st.sampled_from(["", "DELEGATE_CALL", "OPERATOR_CALL", "native_call_add.out", "1", "conv #1", "x" * 4096, "x" * 4097]),
    st.text(max_size=20),
    st.binary(max_size=20),
)
ticks = st.none() | st.integers(0, 2**64 - 1)


def profile_events_of(
    names: st.SearchStrategy[str | bytes | None], starts: st.SearchStrategy[int | None]
) -> st.SearchStrategy[ProfileEvent]:
    """Profile events whose other fields may be anything."""
    return st.builds(
        ProfileEvent,
        name=names,
        chain=st.none() | st.integers(-2, 2) | st.sampled_from([255, 256, -(2**31), 2**31 - 1]),
        instruction=st.none() | st.integers(-2, 5) | st.sampled_from([-(2**31), 2**31 - 1]),
        id_int=st.none() | st.integers(-2, 3) | st.sampled_from([-(2**31), 2**31 - 1]),
        id_str=texts,
        metadata=st.none() | st.binary(max_size=8),
        start=starts,
        end=ticks,
    )


profile_events = profile_events_of(texts, ticks)
events = st.one_of(
    profile_events,
    profile_events,
    st.builds(DebugEvent, chain=ticks, instruction=st.integers(-1, 3), name=texts),
    st.just(AllocationEvent(allocator=1, size=64)),
    st.just(EmptyEvent()),
)
blocks = st.builds(
    RunData, name=st.sampled_from(["Default", "Execute"]) | texts, events=st.none() | st.lists(events, max_size=12)
)
dumps = st.builds(
    write_etdump,
    st.none() | st.lists(blocks, max_size=4),
    size_prefixed=st.booleans(),
)

EVERY_KIND: list[Event] = [
    ProfileEvent(name="Method::execute", chain=-1, instruction=0, start=5, end=50),
    ProfileEvent(name="DELEGATE_CALL", chain=0, instruction=1, start=7, end=40),
    ProfileEvent(id_str="conv #1", chain=0, instruction=1, metadata=b'{"a": 1}', start=8, end=30),
    ProfileEvent(id_int=999, chain=0, instruction=1, metadata=b"", start=1000, end=2000),
    DebugEvent(chain=2**64 - 1, instruction=0, name="output"),
    AllocationEvent(allocator=1, size=64),
]
BASES = [
    write_etdump([RunData("Default", EVERY_KIND[:1]), RunData("Execute", EVERY_KIND)]),
    write_etdump([RunData("Execute", EVERY_KIND)], size_prefixed=False),
    next(capture for capture in CAPTURES if capture.parts[-2:] == ("toy_backend_str", "run.etdp")).read_bytes(),
]


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_readers_agree_on_captures(capture: Path) -> None:
    """Both readers make the same batch of what a runtime wrote."""
    assert isinstance(agreed_outcome(capture.read_bytes()), ETDump)
    assert read_at_once(open_frame(capture.read_bytes()), STREAM) is not None


@given(dumps)
@settings(deadline=None)
def test_a_sound_file_is_never_left_to_the_plain_reader(data: bytes) -> None:
    """What the writer wrote shares nothing and leads nowhere else: the reader of large files takes all of it."""
    assert read_at_once(open_frame(data), STREAM) is not None


def test_texts_that_all_share_are_copied_once() -> None:
    """A file may refer to one long name a thousand times, or to one payload: what that claims is more than the file."""
    long = ProfileEvent(name="n" * 4000, chain=-1, metadata=b"m" * 4000, start=1, end=2)
    short = ProfileEvent(name="n", chain=-1, metadata=b"m", start=1, end=2)
    data = bytearray(write_etdump([RunData("Execute", [long, *[short] * 300])]))
    for text in (b"n", b"m"):
        target = data.index(text * 4000) - 4
        length = struct.pack("<I", 1) + text
        for at in range(0, target, 4):  # every reference to a short text leads to the long one, which stands behind all
            led = at + int.from_bytes(data[at : at + 4], "little")
            if data[led : led + 5] == length:
                struct.pack_into("<I", data, at, target - at)
    outcome = agreed_outcome(bytes(data))
    assert isinstance(outcome, ETDump)
    assert len(outcome.batch) == 301
    assert outcome.batch.names == ("n" * 4000,)
    assert outcome.batch.payloads == (b"", b"m" * 4000)
    assert read_at_once(open_frame(bytes(data)), STREAM) is not None


@given(dumps)
@settings(max_examples=300, deadline=None)
def test_readers_agree_on_any_dump(data: bytes) -> None:
    """Whatever fields are set, both readers make the same batch and the same rejections of it."""
    agreed_outcome(data)


@given(
    st.lists(
        profile_events_of(st.text(min_size=1, max_size=20) | st.binary(min_size=1, max_size=20), st.integers(0, 2**64 - 1))
    )
)
@settings(max_examples=100, deadline=None)
def test_no_limit_refuses_what_shares_nothing(events_of_block: list[Event]) -> None:
    """The limits that a file's length sets are wider than any file whose tables are its own."""
    outcome = agreed_outcome(write_etdump([RunData("Execute", events_of_block), RunData("Execute", events_of_block)]))
    assert isinstance(outcome, ETDump)
    assert len(outcome.batch) + sum(outcome.rejected.values()) == 2 * len(events_of_block)


@given(st.sampled_from(BASES), st.lists(st.tuples(st.integers(min_value=0), st.integers(0, 7)), min_size=1, max_size=4))
@settings(max_examples=500, deadline=None)
def test_readers_agree_on_flipped_bits(base: bytes, flips: list[tuple[int, int]]) -> None:
    """A damaged file is a MalformedETDump or an ETDump, and nothing else; where both readers accept it, they agree."""
    data = bytearray(base)
    for at, bit in flips:
        data[at % len(data)] ^= 1 << bit
    agreed_outcome(bytes(data))


@given(
    st.sampled_from(BASES),
    st.lists(
        st.tuples(
            st.integers(min_value=0),
            st.sampled_from([("<H", 2**16), ("<I", 2**32)]),
            st.integers(0, 64) | st.integers(2**15, 2**16 - 1) | st.integers(2**31 - 4, 2**32 - 1),
        ),
        min_size=1,
        max_size=3,
    ),
)
@settings(max_examples=500, deadline=None)
def test_readers_agree_on_overwritten_numbers(base: bytes, writes: list[tuple[int, tuple[str, int], int]]) -> None:
    """So it is where whole offsets, lengths and entries of vtables are replaced by small and by extreme ones."""
    data = bytearray(base)
    for at, (form, modulus), value in writes:
        struct.pack_into(form, data, 4 * (at % ((len(data) - 3) // 4)), value % modulus)
    agreed_outcome(bytes(data))


@given(st.binary(max_size=200), st.booleans())
@example(b"", True)
@settings(max_examples=300, deadline=None)
def test_readers_agree_on_noise_behind_the_identifier(noise: bytes, size_prefixed: bool) -> None:  # noqa: FBT001 -- Hypothesis
    """Any bytes at all with the identifier in the right place are read or refused."""
    body = struct.pack("<I4s", 8, b"ED00") + noise
    agreed_outcome(struct.pack("<I", len(body)) + body if size_prefixed else body)
