"""
Which decoder reads the metadata of which delegate.

Strongest first: one named for the delegate (`BACKEND=decoder`) in configuration, one named for all, one that a package offers
for the delegate by the entry point `otel_bridge.metadata_decoders` (name: backend id, value: `module:function`), `auto`.
"""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import replace
from importlib.metadata import entry_points

from otel_bridge.errors import ConfigError
from otel_bridge.metadata.builtin import BUILTIN
from otel_bridge.metadata.decoder import Content, undecoded
from otel_bridge.metadata.worker import Worker

ENTRY_POINTS = "otel_bridge.metadata_decoders"
_MAX_KEYS_REMEMBERED = 10_000
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
        self._cache: OrderedDict[tuple[str | None, bytes], Content] = OrderedDict()  # by the hash of the byte string
        self._numeric: dict[tuple[str | None, str], bool] = {}
        self._workers: dict[str, Worker] = {}
        named = dict(map(_parse, specs))
        offered: dict[str | None, str] = (
            {} if None in named else {point.name: point.value for point in entry_points(group=ENTRY_POINTS)}
        )
        self._chosen: dict[str | None, str] = {None: "auto", **offered, **named}
        try:
            for decoder in set(self._chosen.values()) - BUILTIN.keys():
                self._workers[decoder] = Worker(decoder, time_limit_s)
        except ConfigError:
            self.close()
            raise

    def decode(self, delegate: str | None, data: bytes) -> Content:
        """What the metadata of an event of this delegate says; `data` is not empty."""
        key = (delegate, hashlib.blake2b(data, digest_size=16).digest())
        with self._lock:
            known = self._cache.get(key)
            if known is not None:
                self._cache.move_to_end(key)
                return known
            content = self._cache[key] = self._with_stable_types(delegate, self._decode(delegate, data))
            self._cached_bytes += _size(content)
            while self._cached_bytes > self._cache_bytes:
                self._cached_bytes -= _size(self._cache.popitem(last=False)[1])
            return content

    def close(self) -> None:
        """End all workers."""
        for worker in self._workers.values():
            worker.close()

    def _decode(self, delegate: str | None, data: bytes) -> Content:
        name = self._chosen.get(delegate, self._chosen[None])
        if len(data) > self._max_bytes:
            content = undecoded(data, f"{len(data)} bytes, over the limit of {self._max_bytes} (metadata.max_bytes)")
        elif name in BUILTIN:
            content = BUILTIN[name](data)
        else:
            content = self._workers[name].decode(data)
        if content.error:
            off = name in self._workers and self._workers[name].is_off
            self._watch(name, "switched_off" if off else "undecoded" if content.raw else "partial")
        return content

    def _with_stable_types(self, delegate: str | None, content: Content) -> Content:
        """A key that was once text stays text, one that was a number stays a number: back ends index a key by one type."""
        pairs, faults = [], [content.error] if content.error else []
        for key, value in content.pairs:
            if len(self._numeric) >= _MAX_KEYS_REMEMBERED:
                numeric = self._numeric.get((delegate, key), isinstance(value, float))
            else:
                numeric = self._numeric.setdefault((delegate, key), isinstance(value, float))
            if numeric and isinstance(value, str):
                faults.append(f"{key} is text here and a number elsewhere")
            else:
                pairs.append((key, value if numeric else _as_text(value)))
        return replace(content, pairs=tuple(pairs), error="; ".join(faults))


def _size(content: Content) -> int:
    texts = [*content.values, content.raw, content.error, *(text for pair in content.pairs for text in map(str, pair))]
    return _OBJECTS_BYTES + 2 * sum(map(len, texts))


def _as_text(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.17g}"


def _parse(spec: str) -> tuple[str | None, str]:
    backend, equals, decoder = spec.rpartition("=")
    if decoder not in BUILTIN and ":" not in decoder:
        raise ConfigError(
            f"metadata parser {spec!r} must look like [BACKEND=]module:function, "
            f"or name one of {', '.join(BUILTIN)} in place of module:function"
        )
    return backend if equals else None, decoder
