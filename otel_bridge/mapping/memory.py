"""A registry of dicts: the model that the real ones are tested against, and the one for runs that keep nothing."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from dataclasses import replace as replace_fields

from otel_bridge.errors import MappingNotFound
from otel_bridge.mapping.limits import check_alias
from otel_bridge.mapping.quota import NO_QUOTA, Quota, Usage
from otel_bridge.mapping.registry import (
    Entry,
    Put,
    admit,
    alias_in,
    ambiguous,
    check_conflict,
    counts_of,
    describes_less,
    digest_prefix,
    info_of,
    not_found,
)
from otel_bridge.v1 import mapping_pb2 as pb


@dataclass(slots=True)
class _Tenant:
    documents: dict[str, bytes] = field(default_factory=dict)
    builds: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Build id -> (digest, created)."""
    aliases: dict[tuple[str, str], str] = field(default_factory=dict)

    @property
    def usage(self) -> Usage:
        """How much that is."""
        return Usage(len(self.builds), len(self.aliases), sum(map(len, self.documents.values())))


class MemoryRegistry:
    """See `registry.Registry`. `now_ns` is the wall clock."""

    def __init__(self, *, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._now_ns = now_ns
        self._lock = threading.Lock()
        self._tenants: dict[str, _Tenant] = {}
        self._revision = 0

    @property
    def revision(self) -> int:
        """See `Registry`."""
        return self._revision

    def refresh(self) -> None:
        """See `Registry`: there are no other processes."""

    def put(self, tenant: str, file: pb.MappingFile, *, replace: bool = False, quota: Quota = NO_QUOTA) -> Put:
        """See `Registry`."""
        offered = admit(file)
        with self._lock, self._within(tenant, quota) as held:
            kept = held.builds.get(offered.build_id, ("", 0))[0]
            created = kept != offered.digest
            if kept and created and not replace:
                check_conflict(offered.build_id, (kept, held.documents[kept]), offered)
                created = not describes_less(held.documents[kept], offered)
            if created:
                held.documents[offered.digest] = offered.body
                held.builds[offered.build_id] = offered.digest, self._now_ns()
                self._sweep(held)
            if offered.file.name:
                self._name(held, offered.file.name, offered.file.version, offered.build_id)
            self._revision += created
            return Put(offered.digest if created else kept, offered.build_id, created)

    def get(self, tenant: str, ref: str) -> Entry:
        """See `Registry`."""
        with self._lock:
            held = self._held(tenant)
            build_id = self._builds(held, ref)[0]
            return Entry(self._info(held, build_id), pb.Mapping.FromString(held.documents[held.builds[build_id][0]]))

    def page(self, tenant: str, after: str, limit: int) -> list[pb.MappingInfo]:
        """See `Registry`."""
        with self._lock:
            held = self._held(tenant)
            return [self._info(held, build_id) for build_id in sorted(id_ for id_ in held.builds if id_ > after)[:limit]]

    def delete(self, tenant: str, ref: str) -> str:
        """See `Registry`."""
        with self._lock:
            held = self._held(tenant)
            build_id = self._only(held, ref)
            del held.builds[build_id]
            held.aliases = {alias: named for alias, named in held.aliases.items() if named != build_id}
            self._sweep(held)
            self._revision += 1
            return build_id

    def set_alias(self, tenant: str, name: str, version: str, ref: str, *, quota: Quota = NO_QUOTA) -> tuple[str, str | None]:
        """See `Registry`."""
        check_alias(name, version, required=True)
        with self._lock, self._within(tenant, quota) as held:
            build_id = self._only(held, ref)
            return build_id, self._name(held, name, version, build_id)

    def build_of(self, tenant: str, name: str, version: str) -> str | None:
        """See `Registry`."""
        return self._held(tenant).aliases.get((name, version))

    def document(self, tenant: str, build_id: str) -> tuple[str, bytes] | None:
        """See `Registry`."""
        with self._lock:
            held = self._held(tenant)
            digest = held.builds.get(build_id, ("", 0))[0]
            return (digest, held.documents[digest]) if digest else None

    def close(self) -> None:
        """Nothing is held open."""

    @contextmanager
    def _within(self, tenant: str, quota: Quota) -> Iterator[_Tenant]:
        """What a tenant holds, to be changed: it is so at the end of the block, unless that would be too much."""
        before, revision = self._held(tenant), self._revision
        held = replace_fields(
            before, documents=before.documents.copy(), builds=before.builds.copy(), aliases=before.aliases.copy()
        )
        try:
            yield held
            quota.check(before.usage, held.usage)
        except BaseException:
            self._revision = revision
            raise
        self._tenants[tenant] = held

    def _name(self, held: _Tenant, name: str, version: str, build_id: str) -> str | None:
        previous = held.aliases.get((name, version))
        held.aliases[name, version] = build_id
        self._revision += previous != build_id
        return previous

    def _held(self, tenant: str) -> _Tenant:
        return self._tenants.get(tenant, _Tenant())

    def _info(self, held: _Tenant, build_id: str) -> pb.MappingInfo:
        digest, created = held.builds[build_id]
        body = held.documents[digest]
        aliases = [alias for alias, named in held.aliases.items() if named == build_id]
        return info_of(
            build_id, digest, created, aliases=aliases, counts=counts_of(pb.Mapping.FromString(body)), size_bytes=len(body)
        )

    def _only(self, held: _Tenant, ref: str) -> str:
        builds = self._builds(held, ref)
        if len(builds) > 1:
            raise ambiguous(ref, builds)
        return builds[0]

    def _builds(self, held: _Tenant, ref: str) -> list[str]:
        """The builds that a reference names, ascending, at least one."""
        if ref in held.builds:
            return [ref]
        prefix, alias = digest_prefix(ref), alias_in(ref)
        if prefix is not None:
            digests = sorted(each for each in held.documents if each.startswith(prefix))
            if len(digests) > 1:
                raise ambiguous(ref, [f"sha256:{each}" for each in digests])
            if digests:
                return sorted(id_ for id_, (digest, _) in held.builds.items() if digest == digests[0])
        elif alias in held.aliases:
            return [held.aliases[alias]]
        raise self._not_found(held, ref, alias)

    def _not_found(self, held: _Tenant, ref: str, alias: tuple[str, str] | None) -> MappingNotFound:
        versions = [f"{name}@{version}" for name, version in sorted(held.aliases) if alias is not None and name == alias[0]]
        return not_found(ref, versions or sorted(held.builds))

    def _sweep(self, held: _Tenant) -> None:
        used = {digest for digest, _ in held.builds.values()}
        held.documents = {digest: body for digest, body in held.documents.items() if digest in used}
