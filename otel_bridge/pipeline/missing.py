"""
Builds and aliases that devices named and that have no mapping: what is still to be uploaded, for whoever looks.

Invariants
* Bounded, for each tenant by itself: what the devices of one make up pushes nothing of another out. The oldest go first.
* Nothing waits because of this list, and nothing goes on: parking.py decides.
"""

import hashlib
from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain

from otel_bridge.model.stream import Stream
from otel_bridge.spool.protocol import Awaited

MAX_OF_TENANT = 10_000
MAX_DEVICES = 1_000
"""Of one build or alias."""
MAX_DEVICES_OF_TENANT = 20_000


@dataclass(slots=True)
class Missing:
    """
    What is known of a build or alias without a mapping; times in nanoseconds since 1970.

    passed          events that went on without it, by destination
    parked_events   those that wait for it, where somebody has counted them
    """

    awaited: Awaited
    first_seen_ns: int
    last_seen_ns: int
    passed: Counter[str] = field(default_factory=Counter)
    streams: set[bytes] = field(default_factory=set)
    parked_events: int = 0

    @property
    def passed_events(self) -> int:
        """Events that went on without it, to the destination that got most."""
        return max(self.passed.values(), default=0)


def joined(lists: Iterable[list[Missing]]) -> list[Missing]:
    """What several processes lack, as one list, ascending by ref; a device that all have seen is one."""
    found: dict[Awaited, Missing] = {}
    for each in chain.from_iterable(lists):
        before = found.setdefault(each.awaited, each)
        if before is not each:
            found[each.awaited] = Missing(
                each.awaited,
                min(before.first_seen_ns, each.first_seen_ns),
                max(before.last_seen_ns, each.last_seen_ns),
                before.passed + each.passed,
                before.streams | each.streams,
                before.parked_events + each.parked_events,
            )
    return _ascending(found.values())


def _ascending(entries: Iterable[Missing]) -> list[Missing]:
    return sorted(entries, key=lambda each: str(each.awaited).encode())


@dataclass(slots=True)
class _Tenant:
    known: OrderedDict[Awaited, Missing] = field(default_factory=OrderedDict)
    devices: int = 0

    def forget(self, awaited: Awaited) -> None:
        entry = self.known.pop(awaited, None)
        self.devices -= len(entry.streams) if entry is not None else 0


class MissingMappings:
    """The list; at first it has what a former process has left, seen at `now_ns`."""

    def __init__(self, awaited: Iterable[Awaited], now_ns: int) -> None:
        self._tenants: dict[str, _Tenant] = {}
        for each in awaited:
            self._entry(each, now_ns)

    def note(self, awaited: Awaited, stream: Stream, now_ns: int) -> Missing:
        """A device named it; the entry, which may be gone from the list before long."""
        entry, tenant = self._entry(awaited, now_ns), self._tenants[awaited.tenant]
        entry.last_seen_ns = now_ns
        device = hashlib.blake2b(stream.stream_id, digest_size=8).digest()
        if device not in entry.streams and len(entry.streams) < MAX_DEVICES and tenant.devices < MAX_DEVICES_OF_TENANT:
            entry.streams.add(device)
            tenant.devices += 1
        tenant.known.move_to_end(awaited)
        if len(tenant.known) > MAX_OF_TENANT:
            tenant.forget(next(iter(tenant.known)))
        return entry

    def forget(self, awaited: Awaited) -> None:
        """It has a mapping now."""
        tenant = self._tenants.get(awaited.tenant)
        if tenant is not None:
            tenant.forget(awaited)
            if not tenant.known:
                del self._tenants[awaited.tenant]

    def awaited(self) -> list[Awaited]:
        """All of it."""
        return [awaited for tenant in self._tenants.values() for awaited in tenant.known]

    def of(self, tenant: str) -> list[Missing]:
        """What is missing of a tenant, ascending by ref."""
        known = self._tenants.get(tenant, _Tenant()).known
        return _ascending(known.values())

    def _entry(self, awaited: Awaited, now_ns: int) -> Missing:
        tenant = self._tenants.setdefault(awaited.tenant, _Tenant())
        return tenant.known.setdefault(awaited, Missing(awaited, now_ns, now_ns))
