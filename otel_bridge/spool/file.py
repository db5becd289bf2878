"""
A spool's file: what can be done to it, in SQL. One thread uses it, and says where transactions begin and end.

Invariants
* Each method leaves the books in agreement with the tables, within the caller's transaction.
* Numbers ascend in the order of calls, over `append`, `release` and `expire`: order of reading is order of numbers.
* A record is moved between tables as it is, byte for byte; what returns to the records waits for its turn from then on.
* What a destination does to a record is done for it alone: the others' bits stay as they are.
"""

import sqlite3
from collections.abc import Sequence
from typing import Self

from otel_bridge.spool import arrivals
from otel_bridge.spool.age import AgeClock
from otel_bridge.spool.arrivals import Arrival
from otel_bridge.spool.books import Account, Books, Mark
from otel_bridge.spool.held import Held, Shares, share_of, total
from otel_bridge.spool.protocol import CORRUPT, REMOVED, Awaited, Ended, Seen
from otel_bridge.spool.rows import Row, events_in, ranges_of
from otel_bridge.spool.schema import ROW_COLUMNS, bit

MAX_QUARANTINE_BYTES = 16 << 20
"""Of records that could not be read, the oldest go first."""

_NOTED_NS = 10**9
"""The time is noted when this has passed: the age of what waits goes on from any moment that was noted (age.py)."""
_IS_AWAITED = "tenant = ? AND awaited_build = ? AND name = ? AND version = ?"
_SUMS = "count(*), coalesce(sum(events), 0), coalesce(sum(size), 0), coalesce(max(number), 0)"


class SpoolFile:
    """The file behind a connection in autocommit mode, which has the tables of schema.py. Nobody is served at first."""

    def __init__(self, connection: sqlite3.Connection, clock: AgeClock, mark: Mark) -> None:
        self._connection = connection
        self._clock = clock
        self._mark = mark
        self._books = Books(connection)
        connection.executescript(arrivals.CREATE).close()
        tables = ("records", "parked", "quarantine")
        self._next = 1 + max(self._value(f"SELECT coalesce(max(number), 0) FROM {table}") for table in tables)
        self._changes = connection.total_changes
        self._noted_ns: int | None = None
        self._all = 0

    @property
    def must_note_time(self) -> bool:
        """Whether the next commit is to say when it was."""
        return self._noted_ns is None or self._clock.now_ns() - self._noted_ns > _NOTED_NS

    def begin(self) -> None:
        """Begin a transaction, as the only writer. One call of `append` is one without it, unless the time must be noted."""
        self._connection.execute("BEGIN IMMEDIATE").close()

    def commit(self) -> None:
        """End it. Once this returns, what it wrote survives; where it wrote nothing, the disk is left alone."""
        changed = self._connection.total_changes != self._changes
        accounts = self._books.now() if changed else ()  # before: an error now would deny what is kept
        if self._connection.in_transaction:
            if changed and self.must_note_time:
                self.note_time()
            self._connection.execute("COMMIT").close()
        self._changes = self._connection.total_changes
        if changed:
            self._mark.write(accounts)

    def roll_back(self) -> None:
        """Give it up."""
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK").close()
        self._changes = self._connection.total_changes
        self._books.forget()
        self._noted_ns = None

    def note_time(self) -> None:
        """Write down when this was, for the age of what waits."""
        self._noted_ns = self._clock.now_ns()
        note = "UPDATE clock SET age_ns = ?, noted_ns = ?"
        self._connection.execute(note, (self._noted_ns, self._clock.wall_ns())).close()

    def settle(self) -> dict[str, int]:
        """Bring books and tables into agreement, where damage has set them apart; the events that are lost, by destination."""
        self._books.adopt(self._mark.accounts)
        accounts = self._books.read()
        self._keep_only(sum(bit(each.number) for each in accounts))
        if any(self._events_of(each.number) != each.here for each in accounts):
            self._count_anew()
        return self._books.settle({each.number: self._events_of(each.number) for each in accounts}, self._mark.accounts)

    def serve(self, names: Sequence[str]) -> dict[str, int]:
        """
        Keep what is appended for these destinations, and give up what others have not got; its events, by destination.

        A destination that was not served before begins with what comes from now on. Raises `ConfigError`.
        """
        served = self._books.serve(names)
        self._all = sum(map(bit, served.values()))
        left = {each.name: each for each in self._books.read() if each.name not in served and each.here}
        for each in left.values():
            self._books.end(each.number, Ended(dropped={REMOVED: each.here}))
        self._keep_only(self._all)
        return {name: each.here for name, each in left.items()}

    def accounts(self) -> list[Account]:
        """What the books say of those that are served."""
        return [each for each in self._books.read() if bit(each.number) & self._all]

    def append(self, arriving: Sequence[Arrival]) -> list[int]:
        """Keep records, and that their requests were seen; their numbers."""
        first, now_ns = self._take_numbers(len(arriving)), self._clock.now_ns()
        for at in range(0, len(arriving), arrivals.AT_ONCE):
            some = arriving[at : at + arrivals.AT_ONCE]
            arrivals.insert(self._connection, some, first + at, now_ns, self._all)
        self._books.note_accepted(self._all, sum(each.events for each in arriving))
        return list(range(first, self._next))

    def end(self, destination: int, numbers: Sequence[int], ended: Ended) -> None:
        """A destination is done with records."""
        self._leave(destination, numbers)
        self._books.end(destination, ended)

    def rows(self, destination: int, after: int, last: int, max_bytes: int) -> list[Row]:
        """
        What a destination is not done with, of the records with numbers above `after`, to `last`, in order.

        As many as have `max_bytes`, and at least one.
        """
        found: list[Row] = []
        taken = 0
        # Casts, since a damaged page may hold values of any type.
        cursor = self._connection.execute(
            "SELECT number, CAST(events AS INTEGER), CAST(size AS INTEGER), CAST(kept_ns AS INTEGER), waited = 1, "
            "CAST(build AS TEXT), CAST(checksum AS INTEGER), CAST(body AS BLOB), CAST(pending AS INTEGER) "
            "FROM records WHERE number > ? AND number <= ? AND pending & ? ORDER BY number",
            (after, last, bit(destination)),
        )
        for number, events, size, kept_ns, waited, build, checksum, body, pending in cursor:
            found.append(Row(number, events, size, kept_ns, bool(waited), build, checksum, body, pending))
            taken += size
            if taken >= max_bytes:
                break
        cursor.close()
        return found

    def park(self, destination: int, number: int, awaited: Awaited, build: str | None, until_ns: int) -> None:
        """Move a record to the lot, for one destination; where it waits there for another, it waits once, for both."""
        key = _key(awaited)
        merged = self._connection.execute(
            "UPDATE parked SET pending = pending | ? WHERE number = ? "
            f"AND {_IS_AWAITED} AND build IS coalesce(?, (SELECT build FROM records WHERE number = ?))",
            (bit(destination), number, *key, build, number),
        )
        if not merged.rowcount:
            is_taken = self._connection.execute("SELECT 1 FROM parked WHERE number = ?", (number,)).fetchone()
            own = self._take_numbers(1) if is_taken else number
            self._connection.execute(
                f"INSERT INTO parked (number, tenant, awaited_build, name, version, until_ns, pending, build, {_but_build()}) "
                f"SELECT ?, ?, ?, ?, ?, ?, ?, coalesce(?, build), {_but_build()} FROM records WHERE number = ?",
                (own, *key, until_ns, bit(destination), build, number),
            )
        self._leave(destination, [number])

    def release(self, awaited: Awaited, build: str) -> Shares:
        """Move what waits for one thing back to the records, bound to a build."""
        return self._return(awaited, None, build)

    def expire(self) -> dict[Awaited, Shares]:
        """Move what has waited long enough back to the records."""
        now_ns = self._clock.now_ns()
        due = "SELECT DISTINCT tenant, awaited_build, name, version FROM parked WHERE until_ns <= ?"
        found = [_awaited(*key) for key in self._connection.execute(due, (now_ns,)).fetchall()]
        return {awaited: self._return(awaited, now_ns, None) for awaited in found}

    def quarantine(self, destination: int, number: int, events: int, reason: str) -> None:
        """Set a record apart that cannot be read, with what a destination has lost of it; at the bound the oldest ones go."""
        self._connection.execute(
            f"INSERT OR IGNORE INTO quarantine (number, reason, {ROW_COLUMNS}) "
            f"SELECT number, ?, {ROW_COLUMNS} FROM records WHERE number = ?",
            (reason, number),
        )
        self.end(destination, [number], Ended(dropped={CORRUPT: events}))
        while self._value("SELECT coalesce(sum(size), 0) FROM quarantine") > MAX_QUARANTINE_BYTES:
            self._connection.execute("DELETE FROM quarantine WHERE number = (SELECT min(number) FROM quarantine)")

    def miss(self, destination: int, events: int) -> None:
        """Events that were here are not; a negative number: there were more."""
        if events < 0:
            self._books.accept(bit(destination), -events)
        else:
            self._books.end(destination, Ended(dropped={CORRUPT: events}))

    def seen(self) -> list[Seen]:
        """The requests that were seen."""
        now_ns = self._clock.now_ns()
        query = "SELECT CAST(key AS BLOB), CAST(digest AS BLOB), CAST(answer AS BLOB), CAST(noted_ns AS INTEGER) FROM seen"
        return [Seen(key, digest, answer, now_ns - at) for key, digest, answer, at in self._connection.execute(query)]

    def forget_seen(self, age_ns: int) -> None:
        """Forget requests that were seen longer ago."""
        self._connection.execute("DELETE FROM seen WHERE noted_ns < ?", (self._clock.now_ns() - age_ns,))

    def free_bytes(self) -> int:
        """Of the file, what the next records can take before it grows."""
        return self._value("PRAGMA freelist_count") * self._value("PRAGMA page_size")

    def size_bytes(self) -> int:
        """Bytes of all records, those in the lot not among them."""
        return total(self.waiting()).size

    def waiting(self) -> Shares:
        """What waits for the pipeline."""
        return self._shares("records")

    def parked(self) -> dict[Awaited, Shares]:
        """What is parked, by what it waits for."""
        keys = self._connection.execute("SELECT DISTINCT tenant, awaited_build, name, version FROM parked").fetchall()
        return {_awaited(*key): self._shares(f"parked WHERE {_IS_AWAITED}", key) for key in keys}

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()
        self._mark.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _events_of(self, destination: int) -> int:
        return sum(share_of(some, destination).events for some in (self.waiting(), *self.parked().values()))

    def _count_anew(self) -> None:
        """Say of each record what its body holds, nothing where that is damaged: a count may be what fell over."""
        for table in ("records", "parked"):
            query = f"SELECT number, CAST(events AS INTEGER), CAST(checksum AS INTEGER), CAST(body AS BLOB) FROM {table}"
            found = [
                (events_in(body, checksum), number, events)
                for number, events, checksum, body in self._connection.execute(query)
            ]
            changed = [(actual, number) for actual, number, events in found if actual != events]
            self._connection.executemany(f"UPDATE {table} SET events = ? WHERE number = ?", changed)

    def _leave(self, destination: int, numbers: Sequence[int]) -> None:
        mine, ranges = bit(destination), ranges_of(numbers)
        rest = ""
        if self._all != mine:
            leave = f"UPDATE records SET pending = pending & {~mine} WHERE number BETWEEN ? AND ?"
            self._connection.executemany(leave, ranges).close()
            rest = " AND pending = 0"
        self._connection.executemany(f"DELETE FROM records WHERE number BETWEEN ? AND ?{rest}", ranges).close()

    def _keep_only(self, mask: int) -> None:
        """Take all other bits away."""
        for table in ("records", "parked"):
            self._connection.execute(f"UPDATE {table} SET pending = pending & ? WHERE pending & ?", (mask, ~mask))
            self._connection.execute(f"DELETE FROM {table} WHERE pending & ? = 0", (mask,))

    def _return(self, awaited: Awaited, until_ns: int | None, build: str | None) -> Shares:
        """Move what waits for one thing, all of it or what is due, to the end of the records."""
        due = "parked WHERE " + _IS_AWAITED + (" AND until_ns <= ?" if until_ns is not None else "")
        key = _key(awaited) if until_ns is None else (*_key(awaited), until_ns)
        rest = _but_build().replace("kept_ns, ", "") + ", pending"
        first = self._next
        moved = self._connection.execute(
            f"INSERT INTO records (number, waited, build, kept_ns, {rest}) SELECT ? - 1 + row_number() OVER (ORDER BY number), "
            f"1, coalesce(?, build), ?, {rest} FROM {due}",
            (first, build, self._clock.now_ns(), *key),
        )
        self._take_numbers(moved.rowcount)
        self._connection.execute(f"DELETE FROM {due}", key)
        return self._shares("records WHERE number >= ?", (first,))

    def _shares(self, where: str, arguments: Sequence[object] = ()) -> Shares:
        query = f"SELECT CAST(pending AS INTEGER), {_SUMS} FROM {where} GROUP BY 1"
        return {mask: Held(*sums) for mask, *sums in self._connection.execute(query, arguments)}

    def _take_numbers(self, count: int) -> int:
        first = self._next
        self._next += count
        return first

    def _value(self, query: str) -> int:
        (value,) = self._connection.execute(query).fetchone()
        return int(value)


def _but_build() -> str:
    return ROW_COLUMNS.replace("build, ", "")


def _key(awaited: Awaited) -> tuple[str, str, str, str]:
    return awaited.tenant, awaited.build, awaited.name, awaited.version


def _awaited(tenant: str, build: str, name: str, version: str) -> Awaited:
    return Awaited(build, name, version, tenant)
