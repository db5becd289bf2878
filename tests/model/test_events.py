"""Batches concatenate without changing what they say."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.scenes import STREAM, batch_of, batches, delegated, execute, runtime

from otel_bridge.model import texts
from otel_bridge.model.events import BlockKind, EventBatch, concatenate, divide


def told(batch: EventBatch) -> list[tuple[object, ...]]:
    """What a batch says, row by row, without indices."""
    return [
        (
            batch.streams[batch.blocks[block].stream],
            batch.blocks[block].position,
            batch.names[batch.name[row]],
            batch.payloads[batch.metadata[row]],
            *(
                int(column[row])
                for column in (batch.kind, batch.instruction, batch.chain, batch.start, batch.duration, batch.clock)
            ),
            int(batch.occurrence[row]) if batch.occurrence is not None and batch.blocks[block].part else 0,
        )
        for row, block in enumerate(batch.block_of.tolist())
    ]


@given(st.lists(batches(), min_size=1, max_size=4))
def test_a_concatenation_says_what_its_parts_say(parts: list[EventBatch]) -> None:
    """Rows, their names, metadata, blocks and streams are those of the parts, in order."""
    whole = concatenate(parts)
    assert [row for part in parts for row in told(part)] == told(whole)
    assert sum(len(part.blocks) for part in parts) == len(whole.blocks)


@given(batches(), st.integers(1, 20))
def test_pieces_of_a_batch_say_what_it_says(batch: EventBatch, most: int) -> None:
    """Cut between blocks, in order, each within the bound unless one block alone is over it."""
    pieces = divide(batch, most)
    assert [row for piece in pieces for row in told(piece)] == told(batch)
    assert all(len(piece) <= most or len(piece.blocks) == 1 for piece in pieces)


@given(st.integers(1, 60), st.integers(1, 20))
def test_a_batch_is_cut_into_even_pieces(blocks: int, most: int) -> None:
    """As few as the bound allows, and none is smaller than another by more than one block."""
    batch = batch_of(*[(execute(number), [runtime("e", number, number + 1)]) for number in range(blocks)])
    sizes = [len(piece) for piece in divide(batch, most)]
    assert len(sizes) == -(-blocks // most)
    assert max(sizes) - min(sizes) <= 1


def test_a_batch_is_charged_for_all_that_it_holds() -> None:
    """Attributes of a stream or a block, and metadata, count: a spool's bound is one of memory."""
    bare = batch_of((execute(), [runtime("e", 0, 1)])).nbytes
    text = (("app.note", "x" * 10_000),)
    for batch in (
        batch_of((execute(attributes=text), [runtime("e", 0, 1)])),
        batch_of((execute(), [runtime("e", 0, 1)]), stream=replace(STREAM, resource=text)),
        batch_of((execute(), [delegated(1, 0, 0, 1, metadata=b"x" * 10_000)])),
    ):
        assert batch.nbytes > bare + 9_000


def test_block_kinds_follow_executorchs_names() -> None:
    """`Default` loads, `Execute` runs, and any other name is the app's."""
    kinds = [BlockKind.from_name(name) for name in ("Default", "Execute", "warm up", "")]
    assert kinds == [BlockKind.LOAD, BlockKind.EXECUTE, BlockKind.OTHER, BlockKind.OTHER]


def test_what_is_remembered_of_tables_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """In number, in names and in bytes; what is found again is what was counted, and nothing of another table."""
    for name, value in {"_known": {}, "_KEPT": 3, "_KEPT_NAMES": 4, "_KEPT_BYTES": 20}.items():
        monkeypatch.setattr(texts, name, value)
    tables: list[tuple[int | str, ...]] = [("a", n) for n in range(5)]
    kept = []
    for table in tables:
        assert [texts.table_bytes(table), texts.table_bytes(table)] == [2, 2]
        kept.append(len(texts._known))
    assert kept == [1, 2, 3, 1, 2]
    assert [texts.table_bytes(tuple(range(5))), texts.table_bytes(("eleven text",))] == [0, 22]
    assert len(texts._known) == 2
