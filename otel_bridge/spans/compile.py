"""
Templates: what a span says, compiled once per (mapping, method, instruction, identifier) into serialised bytes.

Invariant: a template depends on its key alone, so it may be evicted and made again at any time.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable

from otel_bridge.spans.describe import Face
from otel_bridge.spans.encode import span_face
from otel_bridge.spans.scene import Template


class Templates:
    """At most `max_templates` templates, evicted by least use. One thread uses it at a time."""

    def __init__(self, max_templates: int) -> None:
        self._max_templates = max_templates
        self._known: OrderedDict[Hashable, Template] = OrderedDict()

    def get(self, key: Hashable, describe: Callable[[], Face]) -> Template:
        """The template of a key; `describe` gives its face at first use."""
        known = self._known.get(key)
        if known is not None:
            self._known.move_to_end(key)
            return known
        face = describe()
        template = self._known[key] = Template(face, span_face(face.name, face.attributes))
        if len(self._known) > self._max_templates:
            self._known.popitem(last=False)
        return template
