"""The bytes of a record are the batch, whole and exact."""

import zlib
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.batches import as_sent, differences
from support.scenes import STREAM, batch_of, batches, delegated, execute, runtime, spans_in, stages_with

from otel_bridge.model.events import Block, BlockKind, EventBatch, Part, TraceContext, concatenate
from otel_bridge.model.stream import Anchor, Clock, ClockFault, ClockSource, ModelRef, Settled, Stream
from otel_bridge.model.ticks import Ticks
from otel_bridge.spans.assemble import assemble
from otel_bridge.spool.encode import VERSIONS, Undecodable, decode, encode

FULL = Stream(
    stream_id=b"\xff" * 16,
    sequence=2**64 - 1,
    content=bytes(32),
    tenant="a tenant",
    model=ModelRef("net", "1", "build"),
    build="another",
    resource=(("s", "text"), ("i", -(2**63)), ("f", -0.0), ("g", 1e22), ("h", 5e-324), ("one", 1.0), ("b", True), ("n", 1)),
    runtime_version="1.5.1",
    clocks=(Clock(125, 3, 24, Anchor(2**64 - 1, 2**63 - 1), "dsp"), Clock()),
    received_ns=2**63 - 1,
    ended_ns=1,
    ended_source=ClockSource.ENDED_AT,
    correction_ns=-(2**62),
    latest_ns=7,
    clock_fault=ClockFault.FUTURE,
    settled=Settled((None, Anchor(1, 2)), (True, False), -5),
)
BLOCK = Block(
    BlockKind.OTHER,
    "app \x00 \u2028",
    2**64 - 1,
    stream=1,
    method="forward",
    context=TraceContext(b"\x00" * 15 + b"\x01", b"\xfe" * 8, 255, "a=b"),
    error=0,
    attributes=(("x", ""), ("y", float(2**53))),
    run_index=0,
    part=Part(3, last=True, first_event=2**40),
)

values = st.one_of(st.text(max_size=5), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.booleans())


def widest(events: int) -> EventBatch:
    """A batch whose columns hold the largest values that their types take."""
    batch = batch_of((execute(), [delegated(n, 0, 0, 0, metadata=b"%d" % n) for n in range(events)]))
    largest = {
        column: np.full(events, np.iinfo(getattr(batch, column).dtype).max, getattr(batch, column).dtype)
        for column in ("instruction", "chain")
    }
    ticks = Ticks(*[np.full(events, 2**64 - 1, np.uint64)] * 2)
    return replace(batch, occurrence=np.full(events, 2**32 - 1, np.uint32), ticks=ticks, **largest)


@settings(max_examples=100, deadline=None)
@given(st.lists(batches(), min_size=1, max_size=3), st.lists(st.tuples(st.text(max_size=5), values), max_size=3))
def test_what_is_decoded_is_what_was_encoded(parts: list[EventBatch], attributes: list[tuple[str, str | int | float]]) -> None:
    """For any batch: every table and column, order, types and shapes."""
    batch = concatenate(parts)
    batch = replace(batch, streams=tuple(replace(stream, resource=tuple(attributes)) for stream in batch.streams))
    again = decode(encode(batch))
    assert differences(again, batch) == []
    assert differences(decode(encode(as_sent(batch))), batch) == []
    assert [[type(v) for _, v in s.resource] for s in again.streams] == [
        [type(v) for _, v in s.resource] for s in batch.streams
    ]


@pytest.mark.parametrize("batch", [batch_of(), widest(3), widest(300), batch_of((execute(), []), (execute(1), []))])
def test_bounds(batch: EventBatch) -> None:
    """No events, no blocks, and the largest values."""
    assert differences(decode(encode(batch)), batch) == []


def test_every_field_is_kept() -> None:
    """Also one that is added to the model later: each field here differs from its default, and comes back."""
    default = Stream(bytes(16))
    assert [field.name for field in fields(Stream) if getattr(FULL, field.name) == getattr(default, field.name)] == []
    plain = Block(BlockKind.EXECUTE, "", 0)
    assert [field.name for field in fields(Block) if getattr(BLOCK, field.name) == getattr(plain, field.name)] == []
    batch = replace(batch_of((BLOCK, [runtime("e", 0, 1)])), streams=(STREAM, FULL))
    assert differences(decode(encode(batch)), batch) == []


def test_the_bytes_are_an_interface() -> None:
    """A spool outlives the program that wrote it: these bytes are read for ever, or the version changes."""
    stream = Stream(bytes(range(16)), received_ns=5)
    batch = batch_of(
        (execute(7), [delegated("conv", 0, 300, 555, metadata=b"m"), runtime("Method::execute", 40, 560)]), stream=stream
    )
    assert encode(batch) == GOLDEN
    assert differences(decode(GOLDEN), batch) == []
    assert encode(as_sent(batch)) == GOLDEN_SENT
    assert differences(decode(GOLDEN_SENT), batch) == []


GOLDEN = (
    bytes.fromhex("01 01 01 01 01 00 01 02 02 00 01 ff 8a000000 02000000 01000000 02000000 2800000000000000")
    + b'[[{"stream_id":"000102030405060708090a0b0c0d0e0f","received_ns":5}],'
    b'[{"kind":2,"name":"Execute","position":7}],["conv","Method::execute"]]'
    + bytes.fromhex("02 0001 0401 0100 0001 04010000 ff000802 0100")
    + b"m"
)
GOLDEN_SENT = (
    bytes.fromhex("02 01 01 01 01 00 01 fe fe 00 01 ff 8a000000 02000000 01000000 02000000 0400000004000000")
    + GOLDEN[36 : 36 + 0x8A]
    + bytes.fromhex("02 0001 0401 0100 0001")
    + bytes.fromhex("d804 8704 ff01 8804")  # 300, and 260 less, in zigzag; 255, 520
    + bytes.fromhex("0100")
    + b"m"
)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
@example(b"")
@example(bytes([VERSIONS[-1]]))
@example(bytes([VERSIONS[-1] + 1]) + encode(batch_of())[1:])
def test_bytes_that_are_no_record_are_refused(data: bytes) -> None:
    """Whatever they are, by one error."""
    with pytest.raises(Undecodable):
        decode(data)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_damage_is_never_a_crash(data: st.DataObject) -> None:
    """A record with a changed byte, or cut, fails its checksum; where nobody looks at that, it is a batch or `Undecodable`."""
    batch = batch_of((BLOCK, [delegated("x", 1, 2, 3, metadata=b"{}")] * 3), stream=FULL)
    whole = encode(as_sent(batch) if data.draw(st.booleans()) else batch)
    at = data.draw(st.integers(0, len(whole) - 1))
    changed = bytearray(whole[: data.draw(st.sampled_from([len(whole), at]))])
    if at < len(changed):
        changed[at] ^= 1 << data.draw(st.integers(0, 7))
    assert zlib.crc32(changed) != zlib.crc32(whole)
    try:
        concatenate([decode(bytes(changed))] * 2)
    except Undecodable:
        return


def test_fields_of_ticks_end_where_they_say() -> None:
    """Also where nothing stands behind them that would miss what they take; and version 1 has none."""
    sent = encode(as_sent(batch_of((execute(), [delegated("x", 0, 2, 3)]))))
    decode(sent)
    longer = bytearray(sent)
    assert longer[28:36] == bytes([1, 0, 0, 0, 1, 0, 0, 0])  # the end of the head: bytes of starts, and of durations
    longer[32] += 1
    for damaged in (bytes(longer), bytes([VERSIONS[0]]) + sent[1:]):
        with pytest.raises(Undecodable):
            decode(damaged)


@settings(max_examples=30, deadline=None)
@given(batches())
def test_a_replayed_batch_gives_the_same_spans(batch: EventBatch) -> None:
    """Byte for byte, whatever the events are."""
    first, again = (assemble(stages_with().run(each), 10**6) for each in (batch, decode(encode(batch))))
    assert [payload.data for payload in first] == [payload.data for payload in again]
    assert len(spans_in(first)) == len(spans_in(again))
