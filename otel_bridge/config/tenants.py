"""The section `tenants`: how much of the bridge one tenant may take, so that there is some left for the others."""

import math
from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from otel_bridge.config.auth import AuthConfig
from otel_bridge.config.setting import Number, Section, setting
from otel_bridge.config.values import TenantName, Unbounded, json_table

_Rate = Annotated[Unbounded, Field(gt=0)]
_Bytes = Annotated[Unbounded, Field(ge=0)]
_Count = Annotated[int, Field(ge=0)]


class Override(BaseModel):
    """Quotas of one tenant; None: as the section says."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    events_per_s: _Rate | None = None
    bytes_per_s: _Rate | None = None
    parked_bytes: _Bytes | None = None
    mappings: _Count | None = None
    mapping_bytes: _Bytes | None = None


Overrides = Annotated[Mapping[TenantName, Override], json_table('{"acme": {"events_per_s": 1000}}')]
"""Tenant -> what is different for it."""


class TenantsConfig(Section):
    """
    Quotas of each tenant; the default tenant is one of them. inf: none.

    Tenants are named by credentials: docs/tenants.md.
    """

    events_per_s: _Rate = setting(
        math.inf, "Events that a tenant may send, on average; over it, senders are told to come back later.", unit="events/s"
    )
    bytes_per_s: _Rate = setting(math.inf, "The same for bytes of requests with events, after decompression.", unit="bytes/s")
    burst_s: Number = setting(
        10.0, "A tenant that was quiet may send as much at once as it may in this time.", unit="seconds", above=0
    )
    parked_bytes: _Bytes = setting(
        math.inf, "Events that may wait for their mapping; more go on without it, beside the bounds of parking.", unit="bytes"
    )
    mappings: int = setting(10_000, "Builds that may have a mapping, and as many aliases.", unit="builds", least=0)
    mapping_bytes: _Bytes = setting(float(4 << 30), "Documents of mappings, in all.", unit="bytes")
    overrides: Overrides = setting(
        {},
        'Quotas of single tenants, as a table of names and tables: { acme = { mappings = 100 } }; "" is the default one.',
        rule="names of tenants, each with some of the settings above, but for burst_s",
    )

    def of(self, tenant: str) -> "Quotas":
        """The quotas of a tenant."""
        own = self.overrides.get(tenant)
        told = own.model_dump(exclude_none=True) if own is not None else {}
        return Quotas(**{name: told.get(name, getattr(self, name)) for name in Override.model_fields})


class Quotas(BaseModel):
    """What one tenant may take; see `TenantsConfig`."""

    model_config = ConfigDict(frozen=True)

    events_per_s: float
    bytes_per_s: float
    parked_bytes: float
    mappings: int
    mapping_bytes: float


def faults_of_tenants(tenants: TenantsConfig, auth: AuthConfig) -> list[str]:
    """What would have no effect, in the user's words."""
    if auth.enabled:
        return []
    rated = [tenants, *tenants.overrides.values()]
    return [
        f"tenants has {name}, but auth.enabled is false: nobody is told apart at the doors; set it, or drop {name}"
        for name in ("events_per_s", "bytes_per_s")
        if any(getattr(each, name) not in {None, math.inf} for each in rated)
    ]
