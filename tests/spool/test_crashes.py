"""
The spool on disk, with two destinations, against lists in memory, with a crash between any two steps.

A crash is what a kill leaves: the files as they are at that moment, copied away and opened anew. What the old process owed the
disk is then undone, and nothing else.
"""

import asyncio
import copy
import shutil
import tempfile
from collections import Counter
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.spools import DAY_S, LIMITS, Watched, batch, positions

from otel_bridge.spool import commits
from otel_bridge.spool.encode import encode
from otel_bridge.spool.opening import Clocks
from otel_bridge.spool.outlet import SqliteOutlet
from otel_bridge.spool.protocol import Awaited, Ended, Record
from otel_bridge.spool.room import Bounds
from otel_bridge.spool.schema import ROW_BYTES
from otel_bridge.spool.sqlite import SqliteSpool

T = TypeVar("T")

KEYS = [Awaited(name="a", version="1"), Awaited("a"), Awaited("b")]
NAMES = ("default", "archive")


@dataclass(frozen=True)
class Entry:
    """A record of the model: which batch, how many events, and what became of it since admission."""

    position: int
    events: int
    waited: bool = False
    build: str | None = None


@dataclass
class Side:
    """
    What is on disk for one destination, in order; `parked` with what each waits for and until when; the books.

    A record that waits for both waits once, as long as the one that parked it first.
    """

    line: list[Entry] = field(default_factory=list)
    parked: list[tuple[Awaited, float, Entry]] = field(default_factory=list)
    accepted: int = 0
    emitted: int = 0
    dropped: int = 0

    @property
    def events(self) -> int:
        """Of all that is here."""
        return sum(entry.events for entry in self.line) + sum(entry.events for _, _, entry in self.parked)


Model = dict[str, Side]


class Crashes(RuleBasedStateMachine):
    """`now` is what the process believes, `kept` what survives it: owed changes reach the disk with what is awaited next."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.root = Path(tempfile.mkdtemp(prefix="spool-"))
        self.generation = 0
        self.time_s = 1000.0
        self.next = 0
        self.sizes: list[int] = []
        self.now: Model = {name: Side() for name in NAMES}
        self.kept = copy.deepcopy(self.now)
        self.flying: dict[str, list[Record]] = {name: [] for name in NAMES}
        self.spool: SqliteSpool
        self.watched: Watched

    @initialize(memory_bytes=st.sampled_from([0, 4000, 10**9]))
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
        folder = self.root / str(self.generation)
        self.spool = SqliteSpool(folder, bounds, LIMITS, self.watched, destinations=NAMES, clocks=clocks)

    def _outlet(self, name: str) -> SqliteOutlet:
        return self.spool.outlets[name]

    def _run(self, main: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(main)

    def _committed(self) -> None:
        self.kept = copy.deepcopy(self.now)

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
            batches = [batch(size, first + n) for n, size in enumerate(sizes)]
            self.sizes += [len(encode(each)) + ROW_BYTES for each in batches]
            await asyncio.gather(*map(self.spool.append, batches))

        self._run(all_of_them())
        for side in self.now.values():
            side.line += [Entry(self.next + n, size) for n, size in enumerate(sizes)]
            side.accepted += sum(sizes)
        self.next += len(sizes)
        self._committed()

    @rule(name=st.sampled_from(NAMES), most=st.integers(1, 30))
    def read(self, name: str, most: int) -> None:
        """The oldest that nobody reads, if there are any."""
        outlet, flying, line = self._outlet(name), self.flying[name], self.now[name].line
        if len(line) == len(flying):
            return
        before = outlet._line.cursor
        records = self._run(outlet.read(most))
        if outlet._line.cursor != before:  # the disk was read, after what was owed was written
            self._committed()
        waiting = line[len(flying) :]
        expected, left = waiting[: len(records)], waiting[len(records) :]
        assert positions(records) == [entry.position for entry in expected]
        assert [record.has_waited for record in records] == [entry.waited for entry in expected]
        assert [record.build for record in records] == [entry.build for entry in expected]
        events = sum(entry.events for entry in expected)
        assert len(records) == 1 or events <= most
        assert not left or events + left[0].events > most
        flying += records

    def _pick(self, name: str, data: st.DataObject) -> Record | None:
        flying = self.flying[name]
        return flying[data.draw(st.integers(0, len(flying) - 1))] if flying else None

    @rule(name=st.sampled_from(NAMES), dropped=st.integers(0, 2), data=st.data())
    def done(self, name: str, dropped: int, data: st.DataObject) -> None:
        """One of those that are read, in any order."""
        record = self._pick(name, data)
        if record is None:
            return
        self.flying[name].remove(record)
        entry = self._leave_line(name, record)
        dropped = min(dropped, entry.events)
        ended = Ended(entry.events - dropped, {"partial_success": dropped} if dropped else {})
        self._run(self._outlet(name).done([record], ended))
        self.now[name].emitted += ended.emitted
        self.now[name].dropped += dropped

    @rule(name=st.sampled_from(NAMES), awaited=st.sampled_from(KEYS), data=st.data())
    def park(self, name: str, awaited: Awaited, data: st.DataObject) -> None:
        """One of those that are read."""
        record, side = self._pick(name, data), self.now[name]
        if record is None:
            return
        mine = sum(entry.events for each, _, entry in side.parked if each == awaited)
        every = sum(entry.events for _, _, entry in side.parked)
        fits = mine + len(record.batch) <= LIMITS.max_events_per_build and every + len(record.batch) <= LIMITS.max_events
        assert fits == (self._run(self._outlet(name).park(record, awaited)) is None)
        if fits:
            self.flying[name].remove(record)
            entry = self._leave_line(name, record)
            side.parked.append((awaited, self._until_s(awaited, entry), entry))

    def _until_s(self, awaited: Awaited, entry: Entry) -> float:
        """Where it waits already for the other destination, in the same form: until that one's time is up."""
        others = [until_s for side in self.now.values() for each, until_s, it in side.parked if (each, it) == (awaited, entry)]
        return min(others, default=self.time_s + LIMITS.max_age_s)

    def _leave_line(self, name: str, record: Record) -> Entry:
        (position,) = positions([record])
        line = self.now[name].line
        (entry,) = [entry for entry in line if entry.position == position]
        line.remove(entry)
        return entry

    @rule(awaited=st.sampled_from(KEYS))
    def release(self, awaited: Awaited) -> None:
        """All that waits for one thing, for both."""
        released = self._run(self.spool.release(awaited, "bound"))
        expected = {}
        for name, side in self.now.items():
            mine = [entry for each, _, entry in side.parked if each == awaited]
            side.parked = [each for each in side.parked if each[0] != awaited]
            side.line += [replace(entry, waited=True, build="bound") for entry in mine]
            if mine:
                expected[name] = sum(entry.events for entry in mine)
        assert released == expected
        if expected:
            self._committed()

    @rule(seconds=st.integers(0, 45))
    def expire(self, seconds: int) -> None:
        """All whose time is up; of what waits for one thing in order."""
        self.time_s += seconds
        had_parked = any(side.parked for side in self.now.values())
        expired = self._run(self.spool.expire())
        expected = {}
        for name, side in self.now.items():
            due = [(awaited, entry) for awaited, until_s, entry in side.parked if until_s <= self.time_s]
            side.parked = [each for each in side.parked if each[1] > self.time_s]
            side.line += [replace(entry, waited=True) for _, entry in sorted(due, key=lambda each: KEYS.index(each[0]))]
            if due:
                expected[name] = sum(entry.events for _, entry in due)
        assert expired == expected
        if had_parked:
            self._committed()

    @rule()
    def crash(self) -> None:
        """Kill it."""
        before = self.root / str(self.generation)
        shutil.copytree(before, self.root / str(self.generation + 1), ignore=shutil.ignore_patterns("*-shm"))
        self._leave()
        self.now = copy.deepcopy(self.kept)
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
        self.flying = {name: [] for name in NAMES}
        self._open()
        held = Counter({name: side.events for name, side in self.now.items()})
        assert (self.watched.found_for, self.watched.drops) == (held, Counter())

    @invariant()
    def counts(self) -> None:
        """Events are those of what is held, the books say how the others ended, and bytes are counted once."""
        if not hasattr(self, "spool"):
            return
        for name, side in self.now.items():
            outlet = self._outlet(name)
            assert outlet.events == sum(entry.events for entry in side.line)
            assert outlet.parked_events == sum(entry.events for _, _, entry in side.parked)
            assert outlet.unaccounted_events == 0
            books = (outlet._accepted, outlet._ended.emitted, sum(outlet._ended.dropped.values()))
            assert books == (side.accepted, side.emitted, side.dropped)
        one, other = (side.line for side in self.now.values())
        # Equal entries are one record, but for those that waited for different things.
        least, most = self._size({*one, *other}), self._size(one) + self._size(other)
        assert least <= self.spool.size_bytes <= most
        if not any(entry.waited for entry in (*one, *other)):
            assert self.spool.size_bytes == least

    def _size(self, entries: Iterable[Entry]) -> int:
        return sum(self.sizes[entry.position] for entry in entries)


Crashes.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestCrashes = Crashes.TestCase
