"""
Every parser of foreign bytes, as a function that takes any bytes.

Invariants
* A target returns, whatever it is given: the error that its parser documents is an answer, any other is a finding.
* What a parser accepts is held to what the code behind it relies on.
* Input is bytes as they come, so that a fuzzer's mutations stay small. Where a parser takes two things, the longer one is last
  and the other one's length, or a mark between them, stands in front.
"""

import asyncio
import hashlib
import re
import struct
import zlib
from collections.abc import Callable
from contextlib import suppress

from google.protobuf.message import DecodeError
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from starlette.types import Message
from support.agreement import agreed_outcome
from support.batches import differences
from support.etrecords import GRAPH
from support.mappings import etrecord_of
from support.requests import ANYTHING, NOON, admitted_bytes, is_clear, no_alias
from support.scenes import spans_in, stages_with

from otel_bridge.auth.token import id_in, is_of
from otel_bridge.errors import BridgeError, MalformedETDump, MalformedMapping, MalformedRequest, TooLarge
from otel_bridge.etdump.result import ETDump
from otel_bridge.mapping.compiled import compile_mapping
from otel_bridge.mapping.document import canonical_file, digest, encode
from otel_bridge.mapping.formats import canonical_format
from otel_bridge.mapping.source import read_document, read_source, write_file
from otel_bridge.metadata.builtin import BUILTIN
from otel_bridge.metadata.declared import compile_format
from otel_bridge.metadata.decoder import MAX_KEYS, MAX_RAW_BYTES, MAX_TEXT, MAX_VALUES, Content
from otel_bridge.metadata.table import OF_BACKENDS
from otel_bridge.model.events import EventBatch
from otel_bridge.pipeline.shown import attributes_of
from otel_bridge.spans.assemble import assemble
from otel_bridge.spans.encode import span_attributes
from otel_bridge.spool.encode import Undecodable, decode
from otel_bridge.spool.encode import encode as encode_record
from otel_bridge.v1 import mapping_pb2, profiling_pb2
from otel_bridge.wire.admission import Admitted, admit_etdump
from otel_bridge.wire.blocks import context_of
from otel_bridge.wire.body import read_body
from otel_bridge.wire.intake import parse
from otel_bridge.wire.mapping_routes import PUT_PARAMETERS
from otel_bridge.wire.query import upload_request, values

Target = Callable[[bytes], object]

MARK = b"\n--\n"
"""Between the members of an ETRecord in the input of `etrecord`."""
MEMBERS = ("debug_handle_map", "delegate_map", f"{GRAPH}/forward")
DECODERS = {**BUILTIN, **OF_BACKENDS}
ENCODINGS = ("", "gzip", "zstd")
BODY_LIMIT_BYTES = 1 << 16

_MAGIC = b"otel-bridge mapping 1 "
_STAGES = stages_with()
_KEY = re.compile("[a-z0-9_]+")


def etdump(data: bytes) -> None:
    """A file: the three readers agree, and what they make of it becomes spans."""
    outcome = agreed_outcome(data)
    if isinstance(outcome, ETDump):
        _check_spans(outcome.batch)
    else:
        _check_words(outcome)


def upload(data: bytes) -> None:
    """A serialised `UploadETDumpRequest`."""
    try:
        request = parse(profiling_pb2.UploadETDumpRequest, data)
        _check_admitted(admit_etdump(request, NOON, ANYTHING, no_alias))
    except (MalformedRequest, MalformedETDump) as refusal:
        _check_words(refusal)


def events(data: bytes) -> None:
    """A serialised `ExportEventsRequest`; what is admitted of it survives the spool."""
    try:
        admitted = admitted_bytes(data)
    except MalformedRequest as refusal:
        _check_words(refusal)
        return
    _check_admitted(admitted)
    if len(admitted.batch):
        assert differences(decode(encode_record(admitted.batch)), admitted.batch) == []


def query(data: bytes) -> None:
    """The query of an upload, or of a mapping's."""
    for read in (upload_request, lambda query: values(query, PUT_PARAMETERS)):
        try:
            read(data)
        except MalformedRequest as refusal:
            _check_words(refusal)


def body(data: bytes) -> None:
    """The body of an HTTP request: its encoding, the length of its first chunk, and the rest."""
    encoding, first, whole = ENCODINGS[(data[:1] or b"\0")[0] % len(ENCODINGS)], (data[1:2] or b"\0")[0], data[2:]
    chunks = [whole[:first], whole[first:]]

    async def receive() -> Message:
        chunk = chunks.pop(0)
        return {"type": "http.request", "body": chunk, "more_body": bool(chunks)}

    try:
        inflated = _RUNNER.run(read_body(receive, encoding, BODY_LIMIT_BYTES, 5))
    except (MalformedRequest, TooLarge) as refusal:
        _check_words(refusal)
        return
    assert len(inflated) <= BODY_LIMIT_BYTES
    if encoding == "gzip":
        assert inflated == zlib.decompress(whole, wbits=zlib.MAX_WBITS | 16)
    elif not encoding:
        assert inflated == whole


def mapping(data: bytes) -> None:
    """A mapping's document as it is uploaded, JSON of maps, or whatever else `mapping build` is given."""
    if data.startswith(_MAGIC):  # a fuzzer cannot guess the digest
        content = data[len(_MAGIC) + 65 :]
        data = _MAGIC + hashlib.sha256(content).hexdigest().encode() + b"\n" + content
    for read in (read_source, read_document):
        _check_mapping(lambda read=read: read(data))  # type: ignore[misc]  # mypy cannot infer a lambda with a default


def etrecord(data: bytes) -> None:
    """An ETRecord: a zip, or the members that are put into one, divided by `MARK`."""
    record = (
        data if data.startswith(b"PK") else etrecord_of(dict(zip(MEMBERS, data.split(MARK, len(MEMBERS) - 1), strict=False)))
    )
    _check_mapping(lambda: read_source(record))


def program(data: bytes) -> None:
    """A program (.pte)."""
    _check_mapping(lambda: read_source(data[:4] + b"ET12" + data[8:]))


def metadata(data: bytes) -> None:
    """Metadata of a delegate, for one of the bridge's own decoders: its number, and the bytes."""
    decoder = list(DECODERS.values())[(data[:1] or b"\0")[0] % len(DECODERS)]
    _check_content(decoder(data[1:]))


def layout(data: bytes) -> None:
    """A declared format and metadata by it: the length of a `MetadataFormat`, the format, the metadata."""
    declared, message = _divided(data)
    try:
        offered = mapping_pb2.MetadataFormat.FromString(declared)
    except DecodeError:
        return
    _check_content(compile_format(declared)(message))  # as a registry of before may hold it
    try:
        canonical = canonical_format(offered, "metadata[0]")
    except MalformedMapping as refusal:
        _check_words(refusal)
        return
    assert canonical_format(canonical, "metadata[0]") == canonical
    _check_content(compile_format(canonical.SerializeToString())(message))


def schema(data: bytes) -> None:
    """A binary schema (.bfbs) and a message by it: the length of the message, the message, the schema."""
    message, bfbs = _divided(data)
    declared = mapping_pb2.MetadataFormat(flatbuffer=mapping_pb2.FlatbufferSchema(bfbs=bfbs[:4] + b"BFBS" + bfbs[8:]))
    _check_content(compile_format(declared.SerializeToString())(message))


def record(data: bytes) -> None:
    """A record of the spool, whose checksum is not looked at: behind it stand bytes that the bridge wrote."""
    with suppress(Undecodable):
        decode(data)


def credential(data: bytes) -> None:
    """What stands in a header: a token, and a trace context."""
    shown = data.decode("latin-1")
    found = id_in(shown)
    assert found is None or found in shown
    assert not is_of(shown, None)
    context = context_of(*data.partition(b"\n")[::2])
    assert context is None or (len(context.trace_id), len(context.span_id)) == (16, 8)


TARGETS: dict[str, Target] = {
    each.__name__: each
    for each in (
        etdump,
        upload,
        events,
        query,
        body,
        mapping,
        etrecord,
        program,
        metadata,
        layout,
        schema,
        record,
        credential,
    )
}
"""By name, which is also that of the folder of its corpus."""

_RUNNER = asyncio.Runner()


def joined(first: bytes, second: bytes) -> bytes:
    """Two things as one input."""
    return struct.pack("<H", len(first)) + first + second


def _divided(data: bytes) -> tuple[bytes, bytes]:
    length = int.from_bytes(data[:2], "little")
    return data[2 : 2 + length], data[2 + length :]


def _check_words(refusal: BridgeError) -> None:
    assert refusal.reason
    assert is_clear(str(refusal)), ascii(str(refusal))


def _check_admitted(admitted: Admitted) -> None:
    assert not admitted.rejected or is_clear(admitted.first_rejection), ascii(admitted.first_rejection)
    _check_spans(admitted.batch)


def _check_spans(batch: EventBatch) -> None:
    """A batch can be resolved and written as spans, each of which a back end can read."""
    for span in spans_in(assemble(_STAGES.run(batch), 1 << 20)):
        assert len(span.trace_id) == 16
        assert any(span.span_id)
        assert span.start_time_unix_nano <= span.end_time_unix_nano < 2**63
        assert span.name


def _check_mapping(read: Callable[[], mapping_pb2.MappingFile]) -> None:
    """What a source makes is canonical, reads back equal in both forms, and compiles."""
    try:
        file = read()
    except MalformedMapping as refusal:
        _check_words(refusal)
        return
    try:
        canonical = canonical_file(file)
    except MalformedMapping as refusal:  # a record may be read that is over a bound of documents
        _check_words(refusal)
        return
    assert canonical == file
    for name in ("a.json", "a.bin"):
        assert read_document(write_file(file, name)) == file
    document = encode(file.mapping)
    compile_mapping(digest(document), mapping_pb2.Mapping.FromString(document))


def _check_content(content: Content) -> None:
    """What was decoded, or was not, fits on a span."""
    assert len(content.pairs) <= MAX_KEYS
    assert len(content.values) <= MAX_VALUES
    assert len(content.raw) <= 2 * MAX_RAW_BYTES
    assert all(_KEY.fullmatch(key) for key, _ in content.pairs)
    assert all(len(text) <= MAX_TEXT for text in (*content.values, content.error))
    Span.FromString(span_attributes(attributes_of(content)))
