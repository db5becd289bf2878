"""
The registry in a database: SQLite now, written so that PostgreSQL can follow.

Invariants
* A write is one transaction that takes the write lock first: what it read is still so when it commits.
* The view (aliases and revision) is replaced as a whole, after the commit; its readers need no lock.
* The revision stands in the database, so what other processes write is seen at the next call that touches it.
* A file whose format is not known is refused, never altered.
* A document that is not what its digest says is as if it were not there, and an upload of the same puts it right: a disk that
  changed it must not make the bridge resolve wrongly.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.exc import DatabaseError, OperationalError

from otel_bridge.errors import ConfigError, MappingNotFound, Unavailable
from otel_bridge.mapping.document import digest
from otel_bridge.mapping.faults import quoted
from otel_bridge.mapping.limits import check_alias
from otel_bridge.mapping.quota import NO_QUOTA, Quota, Usage
from otel_bridge.mapping.registry import (
    Admitted,
    Entry,
    Put,
    admit,
    alias_in,
    ambiguous,
    check_conflict,
    counts_of,
    describes_less,
    digest_prefix,
    info_of,
    not_found,
)
from otel_bridge.mapping.schema import FORMAT, aliases, builds, documents, metadata, state
from otel_bridge.v1 import mapping_pb2 as pb

_log = logging.getLogger(__name__)

WRITES = "otel_bridge_writes"
"""Execution option of a connection: its transaction will write, and should take the write lock when it begins."""

_RETRY_AFTER_S = 1.0
_NEARBY = 3


@dataclass(frozen=True, slots=True)
class _View:
    revision: int
    aliases: dict[tuple[str, str, str], str]
    """(tenant, name, version) -> build id."""


class SQLRegistry:
    """
    See `registry.Registry`. `now_ns` is the wall clock.

    The engine's connections obey `WRITES` and enforce foreign keys; its pool may hold a single one: calls take turns.
    Raises `ConfigError` where the database holds another format.
    """

    def __init__(self, engine: sa.Engine, *, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._engine = engine
        self._now_ns = now_ns
        self._lock = threading.Lock()
        self._view = _View(-1, {})
        with self._transaction(writes=True) as connection:
            _prepare(connection)

    @property
    def revision(self) -> int:
        """See `Registry`."""
        return self._view.revision

    def refresh(self) -> None:
        """See `Registry`."""
        with self._transaction():
            pass  # each transaction brings the view up to date

    def put(self, tenant: str, file: pb.MappingFile, *, replace: bool = False, quota: Quota = NO_QUOTA) -> Put:
        """See `Registry`."""
        offered = admit(file)
        with self._transaction(writes=True) as connection, _within(connection, tenant, quota):
            kept = _document(connection, tenant, offered.build_id)
            created = kept is None or kept[0] != offered.digest
            if kept is not None and created and not replace:
                check_conflict(offered.build_id, kept, offered)
                created = not describes_less(kept[1], offered)
            if created:
                _point(connection, tenant, offered, self._now_ns())
            if offered.file.name:
                _name(connection, tenant, offered.file.name, offered.file.version, offered.build_id)
        return Put(offered.digest if created or kept is None else kept[0], offered.build_id, created)

    def get(self, tenant: str, ref: str) -> Entry:
        """See `Registry`."""
        with self._transaction() as connection:
            build_id = _builds(connection, tenant, ref)[0]
            info = _infos(connection, tenant, builds.c.build_id == build_id)[0]
            kept = _document(connection, tenant, build_id)
            if kept is None:
                raise _not_found(connection, tenant, ref, None)
        return Entry(info, pb.Mapping.FromString(kept[1]))

    def page(self, tenant: str, after: str, limit: int) -> list[pb.MappingInfo]:
        """See `Registry`."""
        with self._transaction() as connection:
            return _infos(connection, tenant, builds.c.build_id > after, limit=limit)

    def delete(self, tenant: str, ref: str) -> str:
        """See `Registry`."""
        with self._transaction(writes=True) as connection:
            build_id = _only(connection, tenant, ref)
            connection.execute(builds.delete().where(builds.c.tenant == tenant, builds.c.build_id == build_id))
            _sweep(connection, tenant)
            _bump(connection)
        return build_id

    def set_alias(self, tenant: str, name: str, version: str, ref: str, *, quota: Quota = NO_QUOTA) -> tuple[str, str | None]:
        """See `Registry`."""
        check_alias(name, version, required=True)
        with self._transaction(writes=True) as connection, _within(connection, tenant, quota):
            build_id = _only(connection, tenant, ref)
            return build_id, _name(connection, tenant, name, version, build_id)

    def build_of(self, tenant: str, name: str, version: str) -> str | None:
        """See `Registry`."""
        return self._view.aliases.get((tenant, name, version))

    def document(self, tenant: str, build_id: str) -> tuple[str, bytes] | None:
        """See `Registry`."""
        with self._transaction() as connection:
            return _document(connection, tenant, build_id)

    def close(self) -> None:
        """Closes the connections."""
        with self._lock:
            self._engine.dispose()

    @contextmanager
    def _transaction(self, *, writes: bool = False) -> Iterator[sa.Connection]:
        try:
            with self._lock, self._engine.connect() as connection:
                with connection.execution_options(**{WRITES: writes}).begin():
                    yield connection
                    view = _view(connection, self._view)
                self._view = view
        except DatabaseError as error:
            if not isinstance(error, OperationalError) and not _is_damage(error):
                raise
            found = f"the registry of mappings cannot be used now: {quoted(str(error.orig), limit=240)}"
            way_out = "it is busy with another process, or its disk is full, gone or damaged; try again"
            raise Unavailable(f"{found}; {way_out}", retry_after_s=_RETRY_AFTER_S, reason="registry_unavailable") from error


def _prepare(connection: sa.Connection) -> None:
    """Makes the tables, or refuses those of another format."""
    tables = set(sa.inspect(connection).get_table_names())
    if not tables:
        metadata.create_all(connection)
        connection.execute(state.insert(), [{"key": "format", "value": FORMAT}, {"key": "revision", "value": 0}])
        return
    found = connection.scalar(sa.select(state.c.value).where(state.c.key == "format")) if state.name in tables else None
    if found != FORMAT:
        raise ConfigError(
            f"registry of mappings: format {found or 'unknown'}, and this version reads format {FORMAT}; "
            "start the version that wrote it, or name another data directory and upload the mappings again"
        )


def _view(connection: sa.Connection, last: _View) -> _View:
    revision = connection.scalar(sa.select(state.c.value).where(state.c.key == "revision"))
    if revision is None or revision == last.revision:
        return last
    rows = connection.execute(sa.select(aliases))
    return _View(revision, {(row.tenant, row.name, row.version): row.build_id for row in rows})


@contextmanager
def _within(connection: sa.Connection, tenant: str, quota: Quota) -> Iterator[None]:
    """Checks what the block has written; where that is too much, the transaction it stands in is undone."""
    before = _usage(connection, tenant)
    yield
    quota.check(before, _usage(connection, tenant))


def _usage(connection: sa.Connection, tenant: str) -> Usage:
    count, size = sa.func.count(), sa.func.coalesce(sa.func.sum(sa.func.length(documents.c.body)), 0)
    return Usage(
        connection.scalar(sa.select(count).where(builds.c.tenant == tenant)) or 0,
        connection.scalar(sa.select(count).where(aliases.c.tenant == tenant)) or 0,
        connection.scalar(sa.select(size).where(documents.c.tenant == tenant)) or 0,
    )


def _bump(connection: sa.Connection) -> None:
    connection.execute(state.update().where(state.c.key == "revision").values(value=state.c.value + 1))


def _document(connection: sa.Connection, tenant: str, build_id: str) -> tuple[str, bytes] | None:
    query = sa.select(documents.c.digest, documents.c.body).select_from(builds.join(documents))
    try:
        row = connection.execute(query.where(builds.c.tenant == tenant, builds.c.build_id == build_id)).first()
        is_whole = row is None or (isinstance(row.body, bytes) and digest(row.body) == row.digest)
    except DatabaseError as error:
        if not _is_damage(error):
            raise
        row, is_whole = None, False
    if not is_whole:
        _log.error("the mapping of build %s is damaged in the registry, and is not used; upload it again", quoted(build_id))
        return None
    return None if row is None else (row.digest, row.body)


def _is_damage(error: DatabaseError) -> bool:
    """Whether the database itself is at fault, and not a statement, or the moment."""
    return type(error) is DatabaseError


def _point(connection: sa.Connection, tenant: str, offered: Admitted, now_ns: int) -> None:
    """Lets the build point to the offered document."""
    this = documents.c.tenant == tenant, documents.c.digest == offered.digest
    if not connection.execute(documents.update().where(*this).values(body=offered.body)).rowcount:  # it may be damaged
        counts = dict(zip(("methods", "delegates", "entries"), counts_of(offered.file.mapping), strict=True))
        connection.execute(documents.insert().values(tenant=tenant, digest=offered.digest, body=offered.body, **counts))
    of_build = builds.c.tenant == tenant, builds.c.build_id == offered.build_id
    pointing = {"digest": offered.digest, "created_unix_ns": now_ns}
    if not connection.execute(builds.update().where(*of_build).values(**pointing)).rowcount:
        connection.execute(builds.insert().values(tenant=tenant, build_id=offered.build_id, **pointing))
    _sweep(connection, tenant)
    _bump(connection)


def _name(connection: sa.Connection, tenant: str, name: str, version: str, build_id: str) -> str | None:
    """Lets the alias name the build; the id that it named before."""
    of_alias = aliases.c.tenant == tenant, aliases.c.name == name, aliases.c.version == version
    previous: str | None = connection.scalar(sa.select(aliases.c.build_id).where(*of_alias))
    if previous is None:
        connection.execute(aliases.insert().values(tenant=tenant, name=name, version=version, build_id=build_id))
    elif previous != build_id:
        connection.execute(aliases.update().where(*of_alias).values(build_id=build_id))
    if previous != build_id:
        _bump(connection)
    return previous


def _sweep(connection: sa.Connection, tenant: str) -> None:
    """Removes the documents that no build points to."""
    used = sa.exists().where(builds.c.tenant == documents.c.tenant, builds.c.digest == documents.c.digest)
    connection.execute(documents.delete().where(documents.c.tenant == tenant, ~used))


def _infos(connection: sa.Connection, tenant: str, which: sa.ColumnElement[bool], *, limit: int = 1) -> list[pb.MappingInfo]:
    columns = builds.c.build_id, builds.c.digest, builds.c.created_unix_ns
    counts = documents.c.methods, documents.c.delegates, documents.c.entries
    query = sa.select(*columns, *counts, sa.func.length(documents.c.body).label("size")).select_from(builds.join(documents))
    rows = connection.execute(query.where(builds.c.tenant == tenant, which).order_by(builds.c.build_id).limit(limit)).all()
    names: dict[str, list[tuple[str, str]]] = {row.build_id: [] for row in rows}
    if rows:
        within = aliases.c.build_id.between(rows[0].build_id, rows[-1].build_id)
        for alias in connection.execute(sa.select(aliases).where(aliases.c.tenant == tenant, within)):
            names[alias.build_id].append((alias.name, alias.version))
    return [
        info_of(
            row.build_id,
            row.digest,
            row.created_unix_ns,
            aliases=names[row.build_id],
            counts=(row.methods, row.delegates, row.entries),
            size_bytes=row.size,
        )
        for row in rows
    ]


def _only(connection: sa.Connection, tenant: str, ref: str) -> str:
    found = _builds(connection, tenant, ref)
    if len(found) > 1:
        raise ambiguous(ref, found)
    return found[0]


def _builds(connection: sa.Connection, tenant: str, ref: str) -> list[str]:
    """The builds that a reference names, ascending, at least one."""
    ids = sa.select(builds.c.build_id).where(builds.c.tenant == tenant)
    found = list(connection.scalars(ids.where(builds.c.build_id == ref)))
    prefix, alias = digest_prefix(ref), alias_in(ref)
    if not found and prefix is not None:
        # "g" follows the last hex digit, so the range holds the digests with this prefix, and an index finds them.
        digest = documents.c.digest
        within = documents.c.tenant == tenant, digest >= prefix, digest < prefix + "g"
        digests = list(connection.scalars(sa.select(digest).where(*within).order_by(digest).limit(_NEARBY)))
        if len(digests) > 1:
            raise ambiguous(ref, [f"sha256:{each}" for each in digests])
        found = list(connection.scalars(ids.where(builds.c.digest.in_(digests)).order_by(builds.c.build_id)))
    elif not found and alias is not None:
        of_alias = aliases.c.tenant == tenant, aliases.c.name == alias[0], aliases.c.version == alias[1]
        found = list(connection.scalars(sa.select(aliases.c.build_id).where(*of_alias)))
    if not found:
        raise _not_found(connection, tenant, ref, alias)
    return found


def _not_found(connection: sa.Connection, tenant: str, ref: str, alias: tuple[str, str] | None) -> MappingNotFound:
    of_name = aliases.c.tenant == tenant, aliases.c.name == (alias or ("",))[0]
    versions = connection.execute(sa.select(aliases).where(*of_name).order_by(aliases.c.version).limit(_NEARBY))
    ids = sa.select(builds.c.build_id).where(builds.c.tenant == tenant).order_by(builds.c.build_id).limit(_NEARBY)
    return not_found(ref, [f"{row.name}@{row.version}" for row in versions] or list(connection.scalars(ids)))
