"""Who sends a request, and what that allows."""

import re
from dataclasses import dataclass
from enum import StrEnum

TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
"""The name of a tenant: it stands in logs, on command lines and in headers. The default tenant has none: ""."""


class Scope(StrEnum):
    """
    What a credential allows. None implies another: the token of a scraper reads metrics and nothing else.

    Which request needs which stands in wire/access.py.
    """

    EVENTS_WRITE = "events:write"
    """Send events: for devices. It opens nothing that could be read."""
    MAPPINGS_WRITE = "mappings:write"
    """Store and delete mappings, move aliases: for build pipelines."""
    MAPPINGS_READ = "mappings:read"
    """Read mappings and what is missing: for people and their tools."""
    ADMIN = "admin"
    """See the bridge itself: metrics, gRPC reflection."""


@dataclass(frozen=True, slots=True)
class Identity:
    """
    The bearer of a credential.

    name     of a token, or the name in a client's certificate that was listed; for logs
    tenant   whose mappings and limits apply; "": the default tenant, the only one where nobody names another
    """

    name: str
    scopes: frozenset[Scope]
    tenant: str = ""
