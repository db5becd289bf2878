"""
About what texts take in memory: for the bounds of the spool.

Invariant: what is remembered has a bound, some 20 MB if all of it is met, and holds no attribute.
"""

from otel_bridge.model.stream import Attributes

_KEPT, _KEPT_NAMES, _KEPT_BYTES = 256, 1024, 16_384
"""Tables that are remembered, and the names and bytes of texts of each."""


def table_bytes(names: tuple[int | str, ...]) -> int:
    """Of the texts in a table of names. Found again by the identity of the table: devices of one build share the object."""
    known = _known.get(id(names))
    if known is not None:
        return known[1]
    size = 2 * sum([len(name) for name in names if isinstance(name, str)])
    if len(names) <= _KEPT_NAMES and size <= _KEPT_BYTES:
        if len(_known) >= _KEPT:
            _known.clear()
        _known[id(names)] = names, size
    return size


_known: dict[int, tuple[tuple[int | str, ...], int]] = {}
"""By `id`, with the table, so that it is that of no other."""


def text_bytes(attributes: Attributes) -> int:
    """Of attributes."""
    return sum([100 + 2 * len(key) + (2 * len(value) if isinstance(value, str) else 0) for key, value in attributes])
