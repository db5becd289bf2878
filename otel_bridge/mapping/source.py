"""
Whatever a mapping can be made from, told apart by its first bytes.

    ETRecord         a zip: PK
    program          a .pte: ET12 at byte 4
    maps JSON        an object with `debug_handle_map`
    built document   protobuf JSON of a `MappingFile`: an object with `mapping`
    built document   binary: the line `otel-bridge mapping 1 <SHA-256 of the rest>`, then a `MappingFile`

Invariant: what was built reads back equal, or is refused; the digest in the first line tells a cut or damaged file.
"""

import hashlib
import io
import re
from typing import BinaryIO

from google.protobuf.message import DecodeError

from otel_bridge.mapping.document import canonical, canonical_file, from_json, to_json
from otel_bridge.mapping.etrecord import read_etrecord
from otel_bridge.mapping.faults import malformed, quoted
from otel_bridge.mapping.json_input import load_strictly
from otel_bridge.mapping.maps_json import maps_in
from otel_bridge.mapping.pte import is_program, read_program
from otel_bridge.v1 import mapping_pb2 as pb

MAX_TEXT_SOURCE_BYTES = 256 << 20
"""Of a source that is no ETRecord and no program: a document of the largest size is shorter in each of its forms."""

_MAGIC = b"otel-bridge mapping "
_HEADER = re.compile(_MAGIC + rb"1 ([0-9a-f]{64})\n")
_ACCEPTED = (
    "a source is an ETRecord, a JSON with debug_handle_map and delegate_map, a program (.pte), "
    "or what `otel-bridge mapping build` wrote"
)


_DOCUMENT = "mapping document"
_BUILD = "send what `otel-bridge mapping build` writes, or let `otel-bridge mapping upload` read the file where it lies"


def read_source(source: bytes | BinaryIO) -> pb.MappingFile:
    """
    The canonical file that a source makes, given as bytes or as an open, seekable file (weights stay unread).

    Raises `MalformedMapping`. The build id and the alias are those of a built document, else unset; a program's build id is
    its SHA-256.
    """
    file = io.BytesIO(source) if isinstance(source, bytes) else source
    start = file.read(len(_MAGIC))
    file.seek(0)
    if start.startswith(b"PK"):
        return pb.MappingFile(mapping=read_etrecord(file))
    if is_program(start):
        program = read_program(file)
        return pb.MappingFile(mapping=program.mapping, build_id=program.build_id)
    data = file.read(MAX_TEXT_SOURCE_BYTES + 1)
    if len(data) > MAX_TEXT_SOURCE_BYTES:
        raise malformed("mapping source", f"more than {MAX_TEXT_SOURCE_BYTES} bytes, and no zip", _ACCEPTED)
    if start == _MAGIC:
        return _read_binary(data)
    if data.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{"):
        return _read_json(data)
    raise malformed("mapping source", _guess(data), _ACCEPTED)


def read_document(data: bytes) -> pb.MappingFile:
    """
    The canonical file in a built document, and in nothing else: what may travel, since it holds no weights.

    Raises `MalformedMapping`.
    """
    refuse_weights(data)
    if data.startswith(_MAGIC):
        return _read_binary(data)
    if data.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{"):
        return _read_json(data, built=True)
    raise malformed(_DOCUMENT, _guess(data), _BUILD)


def refuse_weights(start: bytes) -> None:
    """Raises `MalformedMapping` where something begins as an ETRecord or a program does: 8 bytes tell."""
    if start.startswith(b"PK"):
        raise malformed(_DOCUMENT, "a zip, such as an ETRecord, which may hold the model's weights", _BUILD)
    if is_program(start):
        raise malformed(_DOCUMENT, "an ExecuTorch program (.pte), which holds the model's weights", _BUILD)


def write_file(file: pb.MappingFile, name: str) -> bytes:
    """The bytes of a built document for a file of that name: JSON where it ends in `.json`, else binary."""
    if name.lower().endswith(".json"):
        return to_json(file).encode()
    body = canonical_file(file).SerializeToString(deterministic=True)
    return b"%s1 %s\n%s" % (_MAGIC, hashlib.sha256(body).hexdigest().encode(), body)


def _read_binary(data: bytes) -> pb.MappingFile:
    header = _HEADER.match(data)
    if header is None:
        raise malformed("mapping document", "a first line of another version", "read it with the otel-bridge that wrote it")
    body = data[header.end() :]
    if hashlib.sha256(body).hexdigest().encode() != header[1]:
        raise malformed("mapping document", "bytes that do not fit the digest in the first line", "copy or build it again")
    try:
        return canonical_file(pb.MappingFile.FromString(body))
    except DecodeError as error:
        raise malformed("mapping document", "bytes that are no MappingFile", "build it again") from error


def _read_json(data: bytes, *, built: bool = False) -> pb.MappingFile:
    value = load_strictly(data, "mapping source")
    keys = value if isinstance(value, dict) else {}
    if "debug_handle_map" in keys or "delegate_map" in keys:
        if built:
            raise malformed(_DOCUMENT, "JSON with maps of which nothing is built yet", _BUILD)
        return pb.MappingFile(mapping=canonical(maps_in(value)))
    if "mapping" in keys:
        return from_json(data.decode("utf-8-sig"))
    found = ", ".join(quoted(key) for key in list(keys)[:5]) or "no keys"
    raise malformed("mapping source", f"a JSON object with {found}", _ACCEPTED)


def _guess(data: bytes) -> str:
    """What bytes look like that are no source, in words that help to find the right file."""
    if not data:
        return "an empty file"
    if b"ED00" in (data[4:8], data[8:12]):
        return "an ETDump, which holds events and no maps"
    return f"{len(data)} bytes that start with {data[:8].hex(' ')}"
