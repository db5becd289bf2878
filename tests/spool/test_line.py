"""The line of records that wait: how much of it is in memory."""

from hypothesis import given
from hypothesis import strategies as st
from support.scenes import batch_of, execute, runtime

from otel_bridge.spool.file import Held
from otel_bridge.spool.line import Line
from otel_bridge.spool.protocol import Record

BATCH = batch_of((execute(), [runtime("Method::execute", 0, 9)]))


@given(st.integers(0, 100), st.lists(st.integers(1, 40) | st.none(), max_size=60))
def test_memory_is_bounded_and_order_is_kept(room_bytes: int, steps: list[int | None]) -> None:
    """Records of some bytes are put, or one is taken (None): what is in memory never has more bytes, and is the oldest."""
    line = Line(room_bytes, Held())
    waiting: list[tuple[int, int]] = []
    in_memory: list[tuple[int, int]] = []
    for number, size in enumerate(steps, 1):
        if size is None:
            taken = [record.number for record in line.take(1)] if in_memory else []
            assert taken == [each for each, _ in in_memory[:1]]
            del waiting[: len(taken)], in_memory[: len(taken)]
            continue
        waiting.append((number, size))
        if line.put(Record(number, BATCH), size, size):
            in_memory.append(waiting[-1])
        assert sum(size for _, size in in_memory) <= room_bytes
        assert in_memory == waiting[: len(in_memory)]
    assert line.events == len(waiting)
