"""
Keeps mappings: documents by digest, builds by id, aliases by name and version; each of a tenant.

Invariants
* A document never changes. A build points to one document, an alias to one build; nothing points to what is not there.
* A build's resolution never changes unless the caller says `replace`; what only describes may be improved.
* A document that no build points to is gone.
* `build_of` and `revision` are answered from memory and never wait: they alone may be called on the event loop.

References, in this order: a build id; `sha256:` and 8 to 64 hex digits of a digest; NAME@VERSION, divided at the first @.
"""

import re
from dataclasses import dataclass
from typing import Protocol

from otel_bridge.errors import MalformedRequest, MappingConflict, MappingNotFound
from otel_bridge.mapping.document import canonical_file, default_build_id, digest, first_difference, serialise
from otel_bridge.mapping.faults import quoted
from otel_bridge.mapping.quota import NO_QUOTA, Quota
from otel_bridge.v1 import mapping_pb2 as pb

_DIGEST = re.compile(r"sha256:([0-9a-f]{8,64})\Z", re.IGNORECASE)
_NEARBY = 3


@dataclass(frozen=True, slots=True)
class Put:
    """What `put` did. `created`: the build points to another document than before."""

    digest: str
    build_id: str
    created: bool


@dataclass(frozen=True, slots=True)
class Entry:
    """A build and its mapping."""

    info: pb.MappingInfo
    mapping: pb.Mapping


class Registry(Protocol):
    """
    A store of mappings. Synchronous and thread-safe: callers run it off the event loop, except where the module says so.

    Any call may raise `Unavailable` where the store cannot be reached for the moment.
    """

    @property
    def revision(self) -> int:
        """A number that changes whenever what the registry answers changes: the key of caches, of misses too."""

    def refresh(self) -> None:
        """Look for what other processes have written: `revision` and `build_of` follow."""

    def put(self, tenant: str, file: pb.MappingFile, *, replace: bool = False, quota: Quota = NO_QUOTA) -> Put:
        """
        Stores a file's mapping for its build, and moves its alias there.

        Without `replace`, a mapping that resolves the same and names fewer operators leaves the better one in place: `Put`
        then has the digest of what is kept.

        Raises `MalformedMapping`, or `MappingConflict` where the build has a mapping that resolves differently and
        `replace` is not set, or `QuotaMet`; then nothing has changed.
        """

    def get(self, tenant: str, ref: str) -> Entry:
        """The build that `ref` names; of several builds with the digest, the first by id. Raises `MappingNotFound`."""

    def page(self, tenant: str, after: str, limit: int) -> list[pb.MappingInfo]:
        """At most `limit` builds with ids above `after`, ascending by id (as UTF-8 bytes)."""

    def delete(self, tenant: str, ref: str) -> str:
        """Forgets a build with its aliases; its id. Raises `MappingNotFound`; `MalformedRequest` where `ref` names several."""

    def set_alias(self, tenant: str, name: str, version: str, ref: str, *, quota: Quota = NO_QUOTA) -> tuple[str, str | None]:
        """
        Lets an alias name a build: (that build's id, the id it named before or None).

        Raises `MappingNotFound`, `MalformedMapping` for an unusable name, `MalformedRequest` where `ref` names several, and
        `QuotaMet`; then nothing has changed.
        """

    def build_of(self, tenant: str, name: str, version: str) -> str | None:
        """The id of the build that an alias names now; None: there is no such alias. From memory."""

    def document(self, tenant: str, build_id: str) -> tuple[str, bytes] | None:
        """(digest, canonical bytes) of a build's mapping; None: there is no such build."""

    def close(self) -> None:
        """Gives back what is held open. Further calls are an error."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """A file that has passed all checks."""

    file: pb.MappingFile
    body: bytes
    digest: str
    build_id: str


def admit(file: pb.MappingFile) -> Admitted:
    """Checks a file and works out its names. Raises `MalformedMapping`."""
    file = canonical_file(file)
    body = serialise(file.mapping)
    name = digest(body)
    return Admitted(file, body, name, file.build_id or default_build_id(name))


def check_conflict(build_id: str, kept: tuple[str, bytes], offered: Admitted) -> None:
    """Raises `MappingConflict` where the kept document, (digest, bytes), resolves differently from the offered one."""
    difference = first_difference(pb.Mapping.FromString(kept[1]), offered.file.mapping)
    if difference is not None:
        raise MappingConflict(
            f"build {quoted(build_id)}: has mapping sha256:{kept[0]}, and sha256:{offered.digest} resolves differently, "
            f"first at {difference}; give the new model a build id of its own, or replace the mapping on purpose (`replace`)"
        )


def describes_less(kept: bytes, offered: Admitted) -> bool:
    """Whether the offered document names fewer operators than the kept one: that would be no improvement."""
    return _operators_in(offered.file.mapping) < _operators_in(pb.Mapping.FromString(kept))


def _operators_in(mapping: pb.Mapping) -> int:
    calls = [each for method in mapping.methods for each in method.instructions]
    return sum(len(known.operators) for call in calls for known in call.operators)


def digest_prefix(ref: str) -> str | None:
    """The hex digits of a reference by digest; None: it is none."""
    match = _DIGEST.match(ref)
    return match[1].lower() if match else None


def alias_in(ref: str) -> tuple[str, str] | None:
    """(name, version) of a reference by alias; None: it is none."""
    name, at, version = ref.partition("@")
    return (name, version) if name and at else None


def not_found(ref: str, nearby: list[str]) -> MappingNotFound:
    """The error for a reference that names nothing; `nearby`: references that do, the nearest first."""
    known = f"there are {', '.join(quoted(each) for each in nearby[:_NEARBY])}" if nearby else "there are no mappings yet"
    way_out = "a reference is a build id, sha256: and 8 or more digits, or NAME@VERSION"
    return MappingNotFound(f"mapping {quoted(ref)}: not found; {known}; {way_out}")


def ambiguous(ref: str, named: list[str]) -> MalformedRequest:
    """The error for a reference that names several things."""
    known = ", ".join(quoted(each) for each in named[:_NEARBY])
    return MalformedRequest(f"mapping {quoted(ref)}: names more than one, such as {known}; give a build id, or more digits")


def info_of(
    build_id: str,
    digest: str,
    created_unix_ns: int,
    *,
    aliases: list[tuple[str, str]],
    counts: tuple[int, int, int],
    size_bytes: int,
) -> pb.MappingInfo:
    """What a listing says of a build; `counts` are those of `counts_of`, `aliases` are (name, version)."""
    methods, delegates, entries = counts
    return pb.MappingInfo(
        digest=digest,
        build_id=build_id,
        aliases=sorted(f"{name}@{version}" for name, version in aliases),
        created_unix_ns=created_unix_ns,
        methods=methods,
        delegates=delegates,
        entries=entries,
        bytes=size_bytes,
    )


def counts_of(mapping: pb.Mapping) -> tuple[int, int, int]:
    """How many methods, delegate calls and map entries a mapping has."""
    calls = [each for method in mapping.methods for each in method.instructions if each.delegate]
    return len(mapping.methods), len(calls), sum(len(each.entries) for each in calls)
