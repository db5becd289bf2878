"""
What one machine takes: resolved spans a second, and how long a span is on its way at half of that.

Load, bridge and sink share the machine. The rate is that of spans at the sink, from the first request to the last span: over
gRPC in and out, and over HTTP. The way of an inference, over gRPC, begins at its end, when its request is made, and ends when
its root span is at the sink: sending, admission, spool, resolution, export.
"""

import statistics
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from lines import OVER_HTTP, Room
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from rounds import USUAL, Effort, Figure, spread
from sink import Sink
from subjects import Bridge

ROUNDS = 5
BATCH = 1024
SPANS = 1_000_000
HALF_SPANS = 150_000
GOAL_SPANS_A_SECOND = 600_000
DURABILITIES = ("memory", "full")
WAYS = ("gRPC", "HTTP/1.1")


def main(effort: Effort = USUAL) -> list[Figure]:
    """With each durability of the spool."""
    print(f"  {BATCH} a request; median (min..max) of {effort.rounds(ROUNDS)} rounds in turns")
    with ExitStack() as stack:
        room = Room(Path(stack.enter_context(tempfile.TemporaryDirectory())), stack.enter_context(Sink()), stack)
        subjects = {(durability, way): _subject(room, durability, way) for durability in DURABILITIES for way in WAYS}
        rates = _rates(room.sink, subjects, effort)
        figures = [Figure(f"{durability}/{way}/rate", "spans/s", values) for (durability, way), values in rates.items()]
        for (durability, way), subject in subjects.items():
            rate = statistics.median(rates[durability, way])
            goal = ""
            if durability == "memory":
                verdict = "met" if rate >= GOAL_SPANS_A_SECOND else "NOT met"
                goal = f"   goal {GOAL_SPANS_A_SECOND:,}: {verdict}"
            print(f"    spool {durability:7} {way:9} {spread(rates[durability, way])} spans/s{goal}")
            if way == "gRPC":
                figures += _latencies(room.sink, subject, rate / 2, effort)
            print(f"    {'':23} {subject.program.rss_mib():.0f} MiB resident at the end")
    return figures


def _subject(room: Room, durability: str, way: str) -> Bridge:
    over_http = way != "gRPC"
    settings = {"SPOOL__DURABILITY": durability} | ({"EXPORT__PROTOCOL": OVER_HTTP} if over_http else {})
    program, http = room.bridge(f"{durability}-{'http' if over_http else 'grpc'}", **settings)
    return Bridge(durability, program, http if over_http else None)


def _rates(sink: Sink, subjects: Mapping[tuple[str, str], Bridge], effort: Effort) -> dict[tuple[str, str], list[float]]:
    rates: dict[tuple[str, str], list[float]] = {name: [] for name in subjects}
    requests = effort.amount(SPANS // BATCH, 2)
    for turn in range(effort.rounds(ROUNDS) + 1):
        for name, subject in subjects.items():
            before, begin = sink.count().spans, time.monotonic()
            subject.send(BATCH, requests)
            sink.wait_for(before + BATCH * requests, subject.program.process)
            if turn:  # the first round warms up
                rates[name].append(BATCH * requests / (time.monotonic() - begin))
            subject.check(sink.last())
    return rates


def _latencies(sink: Sink, subject: Bridge, rate: float, effort: Effort) -> list[Figure]:
    shares: dict[str, list[float]] = {"p50": [], "p99": []}
    for _ in range(effort.rounds(ROUNDS)):
        before, requests = sink.count().spans, effort.amount(HALF_SPANS // BATCH, 2)
        sink.keep()
        subject.send(BATCH, requests, rate)
        sink.wait_for(before + BATCH * requests, subject.program.process)
        took = sorted(_ways_ms(sink.kept()))
        for share, values in shares.items():
            values.append(took[int(len(took) * int(share[1:]) / 100)])
    shown = ", ".join(f"{share} {spread(values, '.1f')}" for share, values in shares.items())
    print(f"    {'':23} at half load ({rate:,.0f} spans/s), ms on the way: {shown}")
    return [Figure(f"{subject.name}/half load/{share}", "ms", values) for share, values in shares.items()]


def _ways_ms(kept: list[tuple[int, bytes]]) -> list[float]:
    """Of each inference: from its end, at most a millisecond before its request was made, to the arrival of its root span."""
    return [
        (at - span.end_time_unix_nano) / 1e6
        for at, data in kept
        for resource in ExportTraceServiceRequest.FromString(data).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
        if not span.parent_span_id
    ]
