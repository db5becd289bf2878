"""The header by which a back end with tenants of its own (Grafana's: `X-Scope-OrgID`) learns whose spans a request holds."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TenantHeader:
    """
    The header.

    name       in lower case, as gRPC demands and HTTP does not mind
    nameless   what it says for the default tenant, which has no name; "": it is then left out
    """

    name: str
    nameless: str

    def of(self, tenant: str) -> Mapping[str, str]:
        """The header of a request with spans of that tenant."""
        value = tenant or self.nameless
        return {self.name: value} if value else {}
