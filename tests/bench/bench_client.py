"""What recording costs the app's thread, while the client's thread is at work: ns per event, and per block."""

import time

from rounds import USUAL, Effort, Figure, spread
from support.faulty_bridge import FaultyBridge

from otel_bridge.client import BridgeClient, ClientSettings, EventTracer

EVENTS, BLOCKS, ROUNDS = 100, 100, 15


def main(effort: Effort = USUAL) -> list[Figure]:
    """Measure a live event, one that is logged, and one with metadata, beside a bare pair of clock readings."""
    print("ns per event on the thread that records, median (min..max)")
    with FaultyBridge() as bridge, BridgeClient(bridge.address, settings=ClientSettings()) as client:
        tracer = EventTracer(client, model="net@1")
        metadata = bytes(64)

        def live() -> None:
            tracer.end_profiling_delegate(tracer.start_profiling_delegate("conv#1"))

        def numbered() -> None:
            tracer.end_profiling_delegate(tracer.start_profiling_delegate(None, 7))

        def logged() -> None:
            tracer.log_profiling_delegate("conv#1", None, 5, 6)

        def with_metadata() -> None:
            tracer.log_profiling_delegate("conv#1", None, 5, 6, metadata)

        def clock() -> None:
            time.perf_counter_ns()
            time.perf_counter_ns()

        subjects = {
            "two clock readings": clock,
            "start and end": live,
            "by number": numbered,
            "log": logged,
            "log 64 B": with_metadata,
        }
        measured: dict[str, list[float]] = {name: [] for name in subjects}
        blocks: list[float] = []
        for _ in range(effort.rounds(ROUNDS)):
            for name, subject in subjects.items():
                spent = 0
                for _ in range(BLOCKS):
                    begin = time.perf_counter_ns()
                    tracer.create_event_block("Execute")
                    between = time.perf_counter_ns()
                    for _ in range(EVENTS):
                        subject()
                    spent += time.perf_counter_ns() - between
                    blocks.append(between - begin)
                measured[name].append(spent / BLOCKS / EVENTS)
            client.flush()
        for name, took in measured.items():
            print(f"  {name:20} {spread(took)}")
        print(f"  a block              {spread(blocks)}")
    return [Figure(name, "ns/event", values) for name, values in measured.items()] + [Figure("a block", "ns/block", blocks)]
