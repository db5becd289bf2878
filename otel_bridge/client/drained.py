"""
An ETDump that was drained from a Python runtime, and what the file does not say: which execution each block is of.

Invariants
* Blocks and executions are paired by what both show: an execution that failed has no `Method::execute` in its block
  (runtime/executor/method.cpp), and may have no block at all. Where the pairing is not certain, nothing is said.
* Ticks of ExecuTorch on POSIX are nanoseconds of the system's monotonic clock since the runtime began
  (runtime/platform/default/posix.cpp). When that was, Python cannot read: it is taken as the latest moment by which every
  execution had ended before its call returned. So the anchor is late by the least time that a return took, some 10 us, and no
  inference sticks out of the app's span around its call.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from otel_bridge.client.stream import EventStream
from otel_bridge.etdump.read import read
from otel_bridge.model.events import Block, BlockKind, EventBatch, EventKind, TraceContext
from otel_bridge.model.stream import Anchor, Attributes

T = TypeVar("T")

_EXECUTE = "Method::execute"


@dataclass(frozen=True, slots=True)
class Execution:
    """
    One call of a method.

    run_index      executions of the method before it, since the load
    context        the app's span around it
    is_failed      it raised; `error` is the code of `executorch::runtime::Error`, where the message had one
    returned_ns    `time.monotonic_ns` when the call was over
    """

    method: str
    run_index: int
    context: TraceContext | None
    attributes: Attributes
    is_failed: bool
    error: int | None
    returned_ns: int


@dataclass(slots=True, eq=False)
class DrainedDump:
    """
    One drain, as a `Recording`.

    executions   since the drain before, in order
    now_ns       one moment on two clocks: `time.monotonic_ns` and nanoseconds since 1970, at the drain
    """

    stream: EventStream
    etdump: bytes
    events: int
    executions: Sequence[Execution]
    now_ns: tuple[int, int]
    anchor: Anchor | None = None
    nbytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.nbytes = len(self.etdump) + 500 * len(self.executions)

    def read_batch(self) -> EventBatch:
        """See `Recording`; the anchor is known after it. Raises MalformedETDump."""
        batch = read(self.etdump, self.stream.model_stream()).batch
        ends = _execute_ends(batch)
        paired = dict(_pair(batch.blocks, ends, self.executions))
        self.anchor = self._anchor(ends, paired)
        first = self.stream.take_positions(len(batch.blocks))
        blocks = tuple(
            replace(_described(block, paired.get(index)), position=first + index) for index, block in enumerate(batch.blocks)
        )
        return replace(batch, blocks=blocks)

    def _anchor(self, ends: dict[int, int], paired: dict[int, Execution]) -> Anchor | None:
        monotonic_ns, unix_ns = self.now_ns
        zero_ns = min((paired[index].returned_ns - end for index, end in ends.items() if index in paired), default=None)
        last = max(ends.values(), default=None)
        if last is None:
            return None
        if zero_ns is None:  # executions that nobody told of: the last of them ended before the drain
            return Anchor(last, unix_ns)
        return Anchor(last, unix_ns - monotonic_ns + zero_ns + last)


def _execute_ends(batch: EventBatch) -> dict[int, int]:
    """Blocks of inferences that ended -> the tick at which they did."""
    if _EXECUTE not in batch.names:
        return {}
    rows = np.flatnonzero((batch.kind == EventKind.RUNTIME) & (batch.name == batch.names.index(_EXECUTE)))
    ends = (batch.start[rows] + batch.duration[rows]).tolist()
    return dict(zip(batch.block_of[rows].tolist(), ends, strict=True))


def _pair(blocks: Sequence[Block], ends: dict[int, int], executions: Sequence[Execution]) -> Iterator[tuple[int, Execution]]:
    """(index of a block, the execution that it is of), for those of which that is certain."""
    inferences = [index for index, block in enumerate(blocks) if block.kind is BlockKind.EXECUTE]
    ended, unended = _sort(inferences, lambda index: index in ends)
    succeeded, failed = _sort(executions, lambda execution: not execution.is_failed)
    if len(ended) != len(succeeded):
        return  # the program was also executed around us
    yield from zip(ended, succeeded, strict=True)
    for of_blocks, of_calls in zip(unended, failed, strict=True):
        if len(of_blocks) == len(of_calls):  # else some failed before they had a block, and which, nobody knows
            yield from zip(of_blocks, of_calls, strict=True)


def _sort(items: Iterable[T], is_good: Callable[[T], bool]) -> tuple[list[T], list[list[T]]]:
    """The good ones, and the others in lists: those before each good one, and those after the last."""
    good: list[T] = []
    others: list[list[T]] = [[]]
    for item in items:
        if is_good(item):
            good.append(item)
            others.append([])
        else:
            others[-1].append(item)
    return good, others


def _described(block: Block, execution: Execution | None) -> Block:
    if execution is None:
        return block
    return replace(
        block,
        method=execution.method,
        context=execution.context,
        error=execution.error,
        attributes=execution.attributes,
        run_index=execution.run_index,
    )
