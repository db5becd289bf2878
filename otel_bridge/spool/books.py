"""
The books of a spool's file: for each destination, in events, what was accepted for it and how that ended.

Invariants
* They are written in the transaction that keeps or removes the events, so no end of the process comes between the two.
* For each destination: accepted = emitted + dropped + events here. `settle` makes it so after damage, in the open: as a loss.
* What was read of the tables is changed as they are, so that a commit need not read them; it is forgotten where one fails.
"""

import contextlib
import json
import os
import sqlite3
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic_core import to_json

from otel_bridge.errors import ConfigError
from otel_bridge.model.destination import MAX_DESTINATIONS
from otel_bridge.spool.protocol import CORRUPT, Ended
from otel_bridge.spool.schema import bit


@dataclass(frozen=True, slots=True)
class Account:
    """
    What the books say of one destination, in events.

    dropped   by reason
    """

    number: int
    name: str
    accepted: int = 0
    emitted: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)

    @property
    def here(self) -> int:
        """Events that are neither emitted nor dropped."""
        return self.accepted - self.emitted - sum(self.dropped.values())


class Mark:
    """
    The books once more, beside the database: tells what a write-ahead log that was cut, or a page that is gone, has taken.

    Not synchronised with the disk. A power cut may lose what was written last; then less of a loss is known, never too much.

    accounts   as in the tables; none where the mark is not there, or damaged
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("r+b" if path.exists() else "w+b", buffering=0)
        self.accounts = _parse(self._file.read())

    def write(self, accounts: Iterable[Account]) -> None:
        """Note the books, if it can be: what was committed stands without it."""
        rows = [(each.number, each.name, each.accepted, each.emitted, each.dropped) for each in accounts]
        text = to_json(rows)
        with contextlib.suppress(OSError):
            # What is behind the line is of before, and not read.
            os.pwrite(self._file.fileno(), b"%08x%b\n" % (zlib.crc32(text), text), 0)

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


def _parse(found: bytes) -> list[Account]:
    line = found.partition(b"\n")[0]
    if b"%08x" % zlib.crc32(line[8:]) != line[:8]:
        return []
    return [Account(*row) for row in json.loads(line[8:])]


class Books:
    """The tables `books` and `drops` behind a connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._known: dict[int, Account] | None = None

    def now(self) -> Iterable[Account]:
        """What they say, also within a transaction."""
        if self._known is None:
            self._known = {each.number: each for each in self.read()}
        return self._known.values()

    def forget(self) -> None:
        """What was read may not be so any more."""
        self._known = None

    def read(self) -> list[Account]:
        """All accounts, also those of destinations that are served no longer."""
        drops: dict[int, dict[str, int]] = {}
        for number, reason, events in self._connection.execute(
            "SELECT destination, CAST(reason AS TEXT), CAST(events AS INTEGER) FROM drops"
        ):
            drops.setdefault(number, {})[reason] = events
        rows = self._connection.execute(
            "SELECT destination, CAST(name AS TEXT), CAST(accepted AS INTEGER), CAST(emitted AS INTEGER) FROM books"
        )
        return [Account(number, name, accepted, emitted, drops.get(number, {})) for number, name, accepted, emitted in rows]

    def write(self, accounts: Iterable[Account]) -> None:
        """Make the tables say this."""
        self.forget()
        for table in ("books", "drops"):
            self._connection.execute(f"DELETE FROM {table}")
        for each in accounts:
            columns = (each.number, each.name, each.accepted, each.emitted)
            self._connection.execute("INSERT INTO books VALUES (?, ?, ?, ?)", columns)
            self.end(each.number, Ended(dropped=dict(each.dropped)))

    def adopt(self, marked: Iterable[Account]) -> None:
        """Take in whoever has events by the mark and is unknown to the tables: they are new, or a page of them is gone."""
        accounts = {each.number: each for each in self.read()}
        names = {each.name for each in accounts.values()}
        found = [each for each in marked if each.here > 0 and each.number not in accounts and each.name not in names]
        if found:
            self.write([*accounts.values(), *found])

    def serve(self, names: Sequence[str]) -> dict[str, int]:
        """The numbers of these destinations, new ones for new names. Raises `ConfigError` where the file has known too many."""
        known = {each.name: each.number for each in self.read()}
        for name in names:
            number = known.setdefault(name, 1 + max(known.values(), default=0))
            if number > MAX_DESTINATIONS:
                raise ConfigError(
                    f"the spool has known {MAX_DESTINATIONS} destinations, and has no number for {name}; move its file away "
                    "once it is empty"
                )
            self._connection.execute("INSERT OR IGNORE INTO books VALUES (?, ?, 0, 0)", (number, name))
        self.forget()
        return {name: known[name] for name in names}

    def accept(self, mask: int, events: int) -> None:
        """Events are kept, for every destination of the mask; a negative number: they are not, after all."""
        self._connection.execute("UPDATE books SET accepted = accepted + ? WHERE (1 << destination) & ?", (events, mask))
        self.note_accepted(mask, events)

    def note_accepted(self, mask: int, events: int) -> None:
        """The tables say by now that events are kept (arrivals.py)."""
        known = self._known or {}
        for account in list(known.values()):
            if bit(account.number) & mask:
                known[account.number] = Account(
                    account.number, account.name, account.accepted + events, account.emitted, account.dropped
                )

    def end(self, number: int, ended: Ended) -> None:
        """Events have ended, for one destination."""
        if ended.emitted:
            self._connection.execute("UPDATE books SET emitted = emitted + ? WHERE destination = ?", (ended.emitted, number))
        for reason, events in ended.dropped.items():
            self._connection.execute(
                "INSERT INTO drops VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET events = events + excluded.events",
                (number, reason, events),
            )
        if self._known is not None and (known := self._known.get(number)) is not None:
            all_ended = Ended(known.emitted, dict(known.dropped))
            all_ended.add(ended)
            self._known[number] = replace(known, emitted=all_ended.emitted, dropped=all_ended.dropped)

    def settle(self, actual: Mapping[int, int], marked: Iterable[Account]) -> dict[str, int]:
        """
        Make the books say what is here, where they or the mark say otherwise; the events that are lost, by destination.

        actual   events here, by the number of the destination
        """
        marked_accepted = {each.name: each.accepted for each in marked}
        lost = {}
        for each in self.read():
            here = actual.get(each.number, 0)
            ended = each.accepted - each.here
            accepted = max(each.accepted, marked_accepted.get(each.name, 0), ended + here)
            self._connection.execute("UPDATE books SET accepted = ? WHERE destination = ?", (accepted, each.number))
            if missing := accepted - ended - here:
                self.end(each.number, Ended(dropped={CORRUPT: missing}))
                lost[each.name] = missing
        self.forget()
        return lost
