"""Ticks that a device sent say what they would say decoded, alone and with others."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.batches import as_sent, packed
from support.scenes import batch_of, batches, delegated, execute

from otel_bridge.model.events import EventBatch, concatenate, divide
from otel_bridge.model.ticks import SentTicks, Ticks, sent_ticks
from otel_bridge.model.varints import are_varints, decode_varints


def told(ticks: Ticks | SentTicks) -> list[tuple[int, int]]:
    """Start and duration of each event."""
    return list(zip(ticks.start.tolist(), ticks.duration.tolist(), strict=True))


@given(st.lists(st.tuples(batches(), st.booleans()), min_size=1, max_size=4))
def test_what_was_sent_is_decoded_as_one(parts: list[tuple[EventBatch, bool]]) -> None:
    """Each counts from its own first start, whichever of them are decoded already, and whatever stands before."""
    whole = concatenate([as_sent(part) if sent else part for part, sent in parts])
    assert told(whole.ticks) == [each for part, _ in parts for each in told(part.ticks)]


@given(batches(), st.integers(1, 9))
def test_rows_of_what_was_sent_are_decoded(batch: EventBatch, most: int) -> None:
    """Also in pieces."""
    pieces = divide(as_sent(batch), most)
    assert [each for piece in pieces for each in told(piece.ticks)] == told(batch.ticks)


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
@example([1_800_000_000 * 10**9, 5, -3])
def test_steps_are_what_was_sent(deltas: list[int]) -> None:
    """With their signs, and however large: a clock may count the nanoseconds since 1970."""
    zigzag = [delta << 1 if delta >= 0 else (-delta << 1) - 1 for delta in deltas]
    sent = sent_ticks(len(deltas), packed(zigzag), packed(zigzag))
    assert sent is not None
    assert (sent.numbers.start_delta.tolist(), sent.numbers.duration.tolist()) == (deltas, zigzag)
    assert sent.start.tolist() == [sum(deltas[: row + 1]) % 2**64 for row in range(len(deltas))]


@given(st.binary() | st.lists(st.integers(0, 2**64 - 1)).map(packed), st.integers(-1, 1))
@example(b"\xff" * 9 + b"\x01", 0)
@example(b"\xff" * 10 + b"\x01", 0)
def test_what_is_looked_at_is_what_is_decoded(field: bytes, more: int) -> None:
    """Yes to so many numbers that are decoded, and to no others: not to more or fewer, nor to one that is cut."""
    decoded = decode_varints([field])
    count = len(decoded[0]) if decoded is not None else sum(byte < 0x80 for byte in field)
    assert are_varints(field, count + more) == (decoded is not None and not more)


@pytest.mark.parametrize("fields", [(b"\x01", b"\x01\x01"), (b"\x01\x01", b"\x01\x81"), (b"\x01", b"")])
def test_fields_of_other_lengths_are_not_taken(fields: tuple[bytes, bytes]) -> None:
    """Whoever reads them says what is wrong."""
    assert sent_ticks(2, *fields) is None


def test_what_waits_stays_as_it_came() -> None:
    """A pass over one batch decodes a copy of it: what the spool holds, and counts, does not grow."""
    batch = as_sent(batch_of((execute(), [delegated("x", 0, 2**40, 2**41)] * 100)))
    held = batch.ticks, batch.ticks.nbytes
    whole = concatenate([batch])
    assert isinstance(whole.ticks, Ticks)
    assert whole.duration.tolist() == [2**40] * 100
    assert (batch.ticks, batch.ticks.nbytes) == held
    assert batch.nbytes < whole.nbytes
