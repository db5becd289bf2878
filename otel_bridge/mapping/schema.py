"""The tables of the registry. Each has the tenant as the first part of its key; ids sort as UTF-8 bytes."""

import sqlalchemy as sa

FORMAT = 1
"""The version of these tables, kept in `state`."""

metadata = sa.MetaData()

state = sa.Table(
    "state",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),  # "format", "revision"
    sa.Column("value", sa.BigInteger, nullable=False),
)

documents = sa.Table(
    "documents",
    metadata,
    sa.Column("tenant", sa.Text, primary_key=True),
    sa.Column("digest", sa.Text, primary_key=True),  # SHA-256 of `body`, 64 hex digits
    sa.Column("body", sa.LargeBinary, nullable=False),
    sa.Column("methods", sa.Integer, nullable=False),
    sa.Column("delegates", sa.Integer, nullable=False),
    sa.Column("entries", sa.Integer, nullable=False),
)

builds = sa.Table(
    "builds",
    metadata,
    sa.Column("tenant", sa.Text, primary_key=True),
    sa.Column("build_id", sa.Text, primary_key=True),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("created_unix_ns", sa.BigInteger, nullable=False),
    sa.ForeignKeyConstraint(["tenant", "digest"], [documents.c.tenant, documents.c.digest]),
    sa.Index("builds_by_digest", "tenant", "digest"),
)

aliases = sa.Table(
    "aliases",
    metadata,
    sa.Column("tenant", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("version", sa.Text, primary_key=True),
    sa.Column("build_id", sa.Text, nullable=False),
    sa.ForeignKeyConstraint(["tenant", "build_id"], [builds.c.tenant, builds.c.build_id], ondelete="CASCADE"),
    sa.Index("aliases_by_build", "tenant", "build_id"),
)
