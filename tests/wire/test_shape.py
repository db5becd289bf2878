"""What is remembered of requests changes nothing but the time that they take."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.scenes import batches

from otel_bridge.model.events import EventBatch
from otel_bridge.model.stream import Anchor, Clock
from otel_bridge.v1 import profiling_pb2 as pb
from otel_bridge.wire import admission, blocks, shape
from otel_bridge.wire.admission import EXECUTORCH_NS, Admitted, Receipt, Rules, admit_events
from otel_bridge.wire.codec import request_of
from otel_bridge.wire.frame import Frame

RULES = Rules(lambda key: key.startswith("a"), lambda _key: True, 10**9)
COLUMNS_OF_SHAPE = ("kind", "instruction", "chain", "name", "clock", "metadata", "occurrence")
COLUMNS = ("kind", "instruction", "chain", "name", "start", "duration", "clock", "metadata")


def admit(body: bytes, received_ns: int = 2 * 10**18) -> Admitted:
    """What comes of a request."""
    return admit_events(Frame.FromString(body), body, Receipt(received_ns, tenant=str(received_ns % 2)), RULES, lambda *_: "b")


def forget() -> None:
    """As it is when the process has just started."""
    for known in (shape._known, admission._known, blocks._known):
        known.cache_clear()


def told(admitted: Admitted) -> tuple[object, ...]:
    """All that a request has become."""
    batch = admitted.batch
    columns = [getattr(batch, name).tolist() for name in COLUMNS]
    occurrence = batch.occurrence.tolist() if batch.occurrence is not None else None
    tables = batch.streams, batch.blocks, batch.names, batch.payloads, batch.bounds.tolist()
    return *tables, columns, occurrence, admitted.rejected, admitted.first_rejection, dict(admitted.sender_dropped)


@settings(deadline=None)
@given(batches(), st.integers(0, 3), st.integers(0, 2))
def test_what_is_said_again_is_admitted_as_if_it_were_new(batch: EventBatch, sequence: int, clocks: int) -> None:
    """However much of a request is known from others, which had other tables and came at another time."""
    stream = replace(batch.streams[0], stream_id=bytes(range(16)))
    batch = replace(batch, streams=(stream,))
    like = replace(batch, streams=(replace(stream, sequence=sequence, clocks=(Clock(),) * (3 + clocks)),))
    other = request_of(like)
    other.identifiers.add(number=7)
    other.metadata.append(b"more")
    body = request_of(batch).SerializeToString()
    forget()
    new = told(admit(body))
    forget()
    for number, each in enumerate((other.SerializeToString(), body, other.SerializeToString())):
        admit(each, 10**18 + number)
    assert told(admit(body)) == new


def request(clock: int, name: int, metadata: int, number: bool) -> bytes:  # noqa: FBT001 - all of it is one table below
    """A request of one event of the runtime, with one name, one clock and one byte string."""
    made = pb.ExportEventsRequest(metadata=[b"x"], blocks=[pb.Block(name=b"Execute", event_count=1)])
    made.stream.SetInParent()
    made.identifiers.add(number=1) if number else made.identifiers.add(text=b"e")
    columns = made.events
    for column, value in (
        ("kind", 1), ("instruction", -1), ("identifier", name), ("start_delta", 1), ("duration", 1), ("clock", clock),
        ("metadata", metadata),
    ):  # fmt: skip
        getattr(columns, column).append(value)
    return made.SerializeToString()


@pytest.mark.parametrize(
    ("clock", "name", "metadata", "number", "reason"),
    [
        (1, 0, 0, False, "clock_index"),
        (0, 1, 0, False, "identifier_index"),
        (0, 0, 2, False, "metadata_index"),
        (0, 0, 0, True, "numeric_name"),
    ],
)
def test_a_known_shape_is_compared_with_the_tables_of_its_request(
    clock: int,
    name: int,
    metadata: int,
    number: bool,  # noqa: FBT001 - a parameter of the table above
    reason: str,
) -> None:
    """Columns that were good with other tables are refused where they do not fit these, each time."""
    body = request(clock, name, metadata, number)
    for _ in range(2):
        assert admit(body).rejected == {reason: 1}


@pytest.mark.parametrize("names", [1, 64, 65, 200])
def test_a_number_among_names_is_found(names: int) -> None:
    """However many names the runtime's events have, the one that goes by a number is refused, and no other."""
    made = pb.ExportEventsRequest(blocks=[pb.Block(name=b"Execute", event_count=names)])
    made.stream.SetInParent()
    for index in range(names):
        made.identifiers.add(text=b"%d" % index) if index != names // 2 else made.identifiers.add(number=7)
        for column, value in (("kind", 1), ("instruction", -1), ("identifier", index), ("start_delta", 1), ("duration", 1)):
            getattr(made.events, column).append(value)
    admitted = admit(made.SerializeToString())
    assert admitted.rejected == {"numeric_name": 1}
    assert admitted.first_rejection.startswith(f"identifiers[{names // 2}], used by event {names // 2}: is a number")


def test_what_a_sender_says_anew_is_not_kept() -> None:
    """Requests that differ in number and anchors are those of one sender; each has its own, and what it had before stands."""
    forget()
    made = pb.ExportEventsRequest()
    made.stream.clocks.add(name=b"host")
    made.stream.clocks.add(name=b"other")
    streams = []
    for number in range(1, 4):
        made.stream.sequence = number
        made.stream.clocks[0].anchor_ticks, made.stream.clocks[0].anchor_unix_ns = number, EXECUTORCH_NS + number
        (stream,) = admit(made.SerializeToString()).batch.streams
        streams.append(stream)
    assert admission._known.cache_info().currsize == 1
    assert [stream.sequence for stream in streams] == [1, 2, 3]
    anchors = [Anchor(number, EXECUTORCH_NS + number) for number in range(1, 4)]
    assert [[clock.anchor for clock in stream.clocks] for stream in streams] == [[each, None] for each in anchors]


def test_columns_that_are_shared_cannot_be_written_to() -> None:
    """Batches of one shape share its arrays: who would write to one would change them all."""
    body = request(0, 0, 0, number=False)
    first, second = admit(body).batch, admit(body).batch
    assert first.kind is second.kind
    for name in ("kind", "instruction", "chain", "name", "clock", "metadata"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(first, name)[0] = 1
    assert not np.shares_memory(first.start, second.start)


def test_what_is_remembered_has_a_bound() -> None:
    """Long columns, words and blocks are read anew each time, and of short ones no more than so many are kept."""
    forget()
    long = (b"\x01" * 20_000, *[b""] * (len(shape.STEADY) - 1))
    assert shape.shape_of(long) is not shape.shape_of(long)
    made = pb.ExportEventsRequest()
    made.stream.runtime_version = b"x" * 4000
    made.blocks.add(name=b"Execute", method=b"m" * 2000)
    for name in ("kind", "instruction", "identifier", "start_delta", "duration"):
        assert not getattr(made.events, name)
    admit(made.SerializeToString())
    made.stream.runtime_version = b""
    del made.blocks[:]
    for _ in range(250):
        made.stream.clocks.add()
    admit(made.SerializeToString())
    assert [known.cache_info().currsize for known in (admission._known, blocks._known)] == [0, 0]
    for number in range(shape._KEPT + 10):
        shape.shape_of((bytes([number % 5, number // 5]), *[b""] * (len(shape.STEADY) - 1)))
    assert shape._known.cache_info().currsize == shape._KEPT


@pytest.mark.parametrize("columns", [("kind",), ("kind", "instruction", "identifier"), shape.STEADY])
def test_a_shape_takes_no_more_than_the_bound_of_all_foresees(columns: tuple[str, ...]) -> None:
    """The dearest: one number of two bytes makes a column wide, whose others take one byte on the wire."""
    size = shape._KEPT_BYTES // len(columns)
    dearest = tuple(b"\x01" * (size - 2) + b"\x80\x01" if name in columns else b"" for name in shape.STEADY)
    made = shape.shape_of(dearest)
    assert made is not None
    arrays = (*made.columns.values(), *(getattr(made, name) for name in (*COLUMNS_OF_SHAPE, "plain")))
    assert sum(array.nbytes for array in arrays) <= 12 * sum(map(len, dearest))
    assert made is shape.shape_of(dearest)
