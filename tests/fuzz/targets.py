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
import struct
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from cryptography.hazmat.primitives.hashes import SHA256
from fuzz.laws import check_admitted, check_content, check_mapping, check_spans, check_words
from google.protobuf.message import DecodeError
from jwt.algorithms import ECAlgorithm
from jwt.utils import base64url_encode
from starlette.types import Message
from support.agreement import agreed_outcome
from support.batches import differences
from support.etrecords import GRAPH
from support.identity_provider import AUDIENCE, ISSUER, Provider
from support.mappings import etrecord_of
from support.requests import ANYTHING, NOON, admitted_bytes, no_alias

from otel_bridge.auth.keys import Keys, read_keys
from otel_bridge.auth.token import PREFIX, draw, id_in, is_of
from otel_bridge.auth.web_token import Unfit, WebTokens
from otel_bridge.config.jwt import JwtConfig
from otel_bridge.errors import ConfigError, MalformedETDump, MalformedMapping, MalformedRequest, TooLarge
from otel_bridge.etdump.result import ETDump
from otel_bridge.mapping.formats import canonical_format
from otel_bridge.mapping.source import read_document, read_source
from otel_bridge.metadata.builtin import BUILTIN
from otel_bridge.metadata.declared import compile_format
from otel_bridge.metadata.decoder import Content
from otel_bridge.metadata.layout import Layout
from otel_bridge.metadata.table import OF_BACKENDS
from otel_bridge.model.identity import TENANT, Scope
from otel_bridge.spool.encode import Undecodable, decode
from otel_bridge.spool.encode import encode as encode_record
from otel_bridge.v1 import mapping_pb2, profiling_pb2
from otel_bridge.wire.admission import admit_etdump
from otel_bridge.wire.blocks import context_of
from otel_bridge.wire.body import BodyLimits, read_body
from otel_bridge.wire.intake import parse
from otel_bridge.wire.mapping_routes import PUT_PARAMETERS
from otel_bridge.wire.query import upload_request, values


@dataclass(frozen=True)
class KnownKeys:
    """Keys that never change."""

    keys: Keys

    def refresh(self) -> None:
        """There are no others."""

    def miss(self) -> None:
        """Nor will there be."""


Target = Callable[[bytes], object]

MARK = b"\n--\n"
"""Between the members of an ETRecord in the input of `etrecord`."""
MEMBERS = ("debug_handle_map", "delegate_map", f"{GRAPH}/forward")
DECODERS = {**BUILTIN, **OF_BACKENDS}
ENCODINGS = ("", "gzip", "zstd")
BODY_LIMIT_BYTES = 1 << 16

_MAGIC = b"otel-bridge mapping 1 "


def etdump(data: bytes) -> None:
    """A file: the three readers agree, and what they make of it becomes spans."""
    outcome = agreed_outcome(data)
    if isinstance(outcome, ETDump):
        check_spans(outcome.batch)
    else:
        check_words(outcome)


def upload(data: bytes) -> None:
    """A serialised `UploadETDumpRequest`."""
    try:
        request = parse(profiling_pb2.UploadETDumpRequest, data)
        check_admitted(admit_etdump(request, NOON, ANYTHING, no_alias))
    except (MalformedRequest, MalformedETDump) as refusal:
        check_words(refusal)


def events(data: bytes) -> None:
    """A serialised `ExportEventsRequest`; what is admitted of it survives the spool."""
    try:
        admitted = admitted_bytes(data)
    except MalformedRequest as refusal:
        check_words(refusal)
        return
    check_admitted(admitted)
    if len(admitted.batch):
        assert differences(decode(encode_record(admitted.batch)), admitted.batch) == []


def query(data: bytes) -> None:
    """The query of an upload, or of a mapping's."""
    for read in (upload_request, lambda query: values(query, PUT_PARAMETERS)):
        try:
            read(data)
        except MalformedRequest as refusal:
            check_words(refusal)


def body(data: bytes) -> None:
    """The body of an HTTP request: its encoding, the length of its first chunk, and the rest."""
    encoding, first, whole = ENCODINGS[(data[:1] or b"\0")[0] % len(ENCODINGS)], (data[1:2] or b"\0")[0], data[2:]
    chunks = [whole[:first], whole[first:]]

    async def receive() -> Message:
        chunk = chunks.pop(0)
        return {"type": "http.request", "body": chunk, "more_body": bool(chunks)}

    try:
        inflated = _RUNNER.run(read_body(receive, encoding, BodyLimits(BODY_LIMIT_BYTES)))
    except (MalformedRequest, TooLarge) as refusal:
        check_words(refusal)
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
        check_mapping(read, data)


def etrecord(data: bytes) -> None:
    """An ETRecord: a zip, or the members that are put into one, divided by `MARK`."""
    record = (
        data if data.startswith(b"PK") else etrecord_of(dict(zip(MEMBERS, data.split(MARK, len(MEMBERS) - 1), strict=False)))
    )
    check_mapping(read_source, record)


def program(data: bytes) -> None:
    """A program (.pte)."""
    check_mapping(read_source, data[:4] + b"ET12" + data[8:])


def metadata(data: bytes) -> None:
    """Metadata of a delegate, for one of the bridge's own decoders: its number, and the bytes."""
    decoder = list(DECODERS.values())[(data[:1] or b"\0")[0] % len(DECODERS)]
    check_content(decoder(data[1:]))


def layout(data: bytes) -> None:
    """A declared format and metadata by it: the length of a `MetadataFormat`, the format, the metadata."""
    declared, message = _divided(data)
    try:
        offered = mapping_pb2.MetadataFormat.FromString(declared)
    except DecodeError:
        return
    check_content(_decoded(declared, message))  # as a registry of before may hold it
    try:
        canonical = canonical_format(offered, "metadata[0]")
    except MalformedMapping as refusal:
        check_words(refusal)
        return
    assert canonical_format(canonical, "metadata[0]") == canonical
    check_content(_decoded(canonical.SerializeToString(), message))


def schema(data: bytes) -> None:
    """A binary schema (.bfbs) and a message by it: the length of the message, the message, the schema."""
    message, bfbs = _divided(data)
    declared = mapping_pb2.MetadataFormat(flatbuffer=mapping_pb2.FlatbufferSchema(bfbs=bfbs[:4] + b"BFBS" + bfbs[8:]))
    check_content(_decoded(declared.SerializeToString(), message))


def record(data: bytes) -> None:
    """A record of the spool, whose checksum is not looked at: behind it stand bytes that the bridge wrote."""
    with suppress(Undecodable):
        decode(data)


def web_token(data: bytes) -> None:
    """A token of an identity provider: its header and its claims on two lines, which are then signed."""
    header, _, claims = data.partition(b"\n")
    said = b".".join(map(base64url_encode, (header, claims)))
    signature = ECAlgorithm(SHA256).sign(said, _PROVIDER.keys["one"])
    found = _WEB_TOKENS.identify((said + b"." + base64url_encode(signature)).decode())
    if isinstance(found, Unfit):
        return
    assert found.name.isprintable()
    assert found.name.isascii()
    assert TENANT.fullmatch(found.tenant)
    assert found.scopes <= frozenset(Scope)


def key_set(data: bytes) -> None:
    """The keys that an identity provider publishes."""
    try:
        keys = read_keys(data, "keys")
    except ConfigError as refusal:
        check_words(refusal)
        return
    for key in (key for of_name in keys.values() for key in of_name):
        assert key.algorithms
        assert not isinstance(key.public, bytes)  # a shared secret
        assert not hasattr(key.public, "private_bytes")


def credential(data: bytes) -> None:
    """What stands in a header: a token, which is nobody's, and a trace context."""
    shown = data.decode("latin-1")
    found = id_in(shown)
    assert found is None or (shown.startswith(f"{PREFIX}{found}_") and len(shown) == len(_WHOLE))
    assert not is_of(shown, None)
    assert not is_of(shown, _TOKEN)
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
        web_token,
        key_set,
    )
}
"""By name, which is also that of the folder of its corpus."""

_PROVIDER = Provider()
_WEB_TOKENS = WebTokens(
    JwtConfig(issuer=ISSUER, audience=(AUDIENCE,), tenant_claim="tenant"), KnownKeys(read_keys(_PROVIDER.key_set(), "keys"))
)
_TOKEN, _WHOLE = draw("somebody", Scope, datetime.now(UTC))
_RUNNER = asyncio.Runner()


def joined(first: bytes, second: bytes) -> bytes:
    """Two things as one input."""
    return struct.pack("<H", len(first)) + first + second


def _decoded(declared: bytes, message: bytes) -> Content:
    decoder = compile_format(declared)
    return decoder.decode(message) if isinstance(decoder, Layout) else decoder(message)


def _divided(data: bytes) -> tuple[bytes, bytes]:
    length = int.from_bytes(data[:2], "little")
    return data[2 : 2 + length], data[2 + length :]
