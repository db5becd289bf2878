"""Columns on the wire: what is written is what is read."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.batches import differences
from support.requests import ANYTHING, admitted, admitted_dump
from support.scenes import NOON_NS, E, batch_of, batches, delegated, execute

from otel_bridge.model.events import Block, BlockKind, EventBatch, EventKind
from otel_bridge.model.stream import Anchor, Clock, ModelRef
from otel_bridge.spans.attributes import OWN_PREFIXES
from otel_bridge.v1 import profiling_pb2 as pb
from otel_bridge.wire.admission import EXECUTORCH_NS
from otel_bridge.wire.codec import request_of

_texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
_values = (
    st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.booleans() | _texts | st.just("")
)
_keys = _texts.filter(lambda key: not key.startswith(OWN_PREFIXES))
_attributes = st.dictionaries(_keys, _values, max_size=5).map(lambda kept: tuple(kept.items()))
_u64 = st.integers(0, 2**64 - 1)
LATEST_NS_AT_NOON = NOON_NS + ANYTHING.max_clock_error_ns
_clocks = st.builds(
    Clock,
    st.integers(1, 2**64 - 1),
    st.integers(1, 2**64 - 1),
    st.integers(1, 64),
    st.none() | st.builds(Anchor, _u64, st.integers(EXECUTORCH_NS, LATEST_NS_AT_NOON)),
)
_models = st.builds(ModelRef, _texts, st.just("") | _texts, st.none() | _texts)


@st.composite
def _admissible(draw: st.DrawFn) -> EventBatch:
    """Any batch of one stream, with anything in the fields that a sender fills in."""
    batch = draw(batches())
    stream = replace(
        batch.streams[0],
        stream_id=draw(st.binary(min_size=16, max_size=16).filter(any)),
        sequence=draw(_u64),
        model=draw(_models),
        resource=draw(_attributes),
        runtime_version=draw(st.none() | _texts),
        clocks=tuple(draw(st.lists(_clocks, min_size=2, max_size=4))),
        latest_ns=LATEST_NS_AT_NOON,
    )
    stream = replace(stream, build=stream.model.build_id or "build")
    blocks = tuple(
        replace(
            block,
            position=draw(_u64),
            method=draw(st.none() | _texts),
            error=draw(st.none() | st.integers(0, 2**32 - 1)),
            attributes=draw(_attributes),
            run_index=draw(st.none() | st.integers(0, 2**63 - 1)),
        )
        for block in batch.blocks
    )
    return replace(batch, streams=(stream,), blocks=blocks)


@given(_admissible())
def test_a_batch_survives_the_wire(batch: EventBatch) -> None:
    """A batch that is written as a request and admitted again is the same batch, down to the order of tables and the dtypes."""
    done = admitted(request_of(batch), build_of=lambda _name, _version: "build")
    assert differences(done.batch, batch) == []
    assert (done.rejected, done.first_rejection, done.sender_dropped) == ({}, "", {})


@given(st.lists(st.tuples(st.integers(0, 2), _u64, _u64, st.booleans()), max_size=30))
def test_ticks_count_per_clock_and_over_what_is_rejected(rows: list[tuple[int, int, int, bool]]) -> None:
    """
    A start is the running sum of its clock's deltas modulo 2^64.

    A row that is rejected moves its clock all the same, so the rows behind it start where the sender says.
    """
    events = [E(EventKind.DELEGATE, "x", start, start + duration, 0, clock=clock) for clock, start, duration, _ in rows]
    stream = replace(batch_of().streams[0], clocks=(Clock(), Clock(), Clock()))
    request = request_of(batch_of((execute(), events), stream=stream))
    for index, (_, _, _, broken) in enumerate(rows):
        if broken:
            request.events.kind[index] = pb.EVENT_KIND_UNSPECIFIED
    done = admitted(request)
    kept = [(clock, start, duration) for clock, start, duration, broken in rows if not broken]
    columns = (done.batch.clock.tolist(), done.batch.start.tolist(), done.batch.duration.tolist())
    assert list(zip(*columns, strict=True)) == kept
    assert sum(done.rejected.values()) == len(rows) - len(kept)


def test_a_delta_wraps() -> None:
    """A delta is signed and modulo 2^64: a child that started before the row above it, and a counter beyond 2^63, are exact."""
    starts = [2**64 - 1, 0, 2**63, 5]
    request = request_of(batch_of((execute(), [delegated("x", 0, start, start) for start in starts])))
    assert list(request.events.start_delta) == [-1, 1, -(2**63), 5 - 2**63]
    assert admitted(request).batch.start.tolist() == starts


def test_bounds_close_over_rejected_rows() -> None:
    """Rows of a block stay in their block when a neighbour is rejected, and a block whose rows all go stays, empty."""
    blocks = [
        (Block(BlockKind.EXECUTE, "Execute", n), [delegated(f"{n}.{row}", 0, row, row) for row in range(n)]) for n in range(4)
    ]
    request = request_of(batch_of(*blocks))
    request.events.kind[0] = request.events.kind[2] = pb.EVENT_KIND_UNSPECIFIED  # 1.0 and 2.1
    batch = admitted(request).batch
    assert batch.bounds.tolist() == [0, 0, 0, 1, 4]
    assert [batch.names[index] for index in batch.name] == ["2.0", "3.0", "3.1", "3.2"]


@pytest.mark.parametrize("name", ["xnnpack", "multi_method", "two_backends", "toy_backend_int"])
def test_a_dump_by_either_door(name: str, fixtures: Path) -> None:
    """Events of an ETDump are the same batch whether the file is uploaded or its columns are, but for the hash of the file."""
    request = pb.UploadETDumpRequest(etdump=(fixtures / name / "run.etdp").read_bytes())
    request.stream.stream_id = b"stream of a test"
    uploaded = admitted_dump(request).batch
    uploaded = replace(uploaded, streams=(replace(uploaded.streams[0], content=None),))
    assert len(uploaded) > 0
    assert differences(admitted(request_of(uploaded)).batch, uploaded) == []
