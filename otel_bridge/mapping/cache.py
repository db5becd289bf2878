"""
Compiled mappings at hand.

Invariants
* A mapping is compiled at first use, kept while it is used, and evicted by least use: memory is bounded.
* Of a tenant: nothing that is compiled for one is given to another, though their documents be the same.
* A miss is never remembered past an upload: what is known of builds is dropped whenever the registry's revision changes.
"""

import threading
from collections import OrderedDict

from otel_bridge.mapping.compiled import CompiledMapping, compile_mapping
from otel_bridge.mapping.registry import Registry
from otel_bridge.v1 import mapping_pb2

_OBJECTS_BYTES = 4000
_MAX_BUILDS = 10_000


class CompiledMappings:
    """Mappings of a registry, compiled, of at most about `max_bytes`. Thread-safe; reads the registry, so off the loop."""

    def __init__(self, registry: Registry, max_bytes: int) -> None:
        self._registry = registry
        self._max_bytes = max_bytes
        self._bytes = 0
        self._lock = threading.Lock()
        self._revision = -1
        self._digest_of: dict[tuple[str, str], str | None] = {}
        self._compiled: OrderedDict[tuple[str, str], tuple[CompiledMapping, int]] = OrderedDict()

    def get(self, tenant: str, build: str | None) -> CompiledMapping | None:
        """The mapping of a build; None: there is none, or the build is not known."""
        if build is None:
            return None
        with self._lock:
            revision = self._registry.revision
            if revision != self._revision:
                self._digest_of.clear()
                self._revision = revision
            key = (tenant, build)
            if key in self._digest_of:
                digest = self._digest_of[key]
                if digest is None:
                    return None
                if (tenant, digest) in self._compiled:
                    self._compiled.move_to_end((tenant, digest))
                    return self._compiled[tenant, digest][0]
            return self._load(key)

    def _load(self, key: tuple[str, str]) -> CompiledMapping | None:
        found = self._registry.document(*key)
        if len(self._digest_of) >= _MAX_BUILDS:  # builds that devices make up must not pile up
            self._digest_of.clear()
        self._digest_of[key] = found[0] if found is not None else None
        if found is None:
            return None
        digest, document = found
        name = key[0], digest
        if name not in self._compiled:
            compiled = compile_mapping(digest, mapping_pb2.Mapping.FromString(document))
            size = _OBJECTS_BYTES + len(document) + compiled.size_bytes
            self._compiled[name] = compiled, size
            self._bytes += size
            while self._bytes > self._max_bytes and len(self._compiled) > 1:
                self._bytes -= self._compiled.popitem(last=False)[1][1]
        return self._compiled[name][0]
