"""`otel-bridge mapping build`: from whatever a build leaves behind to a document, with nothing running."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.mappings import CAPTURES, capture, etrecord_of, relation_of

from otel_bridge.mapping.document import default_build_id, digest, encode
from otel_bridge.mapping.source import read_source
from otel_bridge.v1 import mapping_pb2 as pb

FILES = [(name, source) for name in CAPTURES for source in ("model.etrecord", "maps.json")]


@pytest.mark.parametrize(("name", "source"), FILES)
def test_every_source_makes_a_document(name: str, source: str, cli: Callable[..., Any], fixtures: Path, tmp_path: Path) -> None:
    """From each fixture a binary and a JSON document are made that read back as one mapping; the summary counts it."""
    made = []
    for output in (tmp_path / "made", tmp_path / "made.json"):
        done = cli("mapping", "build", fixtures / name / source, "-o", output)
        assert (done.code, done.err) == (0, "")
        made.append(read_source(output.read_bytes()))
    assert made[0] == made[1]
    mapping = made[0].mapping
    assert mapping == read_source(capture(name, source)).mapping
    calls = [call for method in mapping.methods for call in method.instructions if call.delegate]
    build = default_build_id(digest(encode(mapping)))
    assert done.out == (
        f"{tmp_path / 'made.json'}: build {build}, mapping sha256:{digest(encode(mapping))[:16]}, "
        f"{len(mapping.methods)} methods, {len(calls)} delegate calls, {sum(len(call.entries) for call in calls)} identifiers\n"
    )
    json.loads((tmp_path / "made.json").read_text())


def built(cli: Callable[..., Any], folder: Path, source: Path, *arguments: object) -> pb.MappingFile:
    """What a build makes of a source."""
    done = cli("mapping", "build", source, "-o", folder / "built", *arguments)
    assert (done.code, done.err) == (0, "")
    return read_source((folder / "built").read_bytes())


def test_names_of_a_build(cli: Callable[..., Any], fixtures: Path, tmp_path: Path) -> None:
    """The build id is what is given, else the SHA-256 of the program, else that of a built document."""
    source, pte = (fixtures / "xnnpack" / name for name in ("model.etrecord", "model.pte"))
    file = built(cli, tmp_path, source, "--model", "net", "--version", "1", "--build-id", "b1")
    assert (file.name, file.version, file.build_id) == ("net", "1", "b1")
    again = shutil.copy(tmp_path / "built", tmp_path / "document")
    assert built(cli, tmp_path, again) == file
    assert built(cli, tmp_path, again, "--build-id", "b2").build_id == "b2"
    by_program = built(cli, tmp_path, source, "--pte", pte)
    assert by_program.build_id == hashlib.sha256(pte.read_bytes()).hexdigest()
    assert (by_program.name, by_program.version) == ("", "")


def test_a_build_id_wins_over_the_programs(cli: Callable[..., Any], fixtures: Path, tmp_path: Path) -> None:
    """Devices may have a name of their own for a build; the program still says what its nodes are."""
    folder = fixtures / "xnnpack"
    done = cli(
        "mapping", "build", folder / "model.etrecord", "-o", tmp_path / "out", "--build-id", "b", "--pte", folder / "model.pte"
    )
    assert (done.code, done.err) == (0, "")
    assert "build b, " in done.out
    assert ", 8 nodes" in done.out


def entries_of(mapping: pb.Mapping) -> set[tuple[str, int, str, tuple[int, ...]]]:
    """Method, instruction, identifier as text, and handles of each entry: the maps have lost the type."""
    return {(method, instruction, str(key), handles) for method, instruction, _, key, handles in relation_of(mapping)}


def test_both_sources_resolve_alike(cli: Callable[..., Any], fixtures: Path, tmp_path: Path) -> None:
    """An ETRecord and the maps of the same export hold the same entries; only the ETRecord knows operators."""
    for name in ("toy_backend_int", "toy_backend_str", "two_backends"):
        record, maps = (built(cli, tmp_path, fixtures / name / source).mapping for source in ("model.etrecord", "maps.json"))
        assert entries_of(record) == entries_of(maps)
        counts = [
            sum(len(call.operators) for method in mapping.methods for call in method.instructions) for mapping in (record, maps)
        ]
        assert counts[0] > counts[1] == 0


MAPS = {
    "debug_handle_map": {"forward": {"0": [1]}},
    "delegate_map": {"forward": {"0": {"name": "B", "delegate_map": {"1": [1]}}}},
}


def with_maps(**changes: Any) -> bytes:
    """A maps JSON with some members changed."""
    return json.dumps(MAPS | changes).encode()


BAD: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "an empty file"),
    "text": (b"hello \x1b[31m", "mapping source: "),
    "an ETDump": (capture("xnnpack", "run.etdp"), "an ETDump, which holds events and no maps"),
    "a cut program": (capture("xnnpack", "model.pte")[:3000], ".pte: "),
    "a cut ETRecord": (capture("xnnpack")[:300], "ETRecord: "),
    "a zip without maps": (etrecord_of({"ETRECORD_V0": b"", "etrecord_version": b""}), "debug_handle_map: missing"),
    "a zip of something": (etrecord_of({"readme.txt": b"hi"}), "debug_handle_map: missing"),
    "cut JSON": (with_maps()[:-1], "no JSON"),
    "other JSON": (b'{"a": 1}', 'a JSON object with "a"'),
    "a list": (b"[1]", "mapping source"),
    "no delegate map": (json.dumps({"debug_handle_map": MAPS["debug_handle_map"]}).encode(), "delegate map names no backend"),
    "no handle map": (json.dumps({"delegate_map": MAPS["delegate_map"]}).encode(), "debug_handle_map: missing"),
    "null maps": (with_maps(debug_handle_map=None), "debug_handle_map: missing"),
    "a key twice": (b'{"debug_handle_map": {"forward": {"0": 1, "0": 2}}, "delegate_map": {}}', "a key that is given twice"),
    "a word for a handle": (with_maps(debug_handle_map={"forward": {"0": ["x"]}}), 'the string "x"'),
    "NaN": (with_maps().replace(b"[1]", b"[NaN]", 1), "nan, which is no JSON number"),
    "Infinity": (with_maps().replace(b"[1]", b"[-Infinity]", 1), "-inf, which is no JSON number"),
    "a huge number": (with_maps().replace(b"[1]", b"[" + b"9" * 5000 + b"]", 1), "inf"),
    "a wrong instruction": (with_maps(debug_handle_map={"forward": {"zero": [1]}}), "an instruction id is an integer"),
    "escapes": (with_maps(debug_handle_map={"\x1b[31m": {"\u202e": [1]}}), r"\u202e"),
    "deep": (b'{"debug_handle_map": ' + b"[" * 200_000, "nested too deep"),
    "not UTF-8": (b'{"debug_handle_map": "\xff"}', "not UTF-8 at offset"),
    "a torn document": (b"otel-bridge mapping 1 " + b"0" * 64 + b"\nxyz", "do not fit the digest"),
    "a document of the future": (b"otel-bridge mapping 2 " + b"0" * 64 + b"\nxyz", "another version"),
}


@pytest.mark.parametrize("what", BAD)
@pytest.mark.parametrize("command", ["build", "upload", "replay", "inspect"])
def test_a_bad_source(what: str, command: str, cli: Callable[..., Any], fixtures: Path, tmp_path: Path) -> None:
    """Whatever takes a mapping refuses a bad one in one line that says what was found; nothing is written or sent."""
    data, told = BAD[what]
    source, output = tmp_path / "source", tmp_path / "output"
    source.write_bytes(data)
    run = fixtures / "xnnpack" / "run.etdp"
    arguments = {
        "build": ("mapping", "build", source, "-o", output),
        "upload": ("mapping", "upload", source, "--server", "127.0.0.1:1"),
        "replay": ("replay", run, "--mapping", source, "--output", output),
        "inspect": ("inspect", run, "--mapping", source),
    }[command]
    assert told in cli(*arguments).error
    assert not output.exists()


@pytest.mark.parametrize("command", [("mapping", "build", "-o", "out"), ("mapping", "upload", "--server", "127.0.0.1:1")])
def test_a_source_that_cannot_be_read(command: tuple[str, ...], cli: Callable[..., Any], tmp_path: Path) -> None:
    """A file that is not there, or is a directory, is named with the reason."""
    assert cli(*command, tmp_path / "none").error == f"{tmp_path / 'none'}: cannot be read: No such file or directory"
    assert cli(*command, tmp_path).error == f"{tmp_path}: cannot be read: Is a directory"


def test_an_output_that_cannot_be_written(cli: Callable[..., Any], fixtures: Path, tmp_path: Path) -> None:
    """An output that cannot be written is named with the reason."""
    source, output = fixtures / "xnnpack" / "maps.json", tmp_path / "none" / "out"
    assert cli("mapping", "build", source, "-o", output).error == f"{output}: cannot be written: No such file or directory"


def test_source_paths_stay_at_home(cli: Callable[..., Any], fixtures: Path, tmp_path: Path) -> None:
    """`--strip-prefix` takes a folder off source paths, `--without-source` leaves them out with their lines."""
    source = fixtures / "mixed_ops" / "model.etrecord"

    def told(*options: str) -> set[tuple[str, bool]]:
        calls = [call for method in built(cli, tmp_path, source, *options).mapping.methods for call in method.instructions]
        operators = [each for call in calls for known in call.operators for each in known.operators]
        return {(each.file, bool(each.line)) for each in operators}

    before = told()
    assert before
    assert all(file.startswith("models/") for file, _ in before)
    assert told("--strip-prefix", "nowhere", "--strip-prefix", "models") == {(file[7:], line) for file, line in before}
    assert told("--without-source") == {("", False)}
    assert told("--without-source", "--strip-prefix", "models") == {("", False)}
