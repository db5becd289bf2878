"""What requests share is encoded once, and found again only where it is the same."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from support.batches import differences
from support.scenes import STREAM, batch_of, batches, delegated, execute

from otel_bridge.model.events import EventBatch
from otel_bridge.model.stream import Clock
from otel_bridge.model.ticks import Ticks
from otel_bridge.spool import steady
from otel_bridge.spool.encode import decode, encode

_COLUMNS = ("kind", "instruction", "chain", "name", "clock", "metadata")


def shared(batch: EventBatch) -> EventBatch:
    """With columns as admission shares them: nobody can write to them."""
    for column in _COLUMNS:
        getattr(batch, column).flags.writeable = False
    return batch


def one(names: int = 1) -> EventBatch:
    """A batch that shares nothing with any other yet, with as many names."""
    return shared(batch_of((execute(), [delegated(name, 0, 1, 2) for name in range(names)])))


@settings(max_examples=50, deadline=None)
@given(batches())
def test_what_is_found_is_what_would_be_made(batch: EventBatch) -> None:
    """Whatever differs between requests that share columns: times, senders and their clocks, tables, payloads, one column."""
    shared(batch)
    clocks = tuple(replace(stream, clocks=(*stream.clocks, *[Clock()] * 300)) for stream in batch.streams)
    for each in (
        batch,
        replace(batch, ticks=Ticks(batch.start + 1, batch.duration * 3)),
        replace(batch, streams=clocks),
        replace(batch, names=(*batch.names, *range(300))),
        replace(batch, payloads=(*batch.payloads, *[b"more"] * 300)),
        replace(batch, chain=batch.chain + 1),
        batch,
    ):
        assert differences(decode(encode(each)), each) == []


def test_a_shared_part_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for another sender; what can be written to is nobody else's, and is made each time."""
    made: list[EventBatch] = []
    make = steady._make

    def note(batch: EventBatch, clocks: int) -> steady.Steady:
        made.append(batch)
        return make(batch, clocks)

    monkeypatch.setattr(steady, "_make", note)
    first = one()
    own = batch_of((execute(), [delegated(1, 0, 1, 2)]))
    for each in (first, replace(first, streams=(replace(STREAM, sequence=9),)), own, own):
        encode(each)
    assert made == [first, own, own]


def test_what_is_kept_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """In number, in events and in the size of names, whatever is sent."""
    for name, value in {"_known": {}, "_KEPT": 3, "_KEPT_EVENTS": 4, "_KEPT_BYTES": 10}.items():
        monkeypatch.setattr(steady, name, value)
    kept = []
    for _ in range(5):
        encode(one())
        kept.append(len(steady._known))
    assert kept == [1, 2, 3, 1, 2]
    encode(one(names=5))
    encode(replace(one(), names=("longer than ten bytes",)))
    assert len(steady._known) == 2
