"""
Templates: what a span says, compiled once per (mapping, method, instruction, identifier) into serialised bytes.

Invariant: a template depends on its key alone, so it may be evicted and made again at any time.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from otel_bridge.spans.attributes import count_cuts
from otel_bridge.spans.describe import Face
from otel_bridge.spans.encode import span_face

_OBJECTS_BYTES = 1200
"""About what the Python objects of a template and its key take beside its text."""


@dataclass(frozen=True, slots=True)
class Template:
    """A face, the same as a fragment of a serialised `Span` (name, kind, attributes), and how many of its texts were cut."""

    face: Face
    encoded: bytes
    cuts: int = 0


class Templates:
    """Templates of at most about `max_bytes`, evicted by least use. One thread uses it at a time."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._known: OrderedDict[Hashable, Template] = OrderedDict()

    def get(self, key: Hashable, describe: Callable[[], Face]) -> Template:
        """The template of a key; `describe` gives its face at first use."""
        known = self._known.get(key)
        if known is not None:
            self._known.move_to_end(key)
            return known
        face = describe()
        template = self._known[key] = Template(face, span_face(face.name, face.attributes), count_cuts(face.attributes))
        self._bytes += _size(template)
        while self._bytes > self._max_bytes and len(self._known) > 1:
            self._bytes -= _size(self._known.popitem(last=False)[1])
        return template


def _size(template: Template) -> int:
    return _OBJECTS_BYTES + 2 * len(template.encoded)
