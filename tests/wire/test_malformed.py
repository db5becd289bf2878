"""What a bad request and a bad event cost, and what the sender is told."""

import re

import numpy as np
import pytest
from support.batches import differences
from support.requests import Break, a_request, admitted, is_clear
from support.scenes import E, batch_of, call, delegated, execute, runtime, scope

from otel_bridge.errors import MalformedRequest
from otel_bridge.model.events import EventKind, Part
from otel_bridge.v1 import profiling_pb2 as pb
from otel_bridge.wire.codec import request_of

EVENTS = (
    delegated("conv #1", 0, 100, 200, metadata=b"meta"),
    call("DELEGATE_CALL", 0, 90, 210),
    scope("native_call_add.out", 1, 220, 230),
    call("OPERATOR_CALL", 1, 215, 240, chain=3),
    runtime("Method::execute", 80, 250),
)


def the_columns(request: pb.ExportEventsRequest) -> pb.EventColumns:
    """The columns, all of them filled."""
    columns = request.events
    columns.clock.extend([0] * len(EVENTS))
    return columns


REQUESTS: dict[str, tuple[Break, str]] = {
    "no stream": (lambda r: r.ClearField("stream"), r"^stream: is not set; say"),
    "short stream id": (
        lambda r: setattr(r.stream, "stream_id", b"x" * 15),
        r"^stream\.stream_id: has 15 bytes; it must be 16",
    ),
    "long stream id": (lambda r: setattr(r.stream, "stream_id", b"x" * 17), r"^stream\.stream_id: has 17 bytes; it must be 16"),
    "zero stream id": (lambda r: setattr(r.stream, "stream_id", bytes(16)), r"^stream\.stream_id: .*all zero; it must be 16"),
    "long build id": (
        lambda r: setattr(r.stream.model, "build_id", b"x" * 129),
        r"^stream\.model\.build_id: has 129 bytes; at most 128 .* send a digest",
    ),
    "257 clocks": (lambda r: r.stream.clocks.extend([pb.Clock()] * 256), r"^stream\.clocks: has 257 entries; at most 256"),
    "counter of 65 bits": (
        lambda r: setattr(r.stream.clocks[0], "counter_bits", 65),
        r"^stream\.clocks\[0\]\.counter_bits: is 65; it must be 1 to 64",
    ),
    "too few events": (
        lambda r: setattr(r.blocks[0], "event_count", 6),
        r"^blocks: .* adds up to 6, and .* has 5 entries; each",
    ),
    "events of no block": (lambda r: r.ClearField("blocks"), r"^blocks: .* adds up to 0, and .* has 5 entries; each"),
    "an unknown kind of block": (lambda r: setattr(r.blocks[0], "kind", 4), r"^blocks\[0\]\.kind: is 4; it must be one of"),
    "another block without a name": (
        lambda r: r.blocks.add(kind=pb.BLOCK_KIND_OTHER),
        r"^blocks\[1\]: has neither kind nor name; set the name",
    ),
    "an impossible part": (
        lambda r: setattr(r.blocks[0].part, "first_event", 2**48 + 1),
        r"^blocks\[0\]\.part\.first_event: is 281474976710657; .* at most 281474976710656",
    ),
    "a part without occurrences": (
        lambda r: setattr(r.blocks[0].part, "number", 1),
        r"^events\.occurrence: has 0 entries, and events\.kind has 5; it must have as many$",
    ),
    "too many blocks": (lambda r: r.blocks.extend([pb.Block(kind=1)] * 65_536), r"^blocks: has 65537 entries; at most 65536"),
    "too many events": (
        lambda r: r.events.kind.extend([1] * 2**20),
        r"^events\.kind: has 1048581 entries; at most 1048576",
    ),
    "too many metadata": (
        lambda r: r.metadata.extend([b""] * 2**20),
        r"^metadata: has 1048577 entries; at most 1048576 .* send several",
    ),
    "too many identifiers": (
        lambda r: r.MergeFromString(b"\x12\x00" * 2**20),
        r"^identifiers: has 10485\d\d entries; at most 1048576",
    ),
}


@pytest.mark.parametrize("case", REQUESTS)
def test_a_request_that_cannot_be_understood(case: str) -> None:
    """A request that contradicts itself or the protocol is refused whole, with the field, what was found and the way out."""
    damage, told = REQUESTS[case]
    request = a_request(*EVENTS)
    damage(request)
    with pytest.raises(MalformedRequest, match=told) as raised:
        admitted(request)
    assert is_clear(str(raised.value))


@pytest.mark.parametrize("column", [field.name for field in pb.EventColumns.DESCRIPTOR.fields if field.name != "kind"])
@pytest.mark.parametrize("entries", [-1, 1])
def test_columns_that_do_not_fit(column: str, entries: int) -> None:
    """A column with more or fewer entries than there are events is refused by name: no row could be trusted."""
    request = a_request(*EVENTS)
    values = getattr(the_columns(request), column)
    if column == "occurrence":
        values.extend([0] * len(EVENTS))
    del values[-1:]
    values.extend([0] * (entries + 1))
    with pytest.raises(
        MalformedRequest, match=rf"^events\.{column}: has {5 + entries} entries, and events\.kind has 5; it must"
    ):
        admitted(request)


@pytest.mark.parametrize("column", ["chain", "clock", "metadata"])
def test_a_column_of_zeros_may_be_left_out(column: str) -> None:
    """Chain, clock and metadata may be empty: that says 0 in every row."""
    request = a_request(*EVENTS)
    zeros = [0] * len(EVENTS)
    getattr(request.events, column)[:] = zeros
    written = admitted(request).batch
    getattr(request.events, column)[:] = []
    assert differences(admitted(request).batch, written) == []


def an_entry(**value: int | bytes) -> Break:
    """Lets event 2 go by an identifier of its own."""

    def damage(request: pb.ExportEventsRequest) -> None:
        request.identifiers.add(**value)
        request.events.identifier[2] = len(request.identifiers) - 1

    return damage


def a_cell(column: str, value: int) -> Break:
    """Puts a value into row 2."""

    def damage(request: pb.ExportEventsRequest) -> None:
        getattr(request.events, column)[2] = value

    return damage


def another_clock(index: int) -> Break:
    """Lets event 2 tell the ticks of another clock, so that the next row counts from event 1."""

    def damage(request: pb.ExportEventsRequest) -> None:
        request.events.clock[2] = index
        request.events.start_delta[3] += request.events.start_delta[2]

    return damage


def large_metadata(request: pb.ExportEventsRequest) -> None:
    """Gives event 2 metadata that is too large."""
    request.metadata.append(bytes((16 << 20) + 1))
    request.events.metadata[2] = len(request.metadata)


EVENT_FAULTS: dict[str, tuple[Break, str, str]] = {
    "kind unset": (a_cell("kind", 0), "unknown_kind", r"^events\.kind\[2\]: is 0; it must be"),
    "kind unknown": (a_cell("kind", 5), "unknown_kind", r"^events\.kind\[2\]: is 5; it must be"),
    "kind negative": (a_cell("kind", -1), "unknown_kind", r"^events\.kind\[2\]: is -1; it must be"),
    "no such identifier": (
        a_cell("identifier", 2**32 - 1),
        "identifier_index",
        r"^events\.identifier\[2\]: is 4294967295; .* has 5 ",
    ),
    "identifier unset": (an_entry(), "unnamed", r"^identifiers\[5\], used by event 2: is not set; set"),
    "identifier empty": (an_entry(text=b""), "unnamed", r"^identifiers\[5\], used by event 2: has 0 bytes; 1 to 4096"),
    "identifier long": (
        an_entry(text=b"x" * 4097),
        "name_too_long",
        r"^identifiers\[5\], used by event 2: has 4097 bytes; 1 to",
    ),
    "identifier binary": (an_entry(text=b"ok\xff\x1b[31m"), "not_utf8", r"^identifiers\[5\], .* is not UTF-8 at byte 2; send"),
    "identifier a surrogate": (
        an_entry(text=b"\xed\xa0\x80"),
        "not_utf8",
        r"^identifiers\[5\], .* is not UTF-8 at byte 0; send",
    ),
    "identifier -1": (an_entry(number=-1), "identifier_out_of_range", r"^identifiers\[5\], .*: is -1; .* -1 means none"),
    "identifier large": (
        an_entry(number=2**31),
        "identifier_out_of_range",
        r"^identifiers\[5\], .*: is 2147483648; .* 32 bits",
    ),
    "identifier low": (
        an_entry(number=-(2**31) - 1),
        "identifier_out_of_range",
        r"^identifiers\[5\], .*: is -2147483649; .* 32 bits",
    ),
    "a number as a name": (
        an_entry(number=7),
        "numeric_name",
        r"^identifiers\[5\], used by event 2: is a number; only a DELEGATE",
    ),
    "instruction below -1": (a_cell("instruction", -2), "no_instruction", r"^events\.instruction\[2\]: is -2; .* else send -1"),
    "a scope of none": (
        a_cell("instruction", -1),
        "no_instruction",
        r"^events\.instruction\[2\]: is -1; a CALL or SCOPE is of",
    ),
    "chain": (a_cell("chain", 256), "chain_out_of_range", r"^events\.chain\[2\]: is 256; it must be 0 to 255"),
    "clock": (another_clock(1), "clock_index", r"^events\.clock\[2\]: is 1; the stream has 1 clocks"),
    "clock far": (another_clock(2**32 - 1), "clock_index", r"^events\.clock\[2\]: is 4294967295; the stream has 1 clocks"),
    "metadata index": (a_cell("metadata", 2), "metadata_index", r"^events\.metadata\[2\]: is 2; the table has 1"),
    "metadata large": (
        large_metadata,
        "metadata_too_large",
        r"^events\.metadata\[2\]: is 2; that entry is over 16777216 bytes",
    ),
}


@pytest.mark.parametrize("case", EVENT_FAULTS)
def test_a_bad_event_costs_itself(case: str) -> None:
    """A bad event is counted under its reason and described by its position; the others are as in a whole request."""
    damage, reason, told = EVENT_FAULTS[case]
    request = a_request(*EVENTS)
    the_columns(request)
    damage(request)
    done = admitted(request)
    assert done.rejected == {reason: 1}
    assert is_clear(done.first_rejection)
    np.testing.assert_array_equal(done.batch.bounds, [0, 4])
    whole = admitted(a_request(*EVENTS)).batch
    others = [0, 1, 3, 4]
    for column in ("kind", "instruction", "chain", "start", "duration"):
        np.testing.assert_array_equal(getattr(done.batch, column), getattr(whole, column)[others])
    assert [done.batch.names[index] for index in done.batch.name] == [EVENTS[index].name for index in others]
    assert [done.batch.payloads[index] for index in done.batch.metadata] == [EVENTS[index].metadata for index in others]
    assert re.search(told, done.first_rejection)


def test_an_event_is_rejected_once() -> None:
    """An event with several faults counts under one reason: rejected and accepted add up to what was sent."""
    request = a_request(*EVENTS)
    request.events.kind[0], request.events.identifier[0], request.events.instruction[0] = 9, 99, -7
    request.events.identifier[1] = 99
    done = admitted(request)
    assert done.rejected == {"unknown_kind": 1, "identifier_index": 1}
    assert len(done.batch) == 3


def test_delegates_may_go_by_any_int32_but_one() -> None:
    """Int identifiers are int32: every one but -1 is admitted and stays an int, also 0, negative ones and both ends."""
    numbers = [0, 1, 2**31 - 1, -2, -(2**31)]
    batch = admitted(a_request(*(delegated(number, 0, 0, 1) for number in numbers))).batch
    assert [batch.names[index] for index in batch.name] == numbers


def test_a_runtime_event_lies_outside_instructions() -> None:
    """The instruction of a RUNTIME event is no matter: it comes out as none; delegates may log outside, too."""
    request = a_request(runtime("Method::execute", 0, 1), delegated("init", -1, 0, 1))
    request.events.instruction[0] = 5
    assert admitted(request).batch.instruction.tolist() == [-1, -1]


def test_occurrences_are_read_only_in_parts() -> None:
    """Occurrences count where an inference comes in parts; of whole ones the sender's are not needed and not believed."""
    events = [E(EventKind.CALL, "OPERATOR_CALL", 0, 1, 0, occurrence=7)]
    split = request_of(batch_of((execute(part=Part(1, last=True, first_event=9)), events)))
    batch = admitted(split).batch
    assert batch.occurrence is not None
    assert batch.occurrence.tolist() == [7]
    assert batch.blocks[0].part == Part(1, last=True, first_event=9)
    split.blocks[0].ClearField("part")
    assert admitted(split).batch.occurrence is None


def test_a_million_bad_clocks_cost_no_more_than_one() -> None:
    """Ticks are summed by the stream's own clocks: indices that a hostile sender makes up take no pass each."""
    n = 1_000_000
    request = a_request()
    request.stream.clocks.extend([pb.Clock()])
    request.blocks[0].event_count = n
    request.identifiers.add(text=b"x")
    columns = request.events
    columns.kind.extend([4] * n)
    for column in (columns.instruction, columns.identifier, columns.start_delta, columns.duration):
        column.extend([0] * n)
    columns.clock.extend(range(n))
    done = admitted(request)
    assert (len(done.batch), done.rejected) == (2, {"clock_index": n - 2})
