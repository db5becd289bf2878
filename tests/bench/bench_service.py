"""
What a span costs end to end, beside programs that merely pass finished spans on.

Processor time of the program under test over spans that the sink has received, in one run, in turns. The bridge resolves
compact events; its peers are given the spans that it made of them, as many a request. What runs, and the goals: lines.py.
"""

import statistics
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from captured import captured
from lines import FLOORS, GOALS, LINES, TURN_SPANS, Goal, Line, Room
from rounds import USUAL, Effort, Figure, ratio, spread
from sink import Sink
from subjects import CONNECTIONS, IN_FLIGHT, Subject
from support.engines import EngineMissing
from support.processes import free_ports

ROUNDS = 5
Costs = dict[tuple[str, int], list[float]]
"""(line, spans a request) -> microseconds of CPU a span, by round."""


def main(effort: Effort = USUAL) -> list[Figure]:
    """Every line at its sizes, then the goals."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        room = Room(folder, stack.enter_context(Sink(free_ports(1)[0])), stack)
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
            print(f"    {line.name:37} {size:5} a request   {spread(costs[line.name, size], '.2f'):26} us")
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
        print(f"    {line.name:37} skipped: {missing}")
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
    print("  goals: how many times cheaper, ratio of medians (min..max of the ratios of a round)")
    figures = []
    for goal in GOALS:
        found = _ratios(goal, costs)
        if found is None:
            print(f"    {goal.what:74} not measured")
            continue
        whole, rounds = found
        verdict = "met" if whole >= goal.least else f"NOT met{_shown_floor(goal, costs)}"
        print(f"    {goal.what:74} {whole:5.2f} ({min(rounds):.2f}..{max(rounds):.2f})   goal {goal.least:g}: {verdict}")
        figures.append(Figure(f"goal {goal.least:g}: {goal.what}", "times", rounds))
    return figures


def _ratios(goal: Goal, costs: Costs) -> tuple[float, list[float]] | None:
    """Of medians, and of each round; of several lines of ours the best counts."""
    slow, ours = costs.get((goal.slow, goal.size)), _best(goal, costs)
    if slow is None or ours is None:
        return None
    fast = costs[ours, goal.size]
    return ratio(slow, fast), [one / other for one, other in zip(slow, fast, strict=True)]


def _best(goal: Goal, costs: Costs) -> str | None:
    """The cheapest line of ours; None: none was measured."""
    ours = [line for line in goal.fast if (line, goal.size) in costs]
    return min(ours, key=lambda line: statistics.median(costs[line, goal.size]), default=None)


def _shown_floor(goal: Goal, costs: Costs) -> str:
    """What the ratio would be if the bridge did nothing, and what of its cost is above that."""
    ours = _best(goal, costs)
    floor = costs.get((FLOORS.get(ours or "", ""), goal.size))
    if ours is None or floor is None:
        return ""
    above = statistics.median(costs[ours, goal.size]) - statistics.median(floor)
    return f"; the floor {ratio(costs[goal.slow, goal.size], floor):.2f}, ours {above:.2f} us above it"
