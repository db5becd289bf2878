"""
Where the nanoseconds of an event go: each step from a request's bytes to OTLP bytes, in one process, by size of the request.

They are nanoseconds of CPU, so that what else the machine does disturbs less; memory is kept as `serve` keeps it
(pipeline/memory.py). Requests are admitted one by one and resolved as the pipeline does it, in passes of at most
`BATCH_EVENTS`. "16 alone" is one request in a pass of its own: what is paid however little comes.
"""

import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from typing import TypeVar

from loads import RULES, prepare, requests_of
from rounds import USUAL, Effort, Figure, spread

from otel_bridge.model.events import EventBatch, concatenate
from otel_bridge.pipeline.loop import BATCH_EVENTS, _passes
from otel_bridge.pipeline.memory import keep_freed_memory
from otel_bridge.pipeline.stages import Stages, Work, count_by_status
from otel_bridge.spans.assemble import assemble
from otel_bridge.spans.cuts import count_cuts
from otel_bridge.spans.fit import fit
from otel_bridge.wire.admission import Receipt, admit_events
from otel_bridge.wire.frame import Frame
from otel_bridge.wire.intake import parse

SIZES = (16, 64, 256, 1024, 8192)
LOADS = (("xnnpack", "run100.etdp", False), ("xnn_transformer", "run10.etdp", False), ("xnn_transformer", "run10.etdp", True))
"""Model, capture, and whether each delegate event has metadata of its own."""
ROUNDS = 7
ROUND_S = 0.08
LIMIT_BYTES = 1 << 20
RECEIPT = Receipt(2 * 10**18)
STEPS = (
    "parse", "admit", "join", "tell_apart", "resolve", "place", "infer", "decode", "count", "scene", "fit", "assemble",
    "account",
)  # fmt: skip

T = TypeVar("T")


class Clocked(Stages):
    """Stages that are timed one by one; `spent` is nanoseconds by step, also of what is around them."""

    spent: dict[str, int]

    def _stages(self) -> tuple[Callable[[Work], None], ...]:
        return tuple(self._timed(stage) for stage in super()._stages())

    def _timed(self, stage: Callable[[Work], None]) -> Callable[[Work], None]:
        return lambda work: self.time(stage.__name__.strip("_"), lambda: stage(work))

    def time(self, step: str, work: Callable[[], T]) -> T:
        """What `work` gives; the time that it takes is `step`'s."""
        begin = time.thread_time_ns()
        result = work()
        self.spent[step] += time.thread_time_ns() - begin
        return result


def clocked(model: str, capture: str) -> Clocked:
    """Stages as `prepare` gives them, timed."""
    _, stages = prepare(model, capture)
    stages.__class__ = Clocked
    return stages


def once(requests: list[bytes], stages: Clocked, build: str) -> int:
    """Admit, resolve and assemble these requests; how many events they hold."""
    admitted = []
    for body in requests:
        request = stages.time("parse", lambda body=body: parse(Frame, body))
        taken = stages.time(
            "admit", lambda request=request, body=body: admit_events(request, body, RECEIPT, RULES, lambda *_: build)
        )
        admitted.append(taken.batch)
    for batches in _passes(admitted):
        resolve(batches, stages)
    return sum(map(len, admitted))


def resolve(batches: list[EventBatch], stages: Clocked) -> None:
    """One pass, as pipeline/loop.py makes it."""
    batch = stages.time("join", lambda: concatenate(batches))
    before, begin = sum(stages.spent.values()), time.thread_time_ns()
    scene = stages.run(batch)
    stages.spent["scene"] += time.thread_time_ns() - begin - (sum(stages.spent.values()) - before)
    fitting = stages.time("fit", lambda: fit(scene, {}))
    stages.time("assemble", lambda: assemble(fitting, LIMIT_BYTES))
    stages.time("account", lambda: (count_cuts(fitting), count_by_status(scene)))


def turn(requests: list[bytes], stages: Clocked, build: str) -> dict[str, float]:
    """Nanoseconds an event by step, over a turn of `ROUND_S`."""
    stages.spent = defaultdict(int)
    events, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < ROUND_S:
        events += once(requests, stages, build)
    return {step: stages.spent[step] / events for step in STEPS}


def full_pass(requests: list[bytes], events: int) -> list[bytes]:
    """As many requests of so many events as one pass takes."""
    count = -(-BATCH_EVENTS // events)
    return (requests * -(-count // len(requests)))[:count]


def main(effort: Effort = USUAL) -> list[Figure]:
    """Every load at every size, sizes taking turns."""
    figures = []
    keep_freed_memory()
    for model, capture, metadata in LOADS:
        stages = clocked(model, capture)
        build = stages._mappings._registry.page("", "", 1)[0].build_id
        work = {str(size): full_pass(requests_of(model, capture, size, metadata=metadata), size) for size in SIZES}
        work["16 alone"] = work["16"][:1]
        for requests in work.values():
            stages.spent = defaultdict(int)
            once(requests, stages, build)  # templates and imports are not what is asked for
        took = {size: [] for size in work}
        for _ in range(effort.rounds(ROUNDS)):
            for size, requests in work.items():
                took[size].append(turn(requests, stages, build))
        figures += _shown(f"{model} with metadata" if metadata else model, took)
    return figures


def _shown(model: str, took: dict[str, list[dict[str, float]]]) -> list[Figure]:
    print(f"  {model}: ns an event, medians of its rounds; the last line is median (min..max)")
    print(f"    {'events a request':18}" + "".join(f"{size:>9}" for size in took))
    for step in STEPS:
        medians = [statistics.median(each[step] for each in rounds) for rounds in took.values()]
        print(f"    {step:18}" + "".join(f"{median:>9,.0f}" for median in medians))
    wholes = {size: [sum(each.values()) for each in rounds] for size, rounds in took.items()}
    print("    all               " + "   ".join(f"{size}: {spread(whole)}" for size, whole in wholes.items()))
    figures = [
        Figure(f"{model}/{size}/{step}", "ns/event", [each[step] for each in rounds])
        for size, rounds in took.items()
        for step in STEPS
    ]
    return figures + [Figure(f"{model}/{size}/all", "ns/event", whole) for size, whole in wholes.items()]
