"""How much one tenant may keep in the registry."""

import math
from dataclasses import dataclass

from otel_bridge.errors import QuotaMet


@dataclass(frozen=True, slots=True)
class Usage:
    """What a tenant keeps: builds, aliases, and bytes of documents; several builds may share one."""

    builds: int
    aliases: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Quota:
    """What a tenant may keep: builds, and likewise aliases, and bytes of documents."""

    builds: float = math.inf
    size_bytes: float = math.inf

    def check(self, before: Usage, after: Usage) -> None:
        """
        Raises `QuotaMet` where a write would go beyond the quota.

        A write that adds nothing is always allowed: a quota may have been lowered since.
        """
        for what, had, has, most, setting in (
            ("builds", before.builds, after.builds, self.builds, "mappings"),
            ("aliases", before.aliases, after.aliases, self.builds, "mappings"),
            ("bytes of mappings", before.size_bytes, after.size_bytes, self.size_bytes, "mapping_bytes"),
        ):
            if has > most and has > had:
                raise QuotaMet(
                    f"the tenant would have {has} {what}, and may have {most:.0f}; delete what is no longer in use "
                    f"(`otel-bridge mapping delete`), or ask for more (tenants.{setting})"
                )


NO_QUOTA = Quota()
"""As much as there is room for."""
