"""What a tenant keeps in the registry's tables, held to its quota."""

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa

from otel_bridge.mapping.quota import Quota, Usage
from otel_bridge.mapping.schema import aliases, builds, documents


@contextmanager
def within(connection: sa.Connection, tenant: str, quota: Quota) -> Iterator[None]:
    """
    Checks what the block has written; where that is too much, the transaction it stands in is undone.

    Raises `QuotaMet`.
    """
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
