"""
Timing side by side: subjects take turns, so that what else the machine does falls on all of them.

What is measured is the CPU that the thread takes: waiting while others have the processor does not count.
"""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

ROUND_S = 0.02
"""Each turn repeats its subject for at least this long."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured thing: its name, unit, and a value a round."""

    name: str
    unit: str
    values: Sequence[float]


def take_turns(subjects: Mapping[str, Callable[[], object]], per: int, rounds: int) -> dict[str, list[float]]:
    """Nanoseconds of one call divided by `per` (events or spans in it), for each subject one value a round."""
    for subject in subjects.values():
        subject()  # caches and imports are not what is asked for
    measured: dict[str, list[float]] = {name: [] for name in subjects}
    for _ in range(rounds):
        for name, subject in subjects.items():
            measured[name].append(_time_turn(subject) / per)
    return measured


def _time_turn(subject: Callable[[], object]) -> float:
    calls = 0
    begin = time.thread_time_ns()
    while (spent := time.thread_time_ns() - begin) < ROUND_S * 1e9:
        subject()
        calls += 1
    return spent / calls


def ratio(slow: Sequence[float], fast: Sequence[float]) -> float:
    """How many times faster, of medians."""
    return statistics.median(slow) / statistics.median(fast)


def spread(values: Sequence[float], form: str = ",.0f") -> str:
    """Median (min..max)."""
    return f"{statistics.median(values):{form}} ({min(values):{form}}..{max(values):{form}})"


@dataclass(frozen=True, slots=True)
class Effort:
    """
    How much a benchmark does.

    tiny   no more than shows that it runs: nothing it prints means anything
    full   the long lines, too
    """

    tiny: bool = False
    full: bool = False

    def rounds(self, usual: int) -> int:
        """Rounds to make."""
        return 1 if self.tiny else usual

    def amount(self, usual: int, least: int = 1) -> int:
        """Work of a turn."""
        return max(usual // 100, least) if self.tiny else usual


USUAL = Effort()
