import io
from pathlib import Path

import pytest
from hypothesis import given, settings
from support.mappings import capture, etrecord_of, files, mapping_of

from otel_bridge.errors import MalformedMapping
from otel_bridge.mapping import source
from otel_bridge.mapping.document import canonical, canonical_file
from otel_bridge.mapping.etrecord import read_etrecord
from otel_bridge.mapping.maps_json import read_maps
from otel_bridge.mapping.pte import read_program
from otel_bridge.mapping.source import read_source, write_file
from otel_bridge.v1 import mapping_pb2 as pb


@settings(max_examples=50)
@given(files())
def test_round_trip(file: pb.MappingFile) -> None:
    """What is built, in either form, reads back equal."""
    for name in ("model.mapping", "model.json", "MODEL.JSON"):
        assert read_source(write_file(file, name)) == canonical_file(file)


def test_told_apart() -> None:
    """Sources are told by their first bytes; they carry no alias, and but for programs no build id."""
    assert read_source(capture("mixed_ops")) == pb.MappingFile(mapping=read_etrecord(capture("mixed_ops")))
    program = read_program(capture("mixed_ops", "model.pte"))
    assert read_source(capture("mixed_ops", "model.pte")) == pb.MappingFile(mapping=program.mapping, build_id=program.build_id)
    maps = capture("mixed_ops", "maps.json")
    assert read_source(b" \n" + maps) == pb.MappingFile(mapping=read_maps(maps))


def test_open_file(tmp_path: Path) -> None:
    """An open file is read like its bytes, whichever form it has."""
    for data in (capture("mixed_ops"), capture("mixed_ops", "maps.json"), write_file(FILE, "x")):
        (tmp_path / "source").write_bytes(data)
        with (tmp_path / "source").open("rb") as file:
            assert read_source(file) == read_source(data)


FILE = pb.MappingFile(mapping=mapping_of({"a": [1]}), build_id="b", name="n", version="1")
BINARY = write_file(FILE, "x")


def test_binary_starts_with_a_line() -> None:
    """A built document says in plain text what it is."""
    assert BINARY.splitlines()[0].startswith(b"otel-bridge mapping 1 ")
    assert write_file(pb.MappingFile(mapping=canonical(FILE.mapping)), "x") == write_file(
        pb.MappingFile(mapping=FILE.mapping), "x"
    )


@pytest.mark.parametrize(
    ("data", "found", "way_out"),
    [
        (b"", "an empty file", "ETRecord"),
        (b"\x1f\x8b\x08 gzip", "start with 1f 8b 08 20", "ETRecord"),
        (capture("mixed_ops", "run.etdp"), "an ETDump", "ETRecord"),
        (
            capture("mixed_ops", "model.pte")[:-1],
            ".pte: it reaches to byte 6976, and the file has 6975",
            "copy or export it again",
        ),
        (b"[1]", "start with 5b 31 5d", "ETRecord"),
        (b'{"a": 1, "b\\u001b": 2}', 'a JSON object with "a", "b\\u001b"', "debug_handle_map and delegate_map"),
        (b"{}", "a JSON object with no keys", "debug_handle_map and delegate_map"),
        (b'{"mapping"', "mapping source: no JSON", "whole"),
        (b'{"delegate_map": {}}', "debug_handle_map: missing", "ExecutorchProgramManager"),
        (b'{"mapping": {"format": 9}}', "format: 9", "only 1 is known"),
        (etrecord_of({"word/document.xml": b"x"}), "debug_handle_map: missing", "debug_handle_map"),
        (BINARY[:-1], "mapping document: bytes that do not fit the digest", "copy or build it again"),
        (BINARY[:-1] + b"\x00", "mapping document: bytes that do not fit the digest", "copy or build it again"),
        (BINARY.replace(b"mapping 1", b"mapping 2"), "mapping document: a first line of another version", "wrote it"),
    ],
)
def test_refused(data: bytes, found: str, way_out: str) -> None:
    """What is no source is told by what it looks like, with the forms that are taken."""
    with pytest.raises(MalformedMapping) as caught:
        read_source(data)
    assert found in str(caught.value)
    assert way_out in str(caught.value)
    assert str(caught.value).isprintable()


def test_text_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of the wrong kind is not read to its end."""
    monkeypatch.setattr(source, "MAX_TEXT_SOURCE_BYTES", 1000)
    file = io.BytesIO(b"x" * 5000)
    with pytest.raises(MalformedMapping, match="more than 1000 bytes, and no zip"):
        read_source(file)
    assert file.tell() == 1001
