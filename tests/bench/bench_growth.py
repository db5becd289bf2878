"""
How the cost of an event grows with what there is: identifiers, mappings, devices, and events that wait.

Processor time of a bridge over spans that the sink received, at 1,024 events a request, its spool in memory where no line says
otherwise. Lines of one kind take turns. `full`: ten times the devices and the queue on disk, 1,000 mappings.
"""

import statistics
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from bench_service import turn_us
from loads import synthetic_mapping
from programs import Program, bridge
from rounds import USUAL, Effort, Figure, ratio, spread
from sink import Sink
from subjects import Bridge
from support.processes import free_ports

ROUNDS = 5
BATCH = 1024
TURN_REQUESTS = 80
ENTRIES = 1_000
"""Identifiers of each of many mappings."""
GOALS = {"mappings": 1.3, "waiting": 1.2, "waiting on disk": 1.2}
"""Most that the largest may cost, over the smallest."""
MOST_MIB = 381
"""400 MB resident, of a bridge all of whose models are in use in turn."""


class Room:
    """Bridges of one kind of growth, and their sink."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        self.sink = stack.enter_context(Sink())

    def program(self, name: str, **settings: str) -> Program:
        """Another bridge."""
        ports = tuple(free_ports(2))
        of_all = {"SPOOL__DURABILITY": "memory"}
        return self._stack.enter_context(bridge(self._folder / name, self.sink.address, ports, **of_all | settings))


def main(effort: Effort = USUAL) -> list[Figure]:
    """Each kind of growth."""
    print(f"  us of CPU a span at {BATCH} a request, median (min..max) of {effort.rounds(ROUNDS)} rounds in turns")
    figures = []
    for measure in (_identifiers, _mappings, _devices, _waiting):
        with ExitStack() as stack:
            figures += measure(Room(stack), effort)
    return figures


def _identifiers(room: Room, effort: Effort) -> list[Figure]:
    counts = (10, 1_000, 50_000)[: 2 if effort.tiny else 3]
    program = room.program("one")
    subjects = {count: Bridge(f"{count} identifiers", program, files=[synthetic_mapping(count)]) for count in counts}
    return _take_turns("identifiers", room, effort, subjects)


def _mappings(room: Room, effort: Effort) -> list[Figure]:
    """Each has a bridge of its own: how much memory it needs is part of the answer. Devices run one model, or all in turn."""
    many = effort.amount(1_000 if effort.full else 200, 2)
    files = [synthetic_mapping(effort.amount(ENTRIES, 10), number=number) for number in range(many)]
    alone = Bridge("1 mapping", room.program("alone"), files=files[:1])
    loaded = Bridge(f"{many} mappings", room.program("loaded"), files=files, running=1)
    figures = _take_turns("mappings", room, effort, {1: alone, many: loaded})
    running = Bridge(f"{many} mappings", room.program("running"), files=files, devices=many)
    requests = max(TURN_REQUESTS, -(-many // (ROUNDS + 1)))  # so that every model has had its turn
    figures += _take_turns("models running", room, effort, {1: alone, many: running}, requests)
    resident = running.program.rss_mib()
    verdict = "met" if resident <= MOST_MIB else "NOT met"
    print(f"    {many:,} models in use in turn: {resident:.0f} MiB resident   goal at most {MOST_MIB}: {verdict}")
    return figures


def _devices(room: Room, effort: Effort) -> list[Figure]:
    """One, or so many that each request of a run is another's."""
    requests = TURN_REQUESTS * (10 if effort.full else 1)
    counts = (1, effort.amount(requests * (ROUNDS + 1)))
    program = room.program("one")
    subjects = {count: Bridge(f"{count} devices", program, devices=count) for count in counts}
    return _take_turns("devices", room, effort, subjects, requests)


def _take_turns(
    what: str, room: Room, effort: Effort, subjects: Mapping[int, Bridge], requests: int = TURN_REQUESTS
) -> list[Figure]:
    requests = effort.amount(requests, 2)
    costs: dict[int, list[float]] = {count: [] for count in subjects}
    for turn in range(effort.rounds(ROUNDS) + 1):
        for count, subject in subjects.items():
            cost = turn_us(room.sink, subject, BATCH, requests)
            if turn:  # the first round warms up
                costs[count].append(cost)
    return _shown(what, costs, {count: subject.program.rss_mib() for count, subject in subjects.items()})


def _waiting(room: Room, effort: Effort) -> list[Figure]:
    """
    Events that come while the back end is away: what it costs to take them in, and to send them once it is back.

    The deepest queue takes the better part of a minute, and so is filled once where the others are several times.
    """
    patience = {"EXPORT__RETRY_INITIAL_S": "0.2", "EXPORT__RETRY_MAX_S": "0.5", "SPOOL__MAX_BYTES": str(1 << 32)}
    deep_rounds = 3 if effort.full else 1
    figures = []
    for what, durability, deepest in (
        ("waiting", "memory", 10**7),
        ("waiting on disk", "full", 10**7 if effort.full else 10**6),
    ):
        subject = Bridge(what, room.program(durability, SPOOL__DURABILITY=durability, **patience))
        depths = (10**3, 10**5, deepest)
        costs: dict[int, list[float]] = {depth: [] for depth in depths}
        rss: dict[int, float] = {}
        for turn in range(effort.rounds(ROUNDS) + 1):
            for depth in depths if 0 < turn <= deep_rounds else depths[:-1]:
                times = 1 if effort.tiny else max(20_000 // depth, 1)  # a thousand events alone are milliseconds
                cost = statistics.mean(_fill_and_empty(room.sink, subject, depth, effort, rss) for _ in range(times))
                if turn:  # the first round warms up
                    costs[depth].append(cost)
        figures += _shown(what, costs, rss, "when all waited")
    return figures


def _fill_and_empty(sink: Sink, subject: Bridge, depth: int, effort: Effort, rss: dict[int, float]) -> float:
    """Microseconds of CPU an event; in `rss` is noted how much memory was resident when all of them waited."""
    requests = effort.amount(-(-depth // BATCH))
    before, cpu = sink.count().spans, subject.program.cpu_ns()
    sink.hold(True)
    subject.send(BATCH, requests)
    rss[depth] = subject.program.rss_mib()
    sink.hold(False)
    sink.wait_for(before + BATCH * requests, subject.program.process)
    spent = subject.program.cpu_ns() - cpu
    subject.check(sink.last())
    return spent / (BATCH * requests) / 1000


def _shown(what: str, costs: Mapping[int, list[float]], rss: Mapping[int, float], when: str = "at the end") -> list[Figure]:
    for count, values in costs.items():
        print(f"    {count:>10,} {what:15} {spread(values, '.2f'):24} us   {rss[count]:6.0f} MiB resident {when}")
    least, *_, most = costs
    growth = ratio(costs[most], costs[least])
    goal = GOALS.get(what)
    verdict = "" if goal is None else f"   goal at most {goal}: {'met' if growth <= goal else 'NOT met'}"
    print(f"    {most:,} {what} over {least:,}: {growth:.2f} times the cost{verdict}")
    figures = [Figure(f"{what}/{count}", "us/span", values) for count, values in costs.items()]
    return figures + [Figure(f"{what}/{count}/rss", "MiB", [mib]) for count, mib in rss.items()]
