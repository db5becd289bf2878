"""A flood of log records is told, and not written."""

import logging
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.logs import logged

from otel_bridge.errors import ExportRejected, SpoolFull
from otel_bridge.telemetry.repeats import MAX_KINDS, Repeats

logger = logging.getLogger("otel_bridge.test")


class Clock:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        """The time."""
        return self.now


def record(line: int, *args: object, level: int = logging.WARNING, **extra: object) -> logging.LogRecord:
    """A record of the place in line `line` of some file."""
    made = logging.LogRecord("otel_bridge.test", level, "file.py", line, "at %s", args or (line,), None)
    vars(made).update(extra)
    return made


def sifted(repeats: Repeats, *records: logging.LogRecord) -> list[str]:
    """The messages that are written of these records."""
    return [written.getMessage() for each in records for written in repeats.sift(each)]


def test_a_flood_is_counted() -> None:
    """Of many records of one place a few are written, and one line says how many others there were, and what the last said."""
    with logged(burst=3, period_s=60) as stream:
        for number in range(1000):
            logger.warning("record %d of a device", number)
        logger.warning("something else")
    lines = [line.partition(": ")[2] for line in stream.getvalue().splitlines()]
    few = [f"record {number} of a device" for number in range(3)]
    told = "997 more lines like this within 60 s were left out: record 999 of a device"
    assert lines == [*few, "something else", told]


def test_a_period_ends() -> None:
    """Once a period is over the next record, of whatever kind, brings the count, and the kind may speak again."""
    clock = Clock()
    repeats = Repeats(1, 10, clock=clock)
    assert sifted(repeats, record(1), record(1), record(1)) == ["at 1"]
    clock.now += 9.9
    assert sifted(repeats, record(1), record(2)) == ["at 2"]
    clock.now += 0.1
    assert sifted(repeats, record(3)) == ["3 more lines like this within 10 s were left out: at 1", "at 3"]
    assert sifted(repeats, record(1), record(1)) == ["at 1"]
    clock.now += 100
    assert sifted(repeats, record(2)) == ["1 more lines like this within 10 s were left out: at 1", "at 2"]


def test_kinds_do_not_silence_each_other() -> None:
    """Another level, exception in the arguments, reason of it, or word of the caller is another kind."""
    full, taken = SpoolFull("no room"), ExportRejected("not taken")
    others = [
        record(1, level=logging.ERROR),
        record(1, OSError(28, "full")),
        record(1, full),
        record(1, taken),
        record(1, ExportRejected("not taken", reason="export_too_large")),
        record(1, kind="expired"),
        record(1, kind="unknown"),
    ]
    repeats = Repeats(1, 10, clock=Clock())
    assert len(sifted(repeats, *[record(1)] * 50, *others)) == 1 + len(others)
    assert sifted(repeats, *others) == []


def test_texts_make_no_kinds() -> None:
    """Whatever a device says, the place in the code is the same."""
    repeats = Repeats(2, 10, clock=Clock())
    assert len(sifted(repeats, *(record(1, f"device {number}") for number in range(1000)))) == 2


def test_memory_is_bounded_and_nothing_is_forgotten_silently() -> None:
    """Of more kinds than are kept, the one that was heard least lately is told before it is forgotten."""
    repeats = Repeats(1, 10, clock=Clock())
    sifted(repeats, record(0), record(0))
    written = sifted(repeats, *(record(line) for line in range(1, MAX_KINDS + 1)))
    assert "1 more lines like this within 10 s were left out: at 0" in written
    assert len(repeats._kinds) == MAX_KINDS


def test_arguments_that_do_not_fit_cost_nobody() -> None:
    """A record that cannot be put into words raises nothing where it is logged, and is counted as any other."""
    repeats = Repeats(1, 10, clock=Clock())
    for _ in range(3):
        list(repeats.sift(record(1, "one", "too many")))
    (told,) = [each.getMessage() for each in repeats.rest()]
    assert told.startswith("2 more lines like this within 10 s were left out: at %s")


@pytest.mark.parametrize("exception", [ValueError, OSError])
def test_no_bound(exception: type[Exception]) -> None:
    """With a burst of 0 all is written, tracebacks too."""
    with logged(burst=0) as stream:
        for _ in range(50):
            logger.error("failed", exc_info=exception("x"))
    assert stream.getvalue().count(f"{exception.__name__}: x") == 50


@given(st.lists(st.tuples(st.integers(0, 5), st.floats(0, 8)), max_size=100), st.integers(1, 4))
def test_every_record_is_written_or_counted(events: list[tuple[int, float]], burst: int) -> None:
    """Whatever comes whenever, what is written and what is told to be left out are what was logged."""
    clock = Clock()
    repeats = Repeats(burst, 10, clock=clock)
    seen: Counter[str] = Counter()
    written: list[logging.LogRecord] = []
    for line, wait_s in events:
        clock.now += wait_s
        written += repeats.sift(record(line))
    written += repeats.rest()
    for each in written:
        left_out = each.args[0] if isinstance(each.args, tuple) and len(each.args) == 3 else None
        seen[each.getMessage()[-1]] += left_out if isinstance(left_out, int) else 1
    assert seen == Counter(str(line) for line, _ in events)
