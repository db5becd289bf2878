"""Attributes written by hand are what protobuf writes."""

from hypothesis import example, given
from hypothesis import strategies as st
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_bridge.spans import encode
from otel_bridge.spans.attributes import Value

integers = st.integers(-(2**63), 2**63 - 1)
texts = st.text(max_size=300) | st.sampled_from(["\ud800", "é" * 200, "x" * 3000])
values = st.one_of(
    st.booleans(), integers, st.floats(allow_nan=False), texts, st.lists(texts).map(tuple), st.lists(integers).map(tuple)
)


@given(st.lists(st.tuples(texts, values)))
@example([("", ""), ("k", ()), ("k", -1), ("k", 1.0), ("k", True), ("k", 1)])
def test_attributes_are_encoded_as_protobuf_does(attributes: list[tuple[str, Value]]) -> None:
    """Byte for byte, whatever the types, so a reader cannot tell which of both wrote a span."""
    assert encode.span_attributes(attributes) == Span(attributes=encode.key_values(attributes)).SerializeToString()


@given(st.integers(0, 2**64 - 1), st.integers(1, 2**29 - 1))
def test_a_number_is_a_varint(number: int, field: int) -> None:
    """Seven bits a byte, the lowest first."""
    encoded = encode.varint(number)
    assert sum((byte & 0x7F) << 7 * place for place, byte in enumerate(encoded)) == number
    assert [byte >> 7 for byte in encoded] == [1] * (len(encoded) - 1) + [0]
    assert encode.field(field, number) == encode.varint(field << 3 | 2) + encoded


@given(texts, st.lists(st.tuples(texts, values)))
@example("", [])
def test_a_face_is_encoded_as_protobuf_does(name: str, attributes: list[tuple[str, Value]]) -> None:
    """So is the name with the kind in front of them."""
    said = name.encode("utf-8", "backslashreplace").decode()
    span = Span(name=said, kind=Span.SpanKind.SPAN_KIND_INTERNAL, attributes=encode.key_values(attributes))
    assert encode.span_face(name, attributes) == span.SerializeToString()
