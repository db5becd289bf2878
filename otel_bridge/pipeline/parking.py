"""
Events whose mapping is not there yet.

Invariants
* A record is parked only if its sender named a build or an alias that has no mapping; without any model it goes on at once.
* An alias that gets its first mapping binds the records that wait for it, once and for all.
* A record is parked at most once. When its time is up, when a bound is met, or when the bridge stops, it goes on as
  `no_mapping`, and is counted.
* An upload is never missed: whatever was parked before the registry changed is looked at again after it has.
"""

import asyncio
import contextlib
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from otel_bridge.mapping.cache import CompiledMappings
from otel_bridge.mapping.registry import Registry
from otel_bridge.model.stream import Stream
from otel_bridge.spool.protocol import Record, Spool

Policy = Literal["park", "pass"]

TICK_S = 1.0
"""How often expiry, and uploads by other processes, are looked for. Uploads by this one are acted on at once."""

_MAX_MISSING = 10_000
_MAX_DEVICES = 1_000


class Ledger(Protocol):
    """Told how events wait."""

    def parked(self, events: int) -> None:
        """Events began to wait for their mapping."""

    def unparked(self, events: int, reason: str) -> None:
        """Events go on: `mapping`, `age`, `closed` at a stop, or the bound that kept them from waiting."""


@dataclass(slots=True)
class Missing:
    """What is known of a build or alias without a mapping; times in nanoseconds since 1970."""

    ref: str
    first_seen_ns: int
    last_seen_ns: int
    passed_events: int = 0
    streams: set[bytes] = field(default_factory=set)


class Parking:
    """
    Keeps records back that lack their mapping, and lets them go.

    policy    "park", or "pass": nothing waits
    now_ns    wall clock, nanoseconds since 1970
    """

    def __init__(
        self,
        spool: Spool,
        registry: Registry,
        mappings: CompiledMappings,
        ledger: Ledger,
        *,
        policy: Policy,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._spool = spool
        self._registry = registry
        self._mappings = mappings
        self._ledger = ledger
        self._policy = policy
        self._now_ns = now_ns
        self._missing: OrderedDict[str, Missing] = OrderedDict()
        self._changed = asyncio.Event()
        self._seen = -1

    async def sift(self, records: Sequence[Record]) -> list[Record]:
        """The records that go on now; the others are parked, and no longer the caller's."""
        revision = self._registry.revision
        found = await asyncio.to_thread(lambda: [self._find(record) for record in records])
        going = []
        for record, ref in found:
            if ref is None:
                going.append(record)
            elif (met := await self._hold(record, ref)) is None:
                self._ledger.parked(len(record.batch))
            else:
                self._note_passed(record, ref)
                if met:
                    self._ledger.unparked(len(record.batch), met)
                going.append(record)
        if self._registry.revision != revision:  # an upload may have come between the look-up and the parking
            self._seen = -1
            self._changed.set()
        return going

    async def run(self) -> None:
        """Let records go as mappings arrive and time passes, until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    await self._changed.wait()
            self._changed.clear()
            await self.review()

    async def review(self) -> None:
        """Let go what has got its mapping, and what has waited long enough."""
        revision = self._registry.revision
        if revision != self._seen:
            self._seen = revision
            for ref in self._spool.parked_refs():
                build = await asyncio.to_thread(self._build_of, ref)
                if build is not None:
                    self._ledger.unparked(await self._spool.release(ref, build), "mapping")
                    self._missing.pop(ref, None)
        expired = await self._spool.expire()
        if expired:
            self._ledger.unparked(expired, "age")

    def stop(self) -> None:
        """Close the spool: what still waits goes on without its mapping."""
        released = self._spool.close()
        if released:
            self._ledger.unparked(released, "closed")

    def uploaded(self) -> None:
        """A mapping or alias was written by this process."""
        self._changed.set()

    def missing(self) -> list[Missing]:
        """Builds and aliases that devices named and that have no mapping, ascending by ref."""
        return sorted(self._missing.values(), key=lambda each: each.ref.encode())

    async def _hold(self, record: Record, ref: str) -> str | None:
        """None: parked. "": not to be parked. Else the bound that kept it from being parked."""
        self._note(record, ref)
        if self._policy == "pass" or record.has_waited:
            return ""
        return await self._spool.park(record, ref)

    def _find(self, record: Record) -> tuple[Record, str | None]:
        """The record, and what it waits for; a record whose alias has got a mapping since is bound to it here."""
        (stream,) = record.batch.streams  # a record is one request
        if stream.build is None and stream.model.name:
            build = self._registry.build_of(stream.tenant, stream.model.name, stream.model.version)
            if build is None:
                return record, f"{stream.model.name}@{stream.model.version}"
            stream = replace(stream, build=build)
            record = replace(record, batch=replace(record.batch, streams=(stream,)))
        if stream.build is None or self._mappings.get(stream.tenant, stream.build) is not None:
            return record, None
        return record, stream.build

    def _build_of(self, ref: str) -> str | None:
        if self._mappings.get("", ref) is not None:
            return ref
        name, at, version = ref.partition("@")
        return self._registry.build_of("", name, version) if at else None

    def _note(self, record: Record, ref: str) -> None:
        now = self._now_ns()
        entry = self._missing.setdefault(ref, Missing(ref, now, now))
        entry.last_seen_ns = now
        if len(entry.streams) < _MAX_DEVICES:
            entry.streams.add(_short(record.batch.streams[0]))
        self._missing.move_to_end(ref)
        if len(self._missing) > _MAX_MISSING:
            self._missing.popitem(last=False)

    def _note_passed(self, record: Record, ref: str) -> None:
        self._missing[ref].passed_events += len(record.batch)


def _short(stream: Stream) -> bytes:
    return hashlib.blake2b(stream.stream_id, digest_size=8).digest()
