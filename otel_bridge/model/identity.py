"""Who sends a request, and what that allows."""

from dataclasses import dataclass
from enum import StrEnum


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
    tenant   whose mappings and limits apply; "": the one that there is without tenants
    """

    name: str
    scopes: frozenset[Scope]
    tenant: str = ""
