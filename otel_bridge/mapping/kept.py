"""
Documents as a database has kept them.

Invariant: a document that is not what its digest says, or cannot be read, is as if it were not there: a disk that changed it
must not make the bridge resolve wrongly.
"""

import logging

import sqlalchemy as sa
from sqlalchemy.exc import DatabaseError

from otel_bridge.mapping.document import digest
from otel_bridge.mapping.faults import quoted
from otel_bridge.mapping.schema import builds, documents

_log = logging.getLogger(__name__)


def read_document(connection: sa.Connection, tenant: str, build_id: str) -> tuple[str, bytes] | None:
    """(digest, canonical bytes) of a build's mapping; None: there is none that is whole."""
    query = sa.select(documents.c.digest, documents.c.body).select_from(builds.join(documents))
    try:
        row = connection.execute(query.where(builds.c.tenant == tenant, builds.c.build_id == build_id)).first()
    except DatabaseError as error:
        if not is_damage(error):
            raise
    else:
        if row is None:
            return None
        if isinstance(row.body, bytes) and digest(row.body) == row.digest:
            return row.digest, row.body
    _log.error("the mapping of build %s is damaged in the registry, and is not used; upload it again", quoted(build_id))
    return None


def is_damage(error: DatabaseError) -> bool:
    """Whether the database itself is at fault, and not a statement, or the moment."""
    return type(error) is DatabaseError
