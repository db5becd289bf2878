"""
What a span costs end to end, beside programs that merely pass finished spans on.

Processor time of the program under test over spans that the sink has received, in one run, in turns. The bridge resolves
compact events; its peers are given the spans that it made of them, as many a request. What runs, and the goals: lines.py.
"""

import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from captured import captured
from lines import FLOORS, GOALS, LINES, TURN_SPANS, Line, Room
from rounds import USUAL, Effort, Figure, ratio, spread
from sink import Sink
from subjects import CONNECTIONS, IN_FLIGHT, Subject
from support.engines import EngineMissing

ROUNDS = 5
Costs = dict[tuple[str, int], list[float]]
"""(line, spans a request) -> microseconds of CPU a span, by round."""


def main(effort: Effort = USUAL) -> list[Figure]:
    """Every line at its sizes, then the goals."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        room = Room(folder, stack.enter_context(Sink()), stack)
        room.payloads = captured(room.plain(), room.sink, list(TURN_SPANS))
        room.payloads_with_metadata = captured(room.with_metadata(), room.sink, [1024])
        per_span = {size: sum(map(len, made)) / len(made) / size for size, made in room.payloads.items()}
        print(
            f"  us of CPU a span, median (min..max) of {effort.rounds(ROUNDS)} rounds in turns\n"
            f"  {IN_FLIGHT} requests under way on {CONNECTIONS} connections; "
            f"spans of {min(per_span.values()):.0f} to {max(per_span.values()):.0f} B"
        )
        subjects = {line: subject for line in LINES if (subject := _made(line, room, effort)) is not None}
        costs, rss = _measure(room.sink, subjects, effort)
    for line in subjects:
        for size in line.sizes(effort):
            print(f"    {line.name:49} {size:5} a request   {spread(costs[line.name, size], '.2f'):26} us")
    print(f"  resident memory at the end, MiB: {', '.join(f'{name} {mib:.0f}' for name, mib in rss.items())}")
    figures = [Figure(f"{name}/{size}/cpu", "us/span", values) for (name, size), values in costs.items()]
    figures += [Figure(f"{name}/rss", "MiB", [mib]) for name, mib in rss.items()]
    return figures + _compared(costs)


def _made(line: Line, room: Room, effort: Effort) -> Subject | None:
    if effort.tiny and line.needs is not None and not line.needs().exists():
        return None  # nothing is got for a pass that measures nothing
    try:
        return line.make(room)
    except EngineMissing as missing:
        print(f"    {line.name:49} skipped: {missing}")
        return None


def _measure(sink: Sink, subjects: Mapping[Line, Subject], effort: Effort) -> tuple[Costs, dict[str, float]]:
    costs: Costs = {(line.name, size): [] for line in subjects for size in line.sizes(effort)}
    for turn in range(effort.rounds(ROUNDS) + 1):
        print(f"    round {turn} of {effort.rounds(ROUNDS)}", file=sys.stderr, flush=True)
        for size, usual in TURN_SPANS.items():
            spans = usual if turn else usual // 4  # the first round warms up
            requests = effort.amount(spans // size, 2)
            for line, subject in subjects.items():
                if size not in line.sizes(effort):
                    continue
                cost = turn_us(sink, subject, size, requests)
                if turn:
                    costs[line.name, size].append(cost)
    return costs, {subject.program.title: subject.program.rss_mib() for subject in subjects.values()}


def turn_us(sink: Sink, subject: Subject, size: int, requests: int) -> float:
    """Microseconds of CPU a span that the sink received, over so many requests."""
    before, cpu = sink.count().spans, subject.program.cpu_ns()
    subject.send(size, requests)
    arrived = sink.wait_for(before + size * requests, subject.program.process).spans - before
    spent = subject.program.cpu_ns() - cpu
    if arrived != size * requests:
        raise SystemExit(f"{subject.name}: {requests} requests of {size} spans were sent, and {arrived} spans arrived")
    subject.check(sink.last())
    return spent / arrived / 1000


def _compared(costs: Costs) -> list[Figure]:
    print("  goals: how many times cheaper, ratio of medians (min..max of the ratios of a round), by each way of ours")
    figures = []
    for goal in GOALS:
        ways = [line for line in goal.fast if (line, goal.size) in costs]
        if not ways or (goal.slow, goal.size) not in costs:
            print(f"    {goal.what}: not measured")
            continue
        slow = costs[goal.slow, goal.size]
        best = min(ways, key=lambda line: statistics.median(costs[line, goal.size]))
        verdict = "met" if ratio(slow, costs[best, goal.size]) >= goal.least else "NOT met"
        print(f"    {goal.what}; goal {goal.least:g}: {verdict}")
        for line in ways:
            rounds = [one / other for one, other in zip(slow, costs[line, goal.size], strict=True)]
            whole = ratio(slow, costs[line, goal.size])
            shown = f"{whole:5.2f} ({min(rounds):.2f}..{max(rounds):.2f}){_shown_floor(line, goal.size, slow, costs)}"
            print(f"      {line:49} {shown}")
            if line == best:
                figures.append(Figure(f"goal {goal.least:g}: {goal.what}", "times", rounds))
    return figures


def _shown_floor(line: str, size: int, slow: Sequence[float], costs: Costs) -> str:
    """What the ratio would be if the bridge did nothing, and what of its cost is above that."""
    floor = next((costs.get((name, size)) for name, lines in FLOORS.items() if line in lines), None)
    if floor is None:
        return ""
    above = statistics.median(costs[line, size]) - statistics.median(floor)
    return f"   floor {ratio(slow, floor):.2f}, ours {above:.2f} us above it"
