"""What the code behind a parser relies on, asserted of whatever the parser made."""

import re
from collections.abc import Callable
from math import isfinite

from opentelemetry.proto.trace.v1.trace_pb2 import Span
from support.requests import is_clear
from support.scenes import spans_in, stages_with

from otel_bridge.errors import BridgeError, MalformedMapping
from otel_bridge.mapping.compiled import compile_mapping
from otel_bridge.mapping.document import canonical_file, digest, encode
from otel_bridge.mapping.source import read_document, write_file
from otel_bridge.metadata.decoder import MAX_KEYS, MAX_RAW_BYTES, MAX_TEXT, MAX_VALUES, Content
from otel_bridge.model.events import EventBatch
from otel_bridge.pipeline.shown import attributes_of
from otel_bridge.spans.assemble import assemble
from otel_bridge.spans.encode import span_attributes
from otel_bridge.v1 import mapping_pb2
from otel_bridge.wire.admission import Admitted

_STAGES = stages_with()
_KEY = re.compile("[a-z0-9_]+")


def check_words(refusal: BridgeError) -> None:
    """A refusal has a reason to be counted by, and says in one clear line what is wrong."""
    assert refusal.reason
    assert is_clear(str(refusal)), ascii(str(refusal))


def check_admitted(admitted: Admitted) -> None:
    """What was admitted becomes spans, and what was not is told."""
    assert not admitted.rejected or is_clear(admitted.first_rejection), ascii(admitted.first_rejection)
    check_spans(admitted.batch)


def check_spans(batch: EventBatch) -> None:
    """A batch can be resolved and written as spans, each of which a back end can read."""
    for span in spans_in(assemble(_STAGES.run(batch), 1 << 20)):
        assert len(span.trace_id) == 16
        assert any(span.span_id)
        assert span.start_time_unix_nano <= span.end_time_unix_nano < 2**63
        assert span.name
        assert all(isfinite(each.value.double_value) for each in span.attributes), span  # JSON has no word for others


def check_mapping(read: Callable[[bytes], mapping_pb2.MappingFile], data: bytes) -> None:
    """What a source makes is canonical, reads back equal in both forms, and compiles."""
    try:
        file = read(data)
    except MalformedMapping as refusal:
        check_words(refusal)
        return
    try:
        canonical = canonical_file(file)
    except MalformedMapping as refusal:  # a record may be read that is over a bound of documents
        check_words(refusal)
        return
    assert canonical == file
    for name in ("a.json", "a.bin"):
        assert read_document(write_file(file, name)) == file
    document = encode(file.mapping)
    compile_mapping(digest(document), mapping_pb2.Mapping.FromString(document))


def check_content(content: Content) -> None:
    """What was decoded, or was not, fits on a span."""
    assert len(content.pairs) <= MAX_KEYS
    assert len(content.values) <= MAX_VALUES
    assert len(content.raw) <= 2 * MAX_RAW_BYTES
    assert all(_KEY.fullmatch(key) for key, _ in content.pairs)
    assert all(len(text) <= MAX_TEXT for text in (*content.values, content.error))
    Span.FromString(span_attributes(attributes_of(content)))
