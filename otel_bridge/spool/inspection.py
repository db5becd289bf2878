"""
What is in a spool's file, for whoever looks: read only, also while a bridge uses it.

Invariants
* Nothing is written, and no file is made: with neither log nor journal (adoption.py) beside the file nobody has it open,
  and SQLite is told so, or it would begin a log, as the user who looks, which the bridge may not be allowed to open.
* One read transaction, so that the numbers are of one moment; the bridge goes on writing meanwhile, and waits for nothing.
* A file of another format is named, and not read further.
"""

import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from otel_bridge.errors import ConfigError
from otel_bridge.spool.age import AgeClock
from otel_bridge.spool.books import Account, Books
from otel_bridge.spool.opening import FILE_NAME
from otel_bridge.spool.protocol import Awaited
from otel_bridge.spool.salvage import read_text
from otel_bridge.spool.schema import APPLICATION_ID, FORMAT

_WAIT_S = 10.0
_S = 1_000_000_000
_SUMS = "count(*), coalesce(sum(events), 0), coalesce(sum(size), 0)"


@dataclass(frozen=True, slots=True)
class Amount:
    """
    Some records.

    oldest_s   how long the oldest has waited where it is; 0: there is none
    """

    records: int = 0
    events: int = 0
    size_bytes: int = 0
    oldest_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Parked:
    """
    Records that wait for one mapping.

    goes_s   when the first of them goes on without it, from now; negative: it is due
    """

    tenant: str
    awaited: str
    amount: Amount
    goes_s: float


@dataclass(frozen=True, slots=True)
class Ledger:
    """
    The books of one destination, and how many events the tables have for it.

    Each accepted event is emitted, dropped, waits or is parked; the rest is `unaccounted`, and is 0.
    """

    destination: str
    accepted: int
    emitted: int
    dropped: Mapping[str, int]
    waiting: int
    parked: int

    @property
    def unaccounted(self) -> int:
        """Events of which nothing is known."""
        return self.accepted - self.emitted - sum(self.dropped.values()) - self.waiting - self.parked


@dataclass(frozen=True, slots=True)
class Inspection:
    """
    A spool.

    file_bytes    of the database; log_bytes of the write-ahead log beside it
    quarantine    damaged records by how they are damaged
    seen          requests that are remembered, in case they are sent again
    noted_ns      wall clock of the last commit, to a second, since 1970; 0: there was none
    """

    path: Path
    format: int
    file_bytes: int
    log_bytes: int
    noted_ns: int
    waiting: Amount
    parked: list[Parked]
    quarantine: dict[str, Amount]
    ledgers: list[Ledger]
    seen: int


def inspect(directory: Path) -> Inspection:
    """The spool in a data directory. Raises `ConfigError` where there is none, or it cannot be read."""
    path = directory / FILE_NAME
    if not path.exists():
        raise ConfigError(f"there is no spool in {directory}: {FILE_NAME} is missing; name a bridge's data directory")
    log = path.with_name(f"{FILE_NAME}-wal")
    how = "mode=ro" if log.exists() or path.with_name(f"{FILE_NAME}-journal").exists() else "immutable=1"
    try:
        with closing(
            sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True, isolation_level=None, timeout=_WAIT_S)
        ) as connection:
            connection.text_factory = read_text
            connection.execute("BEGIN")
            _check(connection, path)
            return _read(connection, path, log.stat().st_size if log.exists() else 0)
    except (sqlite3.Error, OSError, TypeError, UnicodeDecodeError) as error:  # a damaged page may hold anything
        raise ConfigError(
            f"the spool {path} cannot be read: {error}; try again, and if it is damaged, the next start of the bridge saves "
            "what can be read"
        ) from error


def summed(found: Sequence[Inspection]) -> Inspection:
    """The spools of several workers as one, with the path and format of the first."""
    amounts: dict[str, list[Amount]] = {}
    ledgers: dict[str, list[Ledger]] = {}
    parked: dict[tuple[str, str], list[Parked]] = {}
    for each in found:
        for reason, amount in each.quarantine.items():
            amounts.setdefault(reason, []).append(amount)
        for ledger in each.ledgers:
            ledgers.setdefault(ledger.destination, []).append(ledger)
        for one in each.parked:
            parked.setdefault((one.tenant, one.awaited), []).append(one)
    lot = [
        Parked(tenant, awaited, _added([one.amount for one in some]), min(one.goes_s for one in some))
        for (tenant, awaited), some in parked.items()
    ]
    return Inspection(
        path=found[0].path,
        format=found[0].format,
        file_bytes=sum(each.file_bytes for each in found),
        log_bytes=sum(each.log_bytes for each in found),
        noted_ns=max(each.noted_ns for each in found),
        waiting=_added([each.waiting for each in found]),
        parked=sorted(lot, key=lambda one: -one.amount.oldest_s),
        quarantine={reason: _added(some) for reason, some in amounts.items()},
        ledgers=[_balanced(destination, some) for destination, some in ledgers.items()],
        seen=sum(each.seen for each in found),
    )


def _added(amounts: Sequence[Amount]) -> Amount:
    records, events, size_bytes = (sum(getattr(each, name) for each in amounts) for name in ("records", "events", "size_bytes"))
    return Amount(records, events, size_bytes, max(each.oldest_s for each in amounts))


def _balanced(destination: str, ledgers: Sequence[Ledger]) -> Ledger:
    dropped: Counter[str] = Counter()
    for each in ledgers:
        dropped.update(each.dropped)
    accepted, emitted, waiting, parked = (
        sum(getattr(each, name) for each in ledgers) for name in ("accepted", "emitted", "waiting", "parked")
    )
    return Ledger(destination, accepted, emitted, dict(dropped), waiting, parked)


def _check(connection: sqlite3.Connection, path: Path) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID:
        raise ConfigError(f"{path} is a database of something else (application_id {application}); name a data directory")
    if version < FORMAT:
        raise ConfigError(f"{path} has format {version}: the next start of this otel-bridge makes it format {FORMAT}")
    if version > FORMAT:
        raise ConfigError(f"{path} has format {version}, and this otel-bridge knows {FORMAT}: use the version that wrote it")


def _read(connection: sqlite3.Connection, path: Path, log_bytes: int) -> Inspection:
    age_ns, noted_ns = connection.execute("SELECT age_ns, noted_ns FROM clock").fetchone()
    now_ns = AgeClock(age_ns, noted_ns).now_ns()
    waiting, parked = (_by_mask(connection, table) for table in ("records", "parked"))
    (seen,) = connection.execute("SELECT count(*) FROM seen").fetchone()
    (oldest_ns,) = connection.execute("SELECT coalesce(min(kept_ns), 0) FROM records").fetchone()
    return Inspection(
        path=path,
        format=FORMAT,
        file_bytes=path.stat().st_size,
        log_bytes=log_bytes,
        noted_ns=noted_ns,
        waiting=_amount(connection.execute(f"SELECT {_SUMS} FROM records").fetchone(), oldest_ns, now_ns),
        parked=_parked(connection, now_ns),
        quarantine={
            str(reason): _amount(sums, oldest_ns, now_ns)
            for reason, *sums, oldest_ns in connection.execute(
                f"SELECT reason, {_SUMS}, min(kept_ns) FROM quarantine GROUP BY reason ORDER BY reason"
            )
        },
        ledgers=[_ledger(account, waiting, parked) for account in Books(connection).read()],
        seen=seen,
    )


def _parked(connection: sqlite3.Connection, now_ns: int) -> list[Parked]:
    columns = "tenant, awaited_build, name, version"
    rows = connection.execute(
        f"SELECT {columns}, {_SUMS}, min(kept_ns), min(until_ns) FROM parked GROUP BY {columns} ORDER BY min(kept_ns)"
    )
    return [
        Parked(
            str(tenant),
            str(Awaited(str(build), str(name), str(version))),
            _amount(sums, oldest_ns, now_ns),
            (until_ns - now_ns) / _S,
        )
        for tenant, build, name, version, *sums, oldest_ns, until_ns in rows
    ]


def _by_mask(connection: sqlite3.Connection, table: str) -> dict[int, int]:
    """Events by the mask of the destinations that have not got them."""
    return dict(connection.execute(f"SELECT pending, sum(events) FROM {table} GROUP BY pending"))


def _ledger(account: Account, waiting: Mapping[int, int], parked: Mapping[int, int]) -> Ledger:
    here, in_lot = (sum(events for mask, events in table.items() if mask & 1 << account.number) for table in (waiting, parked))
    return Ledger(account.name, account.accepted, account.emitted, dict(account.dropped), here, in_lot)


def _amount(sums: list[int] | tuple[int, ...], oldest_ns: int, now_ns: int) -> Amount:
    records, events, size = sums
    return Amount(records, events, size, max(0, now_ns - oldest_ns) / _S if records else 0.0)
