"""
What durability costs.

* record      an event batch, as admission gives it, as bytes, and back: ns per event, bytes per event
* requests    a bridge for each `spool.durability`, fed in turns with requests of 256 events, 8 at once
"""

import statistics
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from loads import RULES, _cut, prepare
from programs import bridge
from rounds import USUAL, Effort, Figure, ratio, spread, take_turns
from sink import Sink
from subjects import Bridge
from support.processes import free_ports

from otel_bridge.model.events import concatenate
from otel_bridge.spool.encode import decode, encode
from otel_bridge.wire.admission import Receipt, admit_events
from otel_bridge.wire.codec import request_of
from otel_bridge.wire.frame import Frame

DURABILITIES = ("memory", "normal", "full")
EVENTS = 256
ROUNDS = 7
REQUESTS_A_ROUND = 300


def main(effort: Effort = USUAL) -> list[Figure]:
    """Records, then requests."""
    return measure_records(effort) + measure_requests(effort)


def measure_records(effort: Effort) -> list[Figure]:
    """The encoding against the request's own, in one run."""
    print("  ns per event, median (min..max)")
    whole, _ = prepare("xnnpack", "run100.etdp")
    figures = []
    for events in (64, 256, 1024):
        batch = _cut(concatenate([whole, whole]), events)
        batch = replace(batch, streams=batch.streams[:1], blocks=tuple(replace(block, stream=0) for block in batch.blocks))
        request = request_of(batch).SerializeToString()
        batch = admit_events(Frame.FromString(request), request, Receipt(2 * 10**18), RULES, lambda *_: "build").batch
        body = encode(batch)
        subjects = {
            "encode": lambda batch=batch: encode(batch),
            "decode": lambda body=body: decode(body),
            "as a request": lambda batch=batch: request_of(batch).SerializeToString(),
        }
        took = take_turns(subjects, len(batch), effort.rounds(15))
        shown = "   ".join(f"{name} {spread(values)}" for name, values in took.items())
        print(f"  {len(batch):5} events   {shown}   {len(body) / len(batch):.1f} B (request {len(request) / len(batch):.1f} B)")
        figures += [Figure(f"{len(batch)}/{name}", "ns/event", values) for name, values in took.items()]
    return figures


def measure_requests(effort: Effort) -> list[Figure]:
    """How fast requests are acknowledged, and what their events cost until they are spans at the sink."""
    rates: dict[str, list[float]] = {durability: [] for durability in DURABILITIES}
    costs: dict[str, list[float]] = {durability: [] for durability in DURABILITIES}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        sink = stack.enter_context(Sink())
        subjects = {}
        for durability in DURABILITIES:
            program = bridge(folder / durability, sink.address, tuple(free_ports(2)), SPOOL__DURABILITY=durability)
            subjects[durability] = Bridge(durability, stack.enter_context(program))
        requests = effort.amount(REQUESTS_A_ROUND, 2)
        for turn in range(effort.rounds(ROUNDS) + 1):
            for durability, subject in subjects.items():
                before, cpu, begin = sink.count().spans, subject.program.cpu_ns(), time.perf_counter()
                subject.send(EVENTS, requests)
                sink.wait_for(before + EVENTS * requests, subject.program.process)
                if turn:  # the first one warms up
                    rates[durability].append(EVENTS * requests / (time.perf_counter() - begin))
                    costs[durability].append((subject.program.cpu_ns() - cpu) / (EVENTS * requests) / 1000)
                subject.check(sink.last())
    print(f"  {EVENTS} events a request, {effort.rounds(ROUNDS)} rounds in turns, median (min..max)")
    for durability in DURABILITIES:
        slower = ratio(rates["memory"], rates[durability])
        dearer = statistics.median(costs[durability]) / statistics.median(costs["memory"])
        print(
            f"  {durability:7} {spread(rates[durability])} events/s ({1 / slower:.2f} of memory)   "
            f"{spread(costs[durability], '.2f')} us of CPU an event ({dearer:.2f})"
        )
    return [Figure(f"{durability}/cpu", "us/event", values) for durability, values in costs.items()] + [
        Figure(f"{durability}/rate", "events/s", values) for durability, values in rates.items()
    ]
