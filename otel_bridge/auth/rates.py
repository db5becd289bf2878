"""
How fast tenants may send.

Invariants
* A tenant has a bucket for events and one for bytes, which fill at its rates and hold what it may send at once. While neither
  is empty a request comes in, whatever it holds, and may leave a debt: no request is too large to ever come in, and the
  average is kept.
* A tenant is told to come back when its debt is paid; that takes nothing from others.
* A tenant whose buckets are full is as one that was never seen, and is forgotten: memory is bounded by those that send.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from otel_bridge.config.tenants import TenantsConfig
from otel_bridge.errors import OverQuota

MAX_WAIT_S = 60.0
"""The longest wait that a sender is told: a debt may be an hour's, but nobody need plan for it."""

SWEEP_TENANTS = 10_000
"""With so many tenants in memory the full ones are looked for."""

EVENTS, BYTES = "events", "bytes"
"""What is counted."""


@dataclass(slots=True)
class _Bucket:
    """What may come in: fills by `per_s`, to `room`; `level` is below 0 where more came in than there was."""

    per_s: float
    room: float
    level: float
    seen_s: float

    def fill(self, now_s: float) -> float:
        """What is in it now."""
        self.level = min(self.room, self.level + self.per_s * (now_s - self.seen_s))
        self.seen_s = now_s
        return self.level

    def wait_s(self) -> float:
        """How long it stays empty."""
        return -self.level / self.per_s


class Rates:
    """What tenants have sent, against what they may; `now` in seconds, of any beginning. One thread uses it."""

    def __init__(self, config: TenantsConfig, *, now: Callable[[], float] = time.monotonic) -> None:
        self._config = config
        self._now = now
        self._buckets: dict[str, dict[str, _Bucket]] = {}
        self._sweep_at = SWEEP_TENANTS

    def over(self, tenant: str) -> OverQuota | None:
        """Why a request of that tenant may not come in now; None: it may."""
        now = self._now()
        for what, bucket in self._of(tenant).items():
            if bucket.fill(now) <= 0:
                return OverQuota(
                    f"the tenant has sent more than {bucket.per_s:g} {what} a second; come back later, or ask for more "
                    f"(tenants.{what}_per_s)",
                    quota=what,
                    retry_after_s=min(bucket.wait_s(), MAX_WAIT_S),
                )
        return None

    def spend(self, tenant: str, events: int, size_bytes: int) -> None:
        """Note what a tenant has sent."""
        buckets, now = self._of(tenant), self._now()
        for what, amount in ((EVENTS, events), (BYTES, size_bytes)):
            if what in buckets:
                buckets[what].fill(now)
                buckets[what].level -= amount

    def _of(self, tenant: str) -> dict[str, _Bucket]:
        found = self._buckets.get(tenant)
        if found is None:
            if len(self._buckets) >= self._sweep_at:
                self._sweep()
            found = self._buckets[tenant] = self._new(tenant)
        return found

    def _new(self, tenant: str) -> dict[str, _Bucket]:
        quotas, now = self._config.of(tenant), self._now()
        rates = {EVENTS: quotas.events_per_s, BYTES: quotas.bytes_per_s}
        rooms = {what: max(1.0, rate * self._config.burst_s) for what, rate in rates.items()}
        return {what: _Bucket(rate, rooms[what], rooms[what], now) for what, rate in rates.items() if rate != math.inf}

    def _sweep(self) -> None:
        now = self._now()
        self._buckets = {
            tenant: buckets
            for tenant, buckets in self._buckets.items()
            if any(bucket.fill(now) < bucket.room for bucket in buckets.values())
        }
        self._sweep_at = max(SWEEP_TENANTS, 2 * len(self._buckets))  # not for each tenant that follows
