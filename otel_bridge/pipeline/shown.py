"""
Decoded metadata as attributes of spans.

Invariant: what was shown once is remembered as long as its content is in use, within a bound: events of one delegate mostly
carry one of few byte strings, pass after pass.
"""

from collections import OrderedDict
from collections.abc import Iterable

from otel_bridge.metadata.decoder import Content, Scalar
from otel_bridge.spans import attributes as at
from otel_bridge.spans.describe import Face
from otel_bridge.spans.encode import span_attributes
from otel_bridge.spans.scene import Decoded
from otel_bridge.spans.withholding import Withhold, show_all

_OBJECTS_BYTES = 1000
"""About what the Python objects of an entry take beside its text."""


class Shown:
    """Contents as they are shown, of at most about `max_bytes`, evicted by least use. One thread uses it at a time."""

    def __init__(self, max_bytes: int, withhold: Withhold = show_all) -> None:
        self._withhold = withhold
        self._max_bytes = max_bytes
        self._bytes = 0
        self._known: OrderedDict[int, tuple[Content, Decoded]] = OrderedDict()  # by id: the entry keeps the content alive

    def of(self, content: Content, face: Face) -> Decoded:
        """What an event of this face says of its metadata: an identifier may say some of it already (Vulkan)."""
        known = self._known.get(id(content))
        if known is None:
            known = content, _show(self._withhold(attributes_of(content)))
            self._known[id(content)] = known
            self._bytes += _size(known[1])
            while self._bytes > self._max_bytes:
                self._bytes -= _size(self._known.popitem(last=False)[1][1])
        else:
            self._known.move_to_end(id(content))
        taken = {key for key, _ in face.attributes if key.startswith(at.METADATA_PREFIX)}
        return _show((key, value) for key, value in known[1].attributes if key not in taken) if taken else known[1]


def attributes_of(content: Content) -> tuple[tuple[str, at.Value], ...]:
    """Decoded metadata as span attributes."""
    said: list[tuple[str, at.Value]] = [(at.METADATA_PREFIX + key, _cut(value)) for key, value in content.pairs]
    if content.values:
        said.append((at.METADATA_VALUES, tuple(at.cut(value) for value in content.values)))
    if content.raw:
        said.append((at.METADATA_RAW, content.raw))
    if content.error:
        said.append((at.METADATA_ERROR, at.cut(content.error)))
    return tuple(said)


def _show(said: Iterable[tuple[str, at.Value]]) -> Decoded:
    attributes = tuple(said)
    return Decoded(attributes, span_attributes(attributes), at.count_cuts(attributes))


def _size(decoded: Decoded) -> int:
    return _OBJECTS_BYTES + 3 * len(decoded.encoded)


def _cut(value: Scalar) -> Scalar:
    return at.cut(value) if isinstance(value, str) else value
