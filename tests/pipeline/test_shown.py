"""Decoded metadata as attributes: made once, and within a bound."""

from otel_bridge.metadata.decoder import Content
from otel_bridge.model.resolution import Resolution
from otel_bridge.pipeline.shown import Shown
from otel_bridge.spans import attributes as at
from otel_bridge.spans.describe import Face
from otel_bridge.spans.encode import span_attributes

BARE = Face("a", (), Resolution())


def test_a_content_is_shown_once() -> None:
    """Events that share their metadata share their attributes, pass after pass."""
    shown, content = Shown(1 << 20), Content(pairs=(("a", 1.0),), error="half of it")
    decoded = shown.of(content, BARE)
    assert decoded.attributes == ((at.METADATA_PREFIX + "a", 1.0), (at.METADATA_ERROR, "half of it"))
    assert decoded.encoded == span_attributes(decoded.attributes)
    assert shown.of(content, BARE) is decoded
    assert shown.of(Content(pairs=(("a", 1.0),), error="half of it"), BARE) == decoded


def test_what_the_identifier_says_is_not_said_again() -> None:
    """A key stands once on a span, also where identifier and metadata both have it (Vulkan)."""
    shown, content = Shown(1 << 20), Content(pairs=(("kernel_name", "k"), ("b", "x")))
    face = Face("a", ((at.METADATA_PREFIX + "kernel_name", "own"),), Resolution())
    assert shown.of(content, face).attributes == ((at.METADATA_PREFIX + "b", "x"),)
    assert len(shown.of(content, BARE).attributes) == 2


def test_memory_is_bounded() -> None:
    """Contents that devices make up do not pile up; the least used goes first, and one that is too large alone is not kept."""
    shown = Shown(10_000)
    contents = [Content(raw=f"{number:04}") for number in range(50)]
    first = shown.of(contents[0], BARE)
    for content in contents[1:]:
        shown.of(content, BARE)
        shown.of(contents[0], BARE)
    assert shown.of(contents[0], BARE) is first
    assert len(shown._known) < 10
    large = Content(raw="0" * 10_000)
    assert shown.of(large, BARE) is not shown.of(large, BARE)
