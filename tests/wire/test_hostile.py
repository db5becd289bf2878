"""Bytes that nobody should have sent: refused with the bridge's own errors, quoted by position, and never handed on broken."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st
from support.requests import ANYTHING, NOON, a_request, admitted_bytes, admitted_dump, is_clear, no_alias
from support.scenes import NOON_NS, batches, delegated, spans_in, stages_with

from otel_bridge.errors import BridgeError, MalformedRequest
from otel_bridge.model.events import EventBatch
from otel_bridge.spans.assemble import assemble
from otel_bridge.v1 import mapping_pb2
from otel_bridge.v1 import profiling_pb2 as pb
from otel_bridge.wire.admission import Admitted, Receipt, admit_etdump
from otel_bridge.wire.codec import request_of
from otel_bridge.wire.http import upload_request
from otel_bridge.wire.intake import parse

EVIL = (
    b"\x1b[31mred\x1b[0m",
    b"\x00",
    b"\r\nX-Injected: 1",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    "\u202e\u2028".encode(),
    b"%s{}" * 99,
)
STAGES = stages_with()


def fault_of(call: Callable[[], object]) -> MalformedRequest | None:
    """The fault that a call finds with its input, if it does."""
    try:
        call()
    except MalformedRequest as error:
        return error
    return None


def no_harm(done: Admitted) -> None:
    """What was admitted can be resolved and written as spans, and what was not is told in one clear line."""
    assert not done.rejected or is_clear(done.first_rejection)
    spans_in(assemble(STAGES.run(done.batch), 1 << 20))


@given(
    st.binary(max_size=300), st.sampled_from([pb.ExportEventsRequest, pb.UploadETDumpRequest, mapping_pb2.PutMappingRequest])
)
def test_any_bytes_are_a_request_or_refused(body: bytes, message: type[Message]) -> None:
    """Bytes that are no request of their kind raise MalformedRequest, which says how many there are and what they should be."""
    fault = fault_of(lambda: parse(message, body))
    if fault is not None:
        assert fault.reason == "undecodable"
        assert is_clear(str(fault))
        assert f"{len(body)} bytes is no {message.DESCRIPTOR.full_name}" in str(fault)


@dataclass(frozen=True)
class Damage:
    """What to do to the bytes of a request: overwrite some, then cut."""

    edits: tuple[tuple[float, int], ...]
    keep: float

    def done_to(self, body: bytes) -> bytes:
        """The damaged bytes."""
        damaged = bytearray(body)
        for place, value in self.edits:
            if damaged:
                damaged[int(place * (len(damaged) - 1))] = value
        return bytes(damaged[: round(self.keep * len(damaged))])


_extremes = st.sampled_from([0, 1, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1])
_damage = st.builds(
    Damage,
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), max_size=6).map(tuple),
    st.just(1.0) | st.floats(0, 1),
)


@settings(max_examples=300)
@given(batches(), _damage)
def test_a_damaged_request_harms_nobody(batch: EventBatch, damage: Damage) -> None:
    """A request with some bytes overwritten or cut is refused, or what is left of it goes through to spans."""
    body = damage.done_to(request_of(batch).SerializeToString())
    with contextlib.suppress(BridgeError):
        no_harm(admitted_bytes(body))


@given(st.binary(max_size=300), st.binary(max_size=20), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_any_upload_harms_nobody(etdump: bytes, method: bytes, position: int, ended_ns: int) -> None:
    """An upload of any bytes is refused or goes through to spans, whatever else the request says."""
    request = pb.UploadETDumpRequest(etdump=etdump, method=method, first_position=position, ended_at_unix_ns=ended_ns)
    with contextlib.suppress(BridgeError):
        no_harm(admitted_dump(request))


@settings(max_examples=300)
@given(
    st.builds(pb.Clock, numerator=_extremes, denominator=_extremes),
    st.sampled_from([0, 1, 31, 64]),
    st.tuples(*[_extremes] * 5),
)
def test_any_clock_harms_nobody(clock: pb.Clock, bits: int, numbers: tuple[int, ...]) -> None:
    """Times and ratios at the ends of their ranges, with any correction, still give spans within the range of a time."""
    ticks, time_ns, start, length, sent_ns = numbers
    clock.counter_bits, clock.anchor_ticks, clock.anchor_unix_ns = bits, ticks, time_ns
    request = a_request(delegated("x", 0, start, start + length))
    request.stream.clocks[0].CopyFrom(clock)
    receipt = Receipt(NOON_NS, min(sent_ns, 2**63 - 1))
    spans = spans_in(assemble(STAGES.run(admitted_bytes(request.SerializeToString(), receipt=receipt).batch), 1 << 20))
    assert len(spans) == 2
    assert all(span.start_time_unix_nano < span.end_time_unix_nano < 2**63 for span in spans)


@pytest.mark.parametrize("evil", EVIL, ids=ascii)
def test_bytes_of_a_device_are_never_repeated(evil: bytes) -> None:
    """Whatever stands in the texts of a request, no message repeats it: positions and numbers are told."""
    request = a_request(delegated("x", 0, 0, 1), delegated("y", 0, 0, 1))
    stream, block = request.stream, request.blocks[0]
    stream.model.name = stream.model.version = stream.runtime_version = evil
    block.method = block.name = block.tracestate = block.traceparent = evil
    for attributes in (stream.resource, block.attributes):
        attributes.add(key=evil).value.text = evil
    stream.dropped.add(reason=evil, events=1)
    request.metadata.append(evil)
    request.identifiers[0].text = evil * 5000
    request.events.identifier[1] = 99
    done = admitted_bytes(request.SerializeToString())
    assert {"identifier_index"} <= set(done.rejected) <= {"name_too_long", "identifier_index", "not_utf8"}
    assert is_clear(done.first_rejection)
    no_harm(done)
    stream.model.build_id = evil * 129
    with pytest.raises(MalformedRequest) as raised:
        admitted_bytes(request.SerializeToString())
    assert is_clear(str(raised.value))


@pytest.mark.parametrize("evil", EVIL, ids=ascii)
def test_bytes_of_a_file_are_never_repeated(evil: bytes) -> None:
    """A file that is no ETDump is described by what can be shown of its first bytes, escaped."""
    with pytest.raises(BridgeError) as raised:
        admit_etdump(pb.UploadETDumpRequest(etdump=evil * 20), NOON, ANYTHING, no_alias)
    assert is_clear(str(raised.value))


@given(st.binary(max_size=100) | st.text(alphabet="modelstrauc_ibph=&%0/19.+;#é", max_size=100).map(str.encode))
def test_any_query_is_an_upload_or_refused(query: bytes) -> None:
    """Any query is read or refused with a clear line."""
    fault = fault_of(lambda: upload_request(query))
    assert fault is None or is_clear(str(fault))
