"""
Templates: what a span says, compiled once per (mapping, method, instruction, identifier) into serialised bytes.

Invariants
* A template depends on its key alone, so it may be evicted and made again at any time.
* Where all are in use in turn and do not fit, most of those that are kept stay: if each new one pushed out the one that was
  used least lately, that would be the very one that is needed next, and none would ever be found.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from otel_bridge.spans.attributes import count_cuts
from otel_bridge.spans.describe import Face
from otel_bridge.spans.encode import span_face

_OBJECTS_BYTES = 1200
"""About what the Python objects of a template and its key take beside its text."""
_KEPT_OF = 4
"""Of so many new templates for which there is no room one is kept: a new build has nine tenths of its own after 8 passes."""


@dataclass(frozen=True, slots=True)
class Template:
    """A face, the same as a fragment of a serialised `Span` (name, kind, attributes), and how many of its texts were cut."""

    face: Face
    encoded: bytes
    cuts: int = 0


class Templates:
    """Templates of at most about `max_bytes`; those used least go first. One thread uses it at a time."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._not_kept = 0
        self._known: OrderedDict[Hashable, Template] = OrderedDict()

    def get(self, key: Hashable, describe: Callable[[], Face]) -> Template:
        """The template of a key; `describe` gives its face at first use."""
        known = self._known.get(key)
        if known is not None:
            self._known.move_to_end(key)
            return known
        face = describe()
        template = Template(face, span_face(face.name, face.attributes), count_cuts(face.attributes))
        size = _size(template)
        if self._bytes + size > self._max_bytes and not self._make_room(size):
            return template
        self._known[key] = template
        self._bytes += size
        return template

    def _make_room(self, size: int) -> bool:
        """Whether a new template is to be kept although others have to go for it; they are gone then."""
        self._not_kept = (self._not_kept + 1) % _KEPT_OF
        if self._not_kept or size > self._max_bytes:
            return False
        while self._bytes + size > self._max_bytes:
            self._bytes -= _size(self._known.popitem(last=False)[1])
        return True


def _size(template: Template) -> int:
    return _OBJECTS_BYTES + 2 * len(template.encoded)
