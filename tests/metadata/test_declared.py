"""Which decoder reads what, where the mapping declares one."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.delegate_runs import logged, run_delegate
from support.mappings import mapping_of
from support.scenes import STREAM, batch_of, call, delegated, execute, runtime, spans_in, stages_with

from otel_bridge.cli.main import otel_bridge
from otel_bridge.errors import MalformedMapping
from otel_bridge.mapping.document import canonical, encode, first_difference
from otel_bridge.mapping.formats import MAX_FIELDS, read_layout
from otel_bridge.mapping.source import read_source
from otel_bridge.metadata.layout import CODES
from otel_bridge.metadata.table import Decoders
from otel_bridge.spans.assemble import assemble
from otel_bridge.v1 import mapping_pb2 as pb

HERE = Path(__file__).parent
PARSERS = "support.parsers"
BFBS = (HERE / "probe.bfbs").read_bytes()


def layout(delegate: str, *fields: tuple[str, str]) -> pb.MetadataFormat:
    """A declared layout."""
    return pb.MetadataFormat(
        delegate=delegate, layout=pb.StructLayout(fields=[pb.StructField(name=name, type=kind) for name, kind in fields])
    )


@pytest.mark.parametrize(
    ("specs", "declared", "key"),
    [
        ([f"NeutronBackend={PARSERS}:parse_delegate_metadata", "raw"], True, "first"),
        (["raw"], True, "word"),
        (["raw"], False, ""),
        ([], True, "word"),
        ([], False, ""),
    ],
)
def test_precedence(specs: list[str], declared: bool, key: str) -> None:  # noqa: FBT001 - a parameter of the table above
    """For the backend, then with the mapping, then for all, then what is known of the backend."""
    declaration = layout("NeutronBackend", ("word", "u16")).SerializeToString() if declared else b""
    with closing(Decoders(specs)) as decoders:
        content = decoders.decode("NeutronBackend", b"\x01\x02", declaration)
    assert [pair[0] for pair in content.pairs][:1] == ([key] if key else [])
    assert ("a function code has 1" in content.error) == (specs == [] and not declared)


def test_the_known_decoder_of_a_backend_gives_way_to_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed decoder is preferred to the built-in one."""
    info = tmp_path / "vendor-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: vendor\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[otel_bridge.metadata_decoders]\nNeutronBackend = {PARSERS}:as_list\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with closing(Decoders()) as decoders:
        assert decoders.decode("NeutronBackend", b"\x05").values == ("05",)


def test_the_same_bytes_of_two_builds_are_read_by_their_own_mappings() -> None:
    """What one build declares is never remembered for another, in one pass of one bridge."""
    files = []
    for build, kind in (("a", "u8"), ("b", "i8")):
        mapping = mapping_of({1: [1]})
        mapping.metadata.add().CopyFrom(layout("Toy", (f"of_{build}", kind)))
        files.append(pb.MappingFile(mapping=mapping, build_id=build))
    stages = stages_with(*files)
    events = [
        delegated(1, 0, 200, 300, metadata=b"\xff"), call("DELEGATE_CALL", 0, 100, 400), runtime("Method::execute", 0, 500),
    ]  # fmt: skip
    said = {}
    for build in ("a", "b", "a"):
        batch = batch_of((execute(), events), stream=replace(STREAM, build=build))
        spans = spans_in(assemble(stages.run(batch), 10**6))
        said[build] = {
            attribute.key: attribute.value.int_value
            for span in spans
            for attribute in span.attributes
            if attribute.key.startswith("executorch.delegate.metadata.")
        }
    assert said == {"a": {"executorch.delegate.metadata.of_a": 255}, "b": {"executorch.delegate.metadata.of_b": -1}}


def test_declared_metadata_reach_the_span_with_their_types() -> None:
    """By layout and by schema; over the limit of bytes they stay what they are."""
    schema = pb.MetadataFormat(delegate="Toy", flatbuffer=pb.FlatbufferSchema(bfbs=BFBS))
    run = run_delegate("Toy", [logged("a", 200, 300, (HERE / "probe.bin").read_bytes())], formats=[schema])
    said = run.said("a", "delegate.metadata")
    assert (said["delegate.metadata.small"], said["delegate.metadata.unit"]) == (-3, "NPU")
    events = [logged("a", 200, 300, b"\x05"), logged("b", 300, 400, b"\x00" * 10_000_000)]
    run = run_delegate("Toy", events, formats=[layout("Toy", ("n", "u8"))])
    assert run.said("a", "delegate.metadata") == {"delegate.metadata.n": 5}
    assert "10000000 bytes, over the limit" in str(run.said("b", "delegate.metadata_error"))


def test_a_key_keeps_its_type_between_declared_and_guessed() -> None:
    """An integer may be shown as a double where doubles were first, if it is one; never the other way with a loss."""
    as_int, as_double = (layout("Toy", ("n", kind)).SerializeToString() for kind in ("i8", "f32"))
    with closing(Decoders()) as decoders:
        assert decoders.decode("Toy", b"\x05", as_int).pairs == (("n", 5),)
        assert decoders.decode("Toy", b"\x00\x00\x80\x3f", as_double).pairs == (("n", 1),)
        assert decoders.decode("Toy", b"\x00\x00\x00\x3f", as_double).error == "n is a number here and an integer elsewhere"
        assert decoders.decode("Toy", b'{"n":"x"}').error == "n is text here and an integer elsewhere"
        assert type(decoders.decode("Other", b'{"n":1}').pairs[0][1]) is int
    with closing(Decoders()) as decoders:
        assert decoders.decode("Other", b'{"n":1}').pairs == (("n", 1.0),)
        assert type(decoders.decode("Other", b"\x07", as_int).pairs[0][1]) is float


def test_a_declaration_is_a_part_of_the_document_and_not_of_what_it_resolves() -> None:
    """Another declaration is another digest, but no conflict: it describes."""
    plain, declared = mapping_of({1: [1]}), mapping_of({1: [1]})
    declared.metadata.add().CopyFrom(layout("Toy", ("n", "u8")))
    declared.metadata.add().CopyFrom(layout("Any", ("n", "u8")))
    plain, declared = canonical(plain), canonical(declared)
    assert encode(plain) != encode(declared)
    assert first_difference(plain, declared) is None
    assert [each.delegate for each in declared.metadata] == ["Any", "Toy"]
    assert canonical(declared) == declared


@pytest.mark.parametrize(
    ("declaration", "said"),
    [
        (pb.MetadataFormat(), 'metadata[""].delegate: an empty string'),
        (pb.MetadataFormat(delegate="Toy"), "metadata[Toy]: no format"),
        (layout("Toy"), "0 fields"),
        (layout("Toy", *[(f"f{number}", "u8") for number in range(MAX_FIELDS + 1)]), "33 fields"),
        (layout("Toy", ("A", "u8")), "a name has 1 to 64"),
        (layout("Toy", ("a", "u8"), ("a", "u8")), "for a second time"),
        (layout("Toy", ("a", "u128")), "a type is one of"),
        (layout("Toy", ("a", "bytes<0>")), "a type is one of"),
        (layout("Toy", ("a", "bytes<1025>")), "a type is one of"),
        (pb.MetadataFormat(delegate="Toy", flatbuffer=pb.FlatbufferSchema()), "no binary schema"),
        (
            pb.MetadataFormat(delegate="Toy", flatbuffer=pb.FlatbufferSchema(bfbs=b"0000BFBS" + bytes(1 << 20))),
            "at most 1048576",
        ),
    ],
)
def test_what_has_no_one_meaning_is_refused(declaration: pb.MetadataFormat, said: str) -> None:
    """With the place, what was found, and the way out."""
    mapping = mapping_of({1: [1]})
    mapping.metadata.add().CopyFrom(declaration)
    with pytest.raises(MalformedMapping) as refused:
        canonical(mapping)
    assert said in str(refused.value)


def test_one_backend_has_one_declaration() -> None:
    """Two would need a rule."""
    mapping = mapping_of({1: [1]})
    mapping.metadata.extend([layout("Toy", ("a", "u8")), layout("Toy", ("b", "u8"))])
    with pytest.raises(MalformedMapping, match="given twice"):
        canonical(mapping)


@pytest.mark.parametrize("kind", [*CODES, "bytes<1>", "bytes<1024>"])
def test_mappings_and_decoders_know_the_same_types(kind: str) -> None:
    """What a mapping may declare, a decoder can read."""
    fields = read_layout(b'{"fields":[{"name":"a","type":"%s"}]}' % kind.encode(), "layout").fields
    assert [field.type for field in fields] == [kind]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"[]", "a layout is an object"),
        (b'{"fields":1}', "`fields` is a list"),
        (b'{"field":[]}', "no member of a layout"),
        (b'{"big_endian":1,"fields":[]}', "no member of a layout"),
        (b'{"fields":[{"name":"a","type":"u8","size":1}]}', "fields][0][size]: no member of a field"),
        (b'{"fields":[{"name":"a","name":"b","type":"u8"}]}', "a key that is given twice"),
        (b'{"fields":[{"name":"\\ud800","type":"u8"}]}', "half a character"),
        (b" " * 70_000, "at most 65536"),
        (b"\xff", "not UTF-8"),
    ],
)
def test_a_layout_that_cannot_be_read_says_where(text: bytes, said: str) -> None:
    """JSON as a person writes it, with a person's faults."""
    with pytest.raises(MalformedMapping) as refused:
        read_layout(text, "layout")
    assert said in str(refused.value)


def test_the_command_line_declares_with_the_mapping(tmp_path: Path) -> None:
    """`mapping build` with a layout and a schema; what it writes reads back."""
    source, layout_file, output = tmp_path / "maps.json", tmp_path / "layout.json", tmp_path / "out.mapping"
    source.write_text(
        '{"debug_handle_map":{"forward":{"0":[1]}},"delegate_map":{"forward":{"0":{"name":"Toy","delegate_map":{}}}}}'
    )
    layout_file.write_text('{"fields":[{"name":"took","type":"u32","unit":"ns"}]}')
    command = ["build", str(source), "-o", str(output)]
    options = [f"--metadata-struct=Toy={layout_file}", f"--metadata-schema=Other={HERE / 'probe.bfbs'}#probe.Other"]
    done = CliRunner().invoke(otel_bridge, ["mapping", *command, *options])
    assert done.exit_code == 0, done.output
    other, toy = read_source(output.read_bytes()).mapping.metadata
    assert (other.delegate, other.flatbuffer.root_table, other.flatbuffer.bfbs) == ("Other", "probe.Other", BFBS)
    assert (toy.delegate, toy.layout.fields[0].unit) == ("Toy", "ns")
    again = CliRunner().invoke(otel_bridge, ["mapping", "build", str(output), "-o", str(tmp_path / "again"), options[1]])
    assert again.exit_code == 0, again.output
    assert len(read_source((tmp_path / "again").read_bytes()).mapping.metadata) == 2


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--metadata-struct=Toy", "must look like BACKEND=FILE"),
        ("--metadata-struct=Toy=no/such/file", "cannot be read"),
        (f"--metadata-schema=Toy={HERE / 'probe.fbs'}", "no binary schema"),
        (f"--metadata-schema=Toy={HERE / 'probe.bfbs'}#Nothing", "lacks the root table"),
    ],
)
def test_an_option_that_cannot_be_obeyed_is_told(tmp_path: Path, option: str, said: str) -> None:
    """Before anything is written."""
    source, output = tmp_path / "maps.json", tmp_path / "out.mapping"
    source.write_text('{"debug_handle_map":{"forward":{"0":1}},"delegate_map":{}}')
    done = CliRunner().invoke(otel_bridge, ["mapping", "build", str(source), "-o", str(output), option])
    assert done.exit_code != 0
    assert said in done.output + str(done.exception)
    assert not output.exists()
