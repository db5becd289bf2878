"""
Which decoder reads the metadata of which delegate.

Strongest first:

1. one named for the delegate in configuration (`BACKEND=decoder`);
2. one that the mapping declares for the delegate: a layout or a schema (metadata/declared.py);
3. one named for all delegates in configuration (`decoder`);
4. one that a package offers for the delegate by the entry point `otel_bridge.metadata_decoders` (name: backend id, value:
   `module:function`);
5. the one that is known of the backend (backends/table.py);
6. `auto`.
"""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import replace
from importlib.metadata import entry_points

from otel_bridge.backends.table import known_backends
from otel_bridge.errors import ConfigError
from otel_bridge.metadata.builtin import BUILTIN
from otel_bridge.metadata.coreml import decode_coreml
from otel_bridge.metadata.declared import compile_format
from otel_bridge.metadata.decoder import Content, Scalar, undecoded
from otel_bridge.metadata.layout import Layout
from otel_bridge.metadata.neutron import decode_neutron
from otel_bridge.metadata.vgf import decode_vgf
from otel_bridge.metadata.worker import Worker

ENTRY_POINTS = "otel_bridge.metadata_decoders"
DECLARED = "declared"
"""What a decoder is called that the mapping declares, where failures are counted."""

OF_BACKENDS: dict[str, Callable[[bytes], Content]] = {
    "coreml": decode_coreml,
    "neutron": decode_neutron,
    "vgf_neural_statistics": decode_vgf,
}
"""By the name that `Backend.decoder` gives."""

FIXED_TYPES: dict[str, type[Scalar]] = {
    # metadata/coreml.py
    "preferred_compute_unit": str,
    "supported_compute_units": str,
    "output_names": str,
    "operator_name": str,
    "estimated_cost": float,
    # metadata/neutron.py
    "function": str,
    "kernel_code": int,
    # metadata/vgf.py
    "schema_version": int,
    "available": bool,
    "segments": int,
    "blobs": int,
    "blob_bytes": int,
    "reason": str,
    # backends/vulkan.py: details of its identifiers, which stand under the same keys and pass by no decoder
    "kernel_name": str,
    "operator": str,
    "operator_id": int,
    "dispatch_id": int,
}
"""
The keys that the bridge's own readers give, and their types. They hold from the start, so that nothing a device of another
backend sends first can take a key from them, nor make it another type than Vulkan's.
"""

_MAX_KEYS_REMEMBERED = 10_000
"""Of a tenant."""
_MAX_FORMATS = 256
_INT64 = 2**63
_OBJECTS_BYTES = 1000
"""About what the Python objects of an entry take beside its text."""


class Decoders:
    """
    Decodes the metadata of delegate events. Thread-safe.

    specs         "[BACKEND=]decoder" each; a decoder is `json`, `utf8`, `raw`, `auto` or `module:function`
    time_limit_s  how long `module:function` may take for one byte string
    max_bytes     longer metadata stays undecoded
    cache_bytes   how much decoded metadata is remembered, about
    watch         told of each failure: name of the decoder, and `undecoded`, `partial` or `switched_off`

    Raises `ConfigError` where a spec cannot be obeyed.
    """

    def __init__(
        self,
        specs: Iterable[str] = (),
        *,
        time_limit_s: float = 1.0,
        max_bytes: int = 1_048_576,
        cache_bytes: int = 16 << 20,
        watch: Callable[[str, str], None] = lambda _decoder, _reason: None,
    ) -> None:
        self._time_limit_s = time_limit_s
        self._max_bytes = max_bytes
        self._cache_bytes = cache_bytes
        self._cached_bytes = 0
        self._watch = watch
        self._lock = threading.Lock()
        self._cache: OrderedDict[tuple[str, str | None, int, bytes], Content] = OrderedDict()  # by hashes of the byte strings
        self._types: dict[str, dict[str, type[Scalar]]] = {}
        self._workers: dict[str, Worker] = {}
        self._formats: OrderedDict[bytes, tuple[int, Layout | Callable[[bytes], Content]]] = OrderedDict()
        self._formats_seen = 0
        self._named = dict(map(_parse, specs))
        known = known_backends()  # also where nobody asks for their decoders: what cannot be obeyed is told at start
        self._offered: dict[str, str] = {}
        if None not in self._named:
            points = {point.name: point.value for point in entry_points(group=ENTRY_POINTS)}
            offered = {name: backend.decoder for name, backend in known.items() if backend.decoder} | points
            self._offered = {name: decoder for name, decoder in offered.items() if name not in self._named}
        try:
            for decoder in {*self._named.values(), *self._offered.values()} - BUILTIN.keys() - OF_BACKENDS.keys():
                self._workers[decoder] = Worker(decoder, time_limit_s)
        except ConfigError:
            self.close()
            raise

    def decode(self, delegate: str | None, data: bytes, declared: bytes = b"", tenant: str = "") -> Content:
        """
        What the metadata of an event of this delegate and tenant says; `data` is not empty.

        `declared` is the serialised `MetadataFormat` that the event's mapping has for the delegate; b"": none.
        """
        hashed = hashlib.blake2b(data, digest_size=16).digest()
        with self._lock:
            number, read = self._format(declared) if declared and delegate not in self._named else (0, None)
            key = (tenant, delegate, number, hashed)
            known = self._cache.get(key)
            if known is not None:
                self._cache.move_to_end(key)
                return known
            content = self._cache[key] = _with_stable_types(self._decode(delegate, data, read), self._types_of(tenant))
            self._cached_bytes += _size(content)
            while self._cached_bytes > self._cache_bytes:
                self._cached_bytes -= _size(self._cache.popitem(last=False)[1])
            return content

    def layout(self, delegate: str | None, declared: bytes, tenant: str = "") -> Layout | None:
        """
        The layout by which `decode` reads this delegate's metadata, so that many can be read at a time.

        None: they are read one by one, since something else reads them, or a key of the tenant has another type elsewhere.
        """
        if not declared or delegate in self._named:
            return None
        with self._lock:
            _, read = self._format(declared)
            if not isinstance(read, Layout) or not read.is_plain or read.size > self._max_bytes:
                return None
            types = self._types_of(tenant)
            return read if all(_stable_type(types, key, kind) is kind for key, kind in read.types.items()) else None

    def close(self) -> None:
        """End all workers."""
        for worker in self._workers.values():
            worker.close()

    def _format(self, declared: bytes) -> tuple[int, Layout | Callable[[bytes], Content]]:
        """The decoder that a mapping declares, and a number of its own, never used again: it is compiled at first use."""
        known = self._formats.get(declared)
        if known is None:
            self._formats_seen += 1
            known = self._formats[declared] = self._formats_seen, compile_format(declared)
            if len(self._formats) > _MAX_FORMATS:
                self._formats.popitem(last=False)
        self._formats.move_to_end(declared)
        return known

    def _decode(self, delegate: str | None, data: bytes, declared: Layout | Callable[[bytes], Content] | None) -> Content:
        name = DECLARED if declared else self._name_for(delegate)
        if len(data) > self._max_bytes:
            content = undecoded(data, f"{len(data)} bytes, over the limit of {self._max_bytes} (metadata.max_bytes)")
        elif declared:
            content = declared.decode(data) if isinstance(declared, Layout) else declared(data)
        elif name in self._workers:
            content = self._workers[name].decode(data)
        else:
            content = (BUILTIN | OF_BACKENDS)[name](data)
        if content.error:
            off = name in self._workers and self._workers[name].is_off
            self._watch(name, "switched_off" if off else "undecoded" if content.raw else "partial")
        return content

    def _name_for(self, delegate: str | None) -> str:
        named = self._named.get(delegate) or self._named.get(None)
        return named or self._offered.get(delegate or "", "auto")

    def _types_of(self, tenant: str) -> dict[str, type[Scalar]]:
        """The types of a tenant's keys: what its devices say first is no business of another's."""
        return self._types.setdefault(tenant, FIXED_TYPES.copy())


def _with_stable_types(content: Content, types: dict[str, type[Scalar]]) -> Content:
    """A key keeps its fixed type, else the one it first had, whatever delegate it is of: back ends index it by one type."""
    if all(types.get(key) is type(value) for key, value in content.pairs):
        return content
    pairs, faults = [], [content.error] if content.error else []
    for key, value in content.pairs:
        wanted = _stable_type(types, key, type(value))
        kept = value if type(value) is wanted else _as(wanted, value)
        if kept is None:
            faults.append(f"{key} is {_WORDS[type(value)]} here and {_WORDS[wanted]} elsewhere")
        else:
            pairs.append((key, kept))
    return replace(content, pairs=tuple(pairs), error="; ".join(faults))


def _stable_type(types: dict[str, type[Scalar]], key: str, kind: type[Scalar]) -> type[Scalar]:
    """The type that a key keeps, which is the one that it had first."""
    if key not in types and len(types) < _MAX_KEYS_REMEMBERED:
        types[key] = kind
    return types.get(key, kind)


def _size(content: Content) -> int:
    texts = sum(len(key) + len(str(value)) for key, value in content.pairs) + sum(map(len, content.values))
    return _OBJECTS_BYTES + 2 * (texts + len(content.raw) + len(content.error))


_WORDS: dict[type[Scalar], str] = {str: "text", int: "an integer", float: "a number", bool: "a truth value"}


def _as(wanted: type[Scalar], value: Scalar) -> Scalar | None:
    """A value as another type, where that loses nothing; else None."""
    if wanted is str:
        return f"{value:.17g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)
    if isinstance(value, str | bool) or wanted is bool:
        return None
    if wanted is int:
        return int(value) if value == int(value) and abs(value) < _INT64 else None
    return float(value) if float(value) == value else None


def _parse(spec: str) -> tuple[str | None, str]:
    backend, equals, decoder = spec.rpartition("=")
    if decoder not in BUILTIN and ":" not in decoder:
        raise ConfigError(
            f"metadata parser {spec!r} must look like [BACKEND=]module:function, "
            f"or name one of {', '.join(BUILTIN)} in place of module:function"
        )
    return backend if equals else None, decoder
