"""
The spool on disk against a list in memory, with a crash between any two steps.

A crash is what a kill leaves: the files as they are at that moment, copied away and opened anew. What the old process owed the
disk is then undone, and nothing else.
"""

import asyncio
import shutil
import tempfile
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.spools import DAY_S, LIMITS, Watched, batch, positions

from otel_bridge.spool import commits
from otel_bridge.spool.opening import Clocks
from otel_bridge.spool.protocol import Awaited, Record
from otel_bridge.spool.room import Bounds
from otel_bridge.spool.sqlite import SqliteSpool

T = TypeVar("T")

KEYS = [Awaited(name="a", version="1"), Awaited("a"), Awaited("b")]


@dataclass(frozen=True)
class Entry:
    """A record of the model: which batch, how many events, and what became of it since admission."""

    position: int
    events: int
    waited: bool = False
    build: str | None = None


@dataclass
class Model:
    """What is on disk, in order; `parked` with what each waits for and until when."""

    line: list[Entry] = field(default_factory=list)
    parked: list[tuple[Awaited, float, Entry]] = field(default_factory=list)

    def copy(self) -> "Model":
        """As it is now."""
        return Model(list(self.line), list(self.parked))


class Crashes(RuleBasedStateMachine):
    """`now` is what the process believes, `kept` what survives it: owed changes reach the disk with what is awaited next."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.root = Path(tempfile.mkdtemp(prefix="spool-"))
        self.generation = 0
        self.time_s = 1000.0
        self.next = 0
        self.now, self.kept = Model(), Model()
        self.flying: list[Record] = []
        self.spool: SqliteSpool
        self.watched: Watched

    @initialize(memory_bytes=st.sampled_from([0, 2000, 10**9]))
    def open(self, memory_bytes: int) -> None:
        """A new spool: nothing, little, or all of it in memory."""
        self.memory_bytes = memory_bytes
        self.saved_owed_s, commits.OWED_S = commits.OWED_S, 3600.0
        self._open()

    def _open(self) -> None:
        base_s = 7 * self.generation  # each process has a monotonic clock of its own
        clocks = Clocks(lambda: int(self.time_s * 1e9), lambda: int((self.time_s + base_s) * 1e9))
        self.watched = Watched()
        bounds = Bounds(10**6, self.memory_bytes, DAY_S)
        self.spool = SqliteSpool(self.root / str(self.generation), bounds, LIMITS, self.watched, clocks=clocks)

    def _run(self, main: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(main)

    def _committed(self) -> None:
        self.kept = self.now.copy()

    def teardown(self) -> None:
        """Let it go."""
        self._leave()
        commits.OWED_S = self.saved_owed_s
        self.runner.close()
        shutil.rmtree(self.root)

    @rule(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4))
    def append(self, sizes: list[int]) -> None:
        """Some batches at once."""

        async def all_of_them() -> None:
            first = self.next
            await asyncio.gather(*(self.spool.append(batch(size, first + n)) for n, size in enumerate(sizes)))

        self._run(all_of_them())
        self.now.line += [Entry(self.next + n, size) for n, size in enumerate(sizes)]
        self.next += len(sizes)
        self._committed()

    @precondition(lambda self: len(self.now.line) > len(self.flying))
    @rule(most=st.integers(1, 30))
    def read(self, most: int) -> None:
        """The oldest that nobody reads."""
        before = self.spool._line.cursor
        records = self._run(self.spool.read(most))
        if self.spool._line.cursor != before:  # the disk was read, after what was owed was written
            self._committed()
        waiting = self.now.line[len(self.flying) :]
        expected, left = waiting[: len(records)], waiting[len(records) :]
        assert positions(records) == [entry.position for entry in expected]
        assert [record.has_waited for record in records] == [entry.waited for entry in expected]
        assert [record.build for record in records] == [entry.build for entry in expected]
        events = sum(entry.events for entry in expected)
        assert len(records) == 1 or events <= most
        assert not left or events + left[0].events > most
        self.flying += records

    @precondition(lambda self: self.flying)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        """Some of those that are read, in any order."""
        record = self.flying.pop(data.draw(st.integers(0, len(self.flying) - 1)))
        self._run(self.spool.done([record]))
        self._leave_line(record)

    @precondition(lambda self: self.flying)
    @rule(awaited=st.sampled_from(KEYS), data=st.data())
    def park(self, awaited: Awaited, data: st.DataObject) -> None:
        """One of those that are read."""
        at = data.draw(st.integers(0, len(self.flying) - 1))
        record = self.flying[at]
        mine = sum(entry.events for each, _, entry in self.now.parked if each == awaited)
        every = sum(entry.events for _, _, entry in self.now.parked)
        fits = mine + len(record.batch) <= LIMITS.max_events_per_build and every + len(record.batch) <= LIMITS.max_events
        assert fits == (self._run(self.spool.park(record, awaited)) is None)
        if fits:
            del self.flying[at]
            entry = self._leave_line(record)
            self.now.parked.append((awaited, self.time_s + LIMITS.max_age_s, entry))

    def _leave_line(self, record: Record) -> Entry:
        (position,) = positions([record])
        (entry,) = [entry for entry in self.now.line if entry.position == position]
        self.now.line.remove(entry)
        return entry

    @rule(awaited=st.sampled_from(KEYS))
    def release(self, awaited: Awaited) -> None:
        """All that waits for one thing."""
        mine = [entry for each, _, entry in self.now.parked if each == awaited]
        assert self._run(self.spool.release(awaited, "bound")) == sum(entry.events for entry in mine)
        if mine:
            self.now.parked = [each for each in self.now.parked if each[0] != awaited]
            self._return([replace(entry, build="bound") for entry in mine])

    @rule(seconds=st.integers(0, 45))
    def expire(self, seconds: int) -> None:
        """All whose time is up; of what waits for one thing in order."""
        self.time_s += seconds
        due = [(awaited, entry) for awaited, until_s, entry in self.now.parked if until_s <= self.time_s]
        had_parked = bool(self.now.parked)
        assert self._run(self.spool.expire()) == sum(entry.events for _, entry in due)
        self.now.parked = [each for each in self.now.parked if each[1] > self.time_s]
        if had_parked:
            self._return([entry for _, entry in sorted(due, key=lambda each: KEYS.index(each[0]))])

    def _return(self, entries: list[Entry]) -> None:
        self.now.line += [replace(entry, waited=True) for entry in entries]
        self._committed()

    @rule()
    def crash(self) -> None:
        """Kill it."""
        before = self.root / str(self.generation)
        shutil.copytree(before, self.root / str(self.generation + 1), ignore=shutil.ignore_patterns("*-shm"))
        self._leave()
        self.now = self.kept.copy()
        self._reopen()

    @rule()
    def restart(self) -> None:
        """Stop it in good order: nothing is owed then."""
        self._leave()
        (self.root / str(self.generation)).rename(self.root / str(self.generation + 1))
        self._reopen()
        self._committed()

    def _leave(self) -> None:
        self.spool.close()
        self._run(self.spool.finish())

    def _reopen(self) -> None:
        self.generation += 1
        self.flying = []
        self._open()
        held = self.now.line + [entry for _, _, entry in self.now.parked]
        assert (self.watched.found, self.watched.drops) == (sum(entry.events for entry in held), Counter())

    @invariant()
    def counts(self) -> None:
        """Events are those of what is held."""
        if self.generation >= 0 and hasattr(self, "spool"):
            assert self.spool.events == sum(entry.events for entry in self.now.line)
            assert self.spool.parked_events == sum(entry.events for _, _, entry in self.now.parked)


Crashes.TestCase.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
TestCrashes = Crashes.TestCase
