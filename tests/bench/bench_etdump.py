"""
What reading an ETDump costs: the fast reader against the reference reader, in one run, as a ratio.

Both readers take turns, so that what else the machine does falls on both. Run: `python tests/bench/bench_etdump.py`.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from otel_bridge.etdump.read import read
from otel_bridge.etdump.reference import read_reference
from otel_bridge.etdump.result import ETDump
from otel_bridge.model.stream import Stream

Reader = Callable[[bytes, Stream], ETDump]

XNNPACK = Path(__file__).parents[1] / "fixtures" / "xnnpack"
STREAM = Stream(stream_id=bytes(range(16)))
ROUNDS = 15
ROUND_S = 0.02
"""Each round of a reader repeats it for at least this long."""


@dataclass(frozen=True, slots=True)
class Row:
    """One capture: ns per event of each reader, over rounds, and how many times faster the fast one is (of medians)."""

    capture: str
    events: int
    fast_ns: list[float]
    reference_ns: list[float]

    @property
    def ratio(self) -> float:
        """Reference over fast."""
        return statistics.median(self.reference_ns) / statistics.median(self.fast_ns)


def run() -> list[Row]:
    """Measure one large capture and one of a single inference."""
    return [_measure("run100.etdp"), _measure("run.etdp")]


def _measure(capture: str) -> Row:
    data = (XNNPACK / capture).read_bytes()
    events = len(read(data, STREAM).batch)
    rounds = [(_time_once(read, data), _time_once(read_reference, data)) for _ in range(ROUNDS)]
    fast, reference = zip(*rounds, strict=True)
    return Row(capture, events, [ns / events for ns in fast], [ns / events for ns in reference])


def _time_once(reader: Reader, data: bytes) -> float:
    """Nanoseconds of one read, as the mean of a round."""
    repeats = 0
    begin = time.perf_counter_ns()
    while (spent := time.perf_counter_ns() - begin) < ROUND_S * 1e9:
        reader(data, STREAM)
        repeats += 1
    return spent / repeats


def main() -> None:
    """Print the rows."""
    print("etdump: ns per event, median (min..max) of", ROUNDS, "rounds")
    for row in run():
        print(
            f"  {row.capture:12} {row.events:5} events   fast {_spread(row.fast_ns)}   reference {_spread(row.reference_ns)}"
            f"   ratio {row.ratio:.1f}x"
        )


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):,.0f} ({min(values):,.0f}..{max(values):,.0f})"


if __name__ == "__main__":
    main()
