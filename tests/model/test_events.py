"""Batches concatenate without changing what they say."""

from hypothesis import given
from hypothesis import strategies as st
from support.scenes import batches

from otel_bridge.model.events import BlockKind, EventBatch, concatenate


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


def test_block_kinds_follow_executorchs_names() -> None:
    """`Default` loads, `Execute` runs, and any other name is the app's."""
    kinds = [BlockKind.from_name(name) for name in ("Default", "Execute", "warm up", "")]
    assert kinds == [BlockKind.LOAD, BlockKind.EXECUTE, BlockKind.OTHER, BlockKind.OTHER]
