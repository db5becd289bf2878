"""
SQLite as the registry's database: one file, `mappings.db`, or memory.

Invariant: several processes may use the file at once: readers never wait for a writer (WAL), writers wait for each other.
"""

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.exc import DatabaseError
from sqlalchemy.pool import StaticPool

from otel_bridge.errors import ConfigError, Unavailable
from otel_bridge.mapping.faults import quoted
from otel_bridge.mapping.sql import WRITES, SQLRegistry

FILE_NAME = "mappings.db"
"""The file's name in the data directory."""

BUSY_TIMEOUT_S = 10.0
"""How long a writer waits for another process's write. Writes take milliseconds."""


def open_registry(
    directory: Path | None, *, now_ns: Callable[[], int] = time.time_ns, busy_timeout_s: float = BUSY_TIMEOUT_S
) -> SQLRegistry:
    """
    The registry in `directory`, which is made where it is missing; None: in memory, gone when it is closed.

    Raises `ConfigError` where the directory cannot be used, or its file is not a registry of a known format.
    """
    path = None if directory is None else directory / FILE_NAME
    engine = _engine(path, busy_timeout_s)
    try:
        if directory is not None:
            directory.mkdir(parents=True, exist_ok=True)
        return SQLRegistry(engine, now_ns=now_ns)
    except (OSError, DatabaseError, Unavailable) as error:
        engine.dispose()
        found = quoted(str(error), limit=240)
        raise ConfigError(
            f"registry of mappings in {directory}: cannot be opened: {found}; name a directory that can be written"
        ) from error
    except ConfigError:
        engine.dispose()
        raise


def _engine(path: Path | None, busy_timeout_s: float) -> sa.Engine:
    url = sa.URL.create("sqlite", database=":memory:" if path is None else str(path))
    options = {"check_same_thread": False, "timeout": busy_timeout_s, "isolation_level": None}
    engine = sa.create_engine(url, poolclass=StaticPool, connect_args=options)
    sa.event.listen(engine, "connect", _on_connect)
    sa.event.listen(engine, "begin", _on_begin)
    return engine


def _on_connect(connection: sqlite3.Connection, _record: object) -> None:
    connection.execute("PRAGMA journal_mode = WAL").close()
    connection.execute("PRAGMA foreign_keys = ON").close()


def _on_begin(connection: sa.Connection) -> None:
    # Left to itself the driver begins a write transaction only at its first write, after reads that may be stale by then.
    connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.get_execution_options().get(WRITES) else "BEGIN")
