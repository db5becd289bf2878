"""Resources are made once for what a device says again."""

import sys
from dataclasses import replace

from support.scenes import STREAM

from otel_bridge.model.stream import ModelRef
from otel_bridge.spans import resource
from otel_bridge.spans.resource import Resources


def test_resources_that_are_equal_to_python_are_not_taken_for_each_other() -> None:
    """1, 1.0 and True are equal and of one hash, and three different values on the wire."""
    resources = Resources()
    streams = [replace(STREAM, resource=(("k", value),)) for value in (1, 1.0, True)]
    assert len({resources.of(stream, None).head for stream in streams}) == 3


def test_a_resource_is_made_once_for_what_is_remembered() -> None:
    """Requests of one device share it, whatever else differs; another mapping, build, version or tenant has another."""
    resources = Resources()
    known = resources.of(STREAM, "digest")
    assert resources.of(replace(STREAM, sequence=7, received_ns=5), "digest") is known
    for other in (
        replace(STREAM, tenant="other"),
        replace(STREAM, build="other"),
        replace(STREAM, runtime_version="other"),
        replace(STREAM, model=ModelRef("other")),
        replace(STREAM, resource=(("k", "v"),)),
    ):
        assert resources.of(other, "digest").head != known.head
    assert resources.of(STREAM, "another digest").head != known.head


def test_what_is_remembered_has_a_bound() -> None:
    """However many devices there are, and however much they say."""
    resources = Resources()
    for number in range(resource._KEPT + 10):
        resources.of(replace(STREAM, resource=(("k", number),)), None)
    assert len(resources._known) == resource._KEPT
    before = list(resources._known)
    resources.of(replace(STREAM, resource=(("k", "x" * 2000), ("l", "x" * 2000))), None)
    assert list(resources._known) == before


def test_nothing_is_kept_alive_but_what_a_resource_is_made_of() -> None:
    """A stream has clocks, hundreds of them if its sender likes: they count in no bound of resources."""
    stream = replace(STREAM)
    before = sys.getrefcount(stream)
    resources = Resources()
    resources.of(stream, None)
    assert resources._known
    assert sys.getrefcount(stream) == before
