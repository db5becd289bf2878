"""Texts are cut to what back ends take, and each cut is counted."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from support.scenes import STREAM, batch_of, call, delegated, execute, runtime, spans_in, stages_with

from otel_bridge.spans import attributes as at
from otel_bridge.spans.assemble import assemble
from otel_bridge.spans.cuts import count_cuts

LONG = "é" * 2_000


@given(st.text(max_size=40), st.integers(0, 50))
def test_a_cut_is_at_a_character_and_as_late_as_can_be(text: str, limit: int) -> None:
    """What is kept is a beginning of the text, and the next character would be too much; only then it counts as cut."""
    kept = at.cut(text, limit)
    assert text.startswith(kept)
    assert len(kept.encode()) <= limit
    was_cut = len(text.encode()) > limit
    assert isinstance(kept, at.Cut) == was_cut == (at.count_cuts([("key", kept), ("n", 1)]) == 1)
    assert not was_cut or len((kept + text[len(kept)]).encode()) > limit


def bytes_of(span: Span) -> list[int]:
    """Sizes of the texts of a span."""
    values = [value for each in span.attributes for value in (each.value, *each.value.array_value.values)]
    return [len(value.string_value.encode()) for value in values]


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 3), st.integers(0, 3), st.booleans())
def test_each_text_counts_for_each_span_that_shows_it(identifiers: int, metadata: int, sender: bool) -> None:  # noqa: FBT001 - drawn
    """Of an identifier, of metadata, and of what the sender says of an inference."""
    events = [delegated(LONG, 0, n, n + 1) for n in range(identifiers)]
    events += [delegated("short", 0, n, n + 1, metadata=json.dumps({"k": LONG}).encode()) for n in range(metadata)]
    block = execute(attributes=(("app.said", LONG),) if sender else ())
    batch = batch_of((block, [*events, call("DELEGATE_CALL", 0, 0, 9), runtime("Method::execute", 0, 9)]), stream=STREAM)
    scene = stages_with().run(batch)
    sizes = [size for span in spans_in(assemble(scene, 10**6)) for size in bytes_of(span)]
    assert max(sizes) <= at.MAX_TEXT_BYTES
    assert count_cuts(scene) == identifiers + metadata + sender == sizes.count(at.MAX_TEXT_BYTES)


@pytest.mark.parametrize("method", ["forward", LONG])
def test_a_root_counts_by_its_own_face(method: str) -> None:
    """The root and the call name the method; the row of the root has a face of its own that no span shows."""
    events = [call("OPERATOR_CALL", 0, 0, 9), runtime("Method::execute", 0, 9)]
    assert count_cuts(stages_with().run(batch_of((execute(method=method), events)))) == 2 * (method == LONG)
