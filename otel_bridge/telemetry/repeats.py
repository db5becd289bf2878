"""
How often the same thing is logged.

Invariants
* Of records of one kind at most `burst` pass within `period_s`; those that do not are counted, and a line says how many.
* A kind is a place in the code, with the level, the kinds of the exceptions that are told, and what the caller gives as
  `extra={"kind": ...}`. So a disk that is full says nothing about one that is broken, and texts of devices make no kinds.
* Memory is bounded: of more than `MAX_KINDS` the one that was heard least lately is told and forgotten.

Not thread-safe: a handler asks while it holds its lock.
"""

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from math import inf

MAX_KINDS = 1000
"""Kinds of records that are remembered."""


@dataclass(slots=True)
class _Kind:
    """`last` is the message of the last record that was left out; the record itself would keep alive what its frames hold."""

    name: str
    level: int
    since_s: float
    passed: int = 0
    left_out: int = 0
    last: str = ""


class Repeats:
    """
    Decides which records pass.

    burst      records of a kind within a period; 0: all
    period_s   seconds, counted from the first one
    clock      seconds, never set back
    """

    def __init__(self, burst: int, period_s: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._burst = burst
        self._period_s = period_s
        self._clock = clock
        self._kinds: OrderedDict[Hashable, _Kind] = OrderedDict()
        self._ends_s = inf

    def sift(self, record: logging.LogRecord) -> Iterator[logging.LogRecord]:
        """What is to be written now: what was left out of periods that are over, then the record if it passes."""
        if not self._burst:
            yield record
            return
        now = self._clock()
        if now >= self._ends_s:
            yield from self._end(now)
        key = _kind_of(record)
        kind = self._kinds.setdefault(key, _Kind(record.name, record.levelno, now))
        self._kinds.move_to_end(key)
        self._ends_s = min(self._ends_s, kind.since_s + self._period_s)
        if kind.passed < self._burst:
            kind.passed += 1
            yield record
        else:
            kind.left_out += 1
            kind.last = _message_of(record)
        if len(self._kinds) > MAX_KINDS:
            yield from self._told(self._kinds.popitem(last=False)[1])

    def rest(self) -> Iterator[logging.LogRecord]:
        """What was left out and is not told yet: at the end."""
        kinds = list(self._kinds.values())
        self._kinds.clear()
        for kind in kinds:
            yield from self._told(kind)

    def _end(self, now: float) -> Iterator[logging.LogRecord]:
        for key in [key for key, kind in self._kinds.items() if now >= kind.since_s + self._period_s]:
            yield from self._told(self._kinds.pop(key))
        self._ends_s = min((kind.since_s + self._period_s for kind in self._kinds.values()), default=inf)

    def _told(self, kind: _Kind) -> Iterator[logging.LogRecord]:
        if kind.left_out:
            message = "%d more lines like this within %g s were left out: %s"
            yield logging.LogRecord(
                kind.name, kind.level, "", 0, message, (kind.left_out, self._period_s, kind.last), None
            )  # fmt: skip


def _message_of(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 - whatever a defect of the caller raises: a log line must never cost its caller
        return f"{record.msg} (its arguments do not fit)"


def _kind_of(record: logging.LogRecord) -> Hashable:
    raised = [record.exc_info[1]] if record.exc_info else []
    args = record.args if isinstance(record.args, tuple) else ()
    told = (each for each in (*raised, *args) if isinstance(each, BaseException))
    kinds = tuple((type(each), getattr(each, "reason", None)) for each in told)
    return record.pathname, record.lineno, record.levelno, kinds, getattr(record, "kind", None)
