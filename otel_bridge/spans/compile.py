"""
Templates: what a span says, compiled once per (mapping, method, instruction, identifier) into serialised bytes.

Invariants
* A template depends on its key alone, so it may be evicted and made again at any time.
* Equal templates are one, whichever builds they are of: builds that have most in common share most of their templates.
* Where all are in use in turn and do not fit, most of those that are kept stay: if each new one pushed out the one that was
  used least lately, that would be the very one that is needed next, and none would ever be found.
"""

import sys
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

from otel_bridge.backends.backend import TimeQuality
from otel_bridge.spans.attributes import TIME_QUALITY, Value, count_cuts
from otel_bridge.spans.describe import Face, outline, requalify
from otel_bridge.spans.encode import span_attributes, span_face

Key = tuple[object, ...]
"""What tells templates apart; all of it can be hashed."""

_ENTRY_BYTES = 30
"""About what a key takes beside what is in it, its place in the order of use included; half of what is in it, others share."""
_TEMPLATE_BYTES = 130
"""About what a template takes beside its text: the object, and its place among equals."""
_FACE_BYTES = 1200
"""About what a whole face takes beside its texts."""
_KEPT_OF = 4
"""Of so many new templates for which there is no room one is kept: a new build has nine tenths of its own after 8 passes."""
_REMEMBERED, _REMEMBERED_CHARACTERS = 8192, 64
"""Attributes that are remembered as bytes, and the longest text of one: at most about 5 MB."""


@dataclass(slots=True, unsafe_hash=True)
class Template:
    """
    A face, the same as a fragment of a serialised `Span` (name, kind, attributes), and how many of its texts were cut.

    face    whole, or its outline: see `Templates`
    users   keys under which it is kept
    """

    face: Face
    encoded: bytes
    cuts: int = 0
    users: int = field(default=0, compare=False)


class Templates:
    """
    Templates of at most about `max_bytes`; those used least go first. One thread uses it at a time.

    whole_faces   False: of a face its outline is kept, which is all that is needed to write spans
    """

    def __init__(self, max_bytes: int, *, whole_faces: bool = True) -> None:
        self._max_bytes = max_bytes
        self._whole_faces = whole_faces
        self._bytes = 0
        self._not_kept = 0
        self._known: OrderedDict[Key, Template] = OrderedDict()
        self._equal: dict[bytes, Template] = {}
        """By their bytes, of those in `_known`; of templates that are written alike and differ, one at most is here."""

    def get(self, key: Key, describe: Callable[[], Face]) -> Template:
        """The template of a key; `describe` gives its face at first use."""
        known = self._known.get(key)
        if known is not None:
            self._known.move_to_end(key)
            return known
        face = describe()
        encoded = _encode_name(face.name) + b"".join([_encode(*each) for each in face.attributes])
        return self._keep(key, Template(face, encoded, count_cuts(face.attributes)))

    def requalify(self, template: Template, quality: TimeQuality) -> Template:
        """The template of an event whose times turned out to be worth something else than its backend's rule says."""
        key = template.face, template.encoded, quality
        known = self._known.get(key)
        if known is not None:
            self._known.move_to_end(key)
            return known
        said = template.encoded
        if template.face.quality is not TimeQuality.MEASURED:
            said = said.removesuffix(_encode(TIME_QUALITY, template.face.quality.value))
        encoded = said + _encode(TIME_QUALITY, quality.value)
        return self._keep(key, Template(requalify(template.face, quality), encoded, template.cuts))

    def _keep(self, key: Key, made: Template) -> Template:
        """The template to be used for a new key; kept, if there is room."""
        if not self._whole_faces:
            made.face = outline(made.face)
        equal = self._equal.get(made.encoded, made)
        template = equal if equal == made else made
        size = _size_of_key(key) + (0 if template.users else self._size(template))
        template.users += 1  # before others go, so that it does not go with them
        if self._bytes + size > self._max_bytes and not self._make_room(size):
            template.users -= 1
            return template
        self._known[key] = template
        self._equal.setdefault(template.encoded, template)
        self._bytes += size
        return template

    def _make_room(self, size: int) -> bool:
        """Whether a new template is to be kept although others have to go for it; they are gone then."""
        self._not_kept = (self._not_kept + 1) % _KEPT_OF
        if self._not_kept or size > self._max_bytes:
            return False
        while self._bytes + size > self._max_bytes and self._known:
            key, template = self._known.popitem(last=False)
            self._bytes -= _size_of_key(key)
            template.users -= 1
            if not template.users:
                self._bytes -= self._size(template)
                if self._equal.get(template.encoded) is template:
                    del self._equal[template.encoded]
        return True

    def _size(self, template: Template) -> int:
        face = _FACE_BYTES + len(template.encoded) if self._whole_faces else 0
        return _TEMPLATE_BYTES + face + sys.getsizeof(template.encoded)


def _size_of_key(key: Key) -> int:
    return _ENTRY_BYTES + sum(map(sys.getsizeof, key))


@lru_cache(1024)
def _encode_name(name: str) -> bytes:
    return span_face(name, ())


def _encode(key: str, value: Value) -> bytes:
    """A fragment of a `Span` that holds only this attribute."""
    one = value[0] if type(value) is tuple and len(value) == 1 else value
    if type(one) is int or (type(one) is str and len(one) <= _REMEMBERED_CHARACTERS):
        return _encode_small(key, value)
    return span_attributes(((key, value),))


@lru_cache(_REMEMBERED, typed=True)
def _encode_small(key: str, value: Value) -> bytes:
    return span_attributes(((key, value),))
