from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.mappings import files, mapping_of, mappings

from otel_bridge.errors import MalformedMapping
from otel_bridge.mapping import limits
from otel_bridge.mapping.document import (
    canonical,
    canonical_file,
    default_build_id,
    digest,
    encode,
    first_difference,
    from_json,
    to_json,
)
from otel_bridge.v1 import mapping_pb2 as pb


@st.composite
def shuffled(draw: st.DrawFn) -> tuple[pb.Mapping, pb.Mapping]:
    """A mapping, and the same with each unordered list in another order and handles repeated."""
    given = draw(mappings())
    other = pb.Mapping(format=given.format)
    for method in draw(st.permutations(list(given.methods))):
        target = other.methods.add(name=method.name)
        for instruction in draw(st.permutations(list(method.instructions))):
            handles = draw(st.permutations(list(instruction.handles)))
            copy = target.instructions.add(id=instruction.id, delegate=instruction.delegate, handles=[*handles, *handles])
            copy.operators.extend(draw(st.permutations(list(instruction.operators))))
            for entry in draw(st.permutations(list(instruction.entries))):
                again = copy.entries.add()
                again.CopyFrom(entry)
                again.handles.extend(entry.handles)
    return given, other


@settings(max_examples=50)
@given(shuffled())
def test_order(pair: tuple[pb.Mapping, pb.Mapping]) -> None:
    """The digest does not depend on the order of the input, nor on repeated handles."""
    assert digest(encode(pair[0])) == digest(encode(pair[1]))
    assert first_difference(canonical(pair[0]), canonical(pair[1])) is None


@settings(max_examples=50)
@given(mappings())
def test_idempotent(mapping: pb.Mapping) -> None:
    """A canonical mapping is its own canonical form, and its bytes read back equal."""
    once = canonical(mapping)
    assert canonical(once) == once
    assert pb.Mapping.FromString(encode(mapping)) == once


@settings(max_examples=50)
@given(files())
def test_json_round_trip(file: pb.MappingFile) -> None:
    """A file survives its JSON form, types of identifiers included, and the JSON is stable."""
    text = to_json(file)
    assert from_json(text) == canonical_file(file)
    assert to_json(from_json(text)) == text


def test_digest_ignores_names() -> None:
    """Nothing in a document names a build: the digest is that of SHA-256 over the canonical bytes."""
    assert digest(b"") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert default_build_id(digest(b"")) == "sha256:e3b0c44298fc1c14"


def test_unknown_fields_leave_the_document() -> None:
    """Fields of a later version do not enter the digest: what is not understood is not vouched for."""
    plain = mapping_of({"a": [1]})
    assert encode(pb.Mapping.FromString(plain.SerializeToString() + b"\xfa\x3f\x01x")) == encode(plain)


def test_types_stay_apart() -> None:
    """`1` and `"1"` are two identifiers; an untyped key that no integer matches is text."""
    both = canonical(mapping_of({"1": [2], 1: [3]}))
    assert [(entry.WhichOneof("identifier"), *entry.handles) for entry in both.methods[0].instructions[0].entries] == [
        ("number", 3),
        ("text", 2),
    ]
    loose = mapping_of({})
    for key in ("-1", "01", "2147483648", "+1", "conv", "\u0661"):
        loose.methods[0].instructions[0].entries.add(untyped=key)
    loose.methods[0].instructions[0].entries.add(untyped="-2147483648")
    kinds = [entry.WhichOneof("identifier") for entry in canonical(loose).methods[0].instructions[0].entries]
    assert kinds == ["text"] * 6 + ["untyped"]


def _spoil(change: Callable[[pb.Mapping], Any]) -> pb.Mapping:
    mapping = mapping_of({"conv #1": [1, 2], 7: [3]})
    change(mapping)
    return mapping


def call(mapping: pb.Mapping) -> pb.Instruction:
    return mapping.methods[0].instructions[0]


CALL = "methods[forward].instructions[0]"


@pytest.mark.parametrize(
    ("change", "where", "way_out"),
    [
        (lambda m: m.ClearField("format"), "format: 0", "version"),
        (lambda m: setattr(m, "format", 2), "format: 2", "only 1 is known"),
        (lambda m: m.ClearField("methods"), "methods: none", "at least one"),
        (lambda m: m.methods.add(), "methods[", "at least one character"),
        (lambda m: m.methods.add(name="forward"), "methods[forward]: given twice", "give it once"),
        (lambda m: m.methods[0].instructions.add(id=0), "methods[forward].instructions[0]: given twice", "give it once"),
        (lambda m: setattr(call(m), "id", 2**31), "methods[forward].instructions[2147483648]", "index"),
        (lambda m: call(m).ClearField("delegate"), f"{CALL}.entries: a map at a kernel call", "set `delegate`"),
        (lambda m: setattr(call(m), "delegate", "x" * 4097), f"{CALL}.delegate: a text of 4097", "at most 4096 bytes"),
        (lambda m: call(m).handles.append(0), f"{CALL}.handles: the handle 0", "count from 1"),
        (lambda m: call(m).entries.add(handles=[1]), f"{CALL}.entries[at 2]: no identifier", "set `number`"),
        (lambda m: call(m).entries.add(number=-1), f"{CALL}.entries[at 2]: the number -1", "unset"),
        (lambda m: call(m).entries.add(number=2**31), f"{CALL}.entries[at 2]: the number 2147483648", "int32"),
        (lambda m: call(m).entries.add(text=""), f"{CALL}.entries[at 2]: an empty string", "at least one"),
        (lambda m: call(m).entries.add(text="\u20ac" * 1366), f"{CALL}.entries[at 2]: a text of 1366", "at most 4096 bytes"),
        (lambda m: call(m).entries.add(text="conv #1"), f'{CALL}.entries["conv #1"]: an identifier that', "one entry"),
        (lambda m: call(m).entries.add(untyped="conv #1"), f'{CALL}.entries["conv #1"]: an identifier that', "one entry"),
        (lambda m: call(m).entries.add(number=7), f"{CALL}.entries[7]: an identifier that", "one entry"),
        (lambda m: call(m).entries.add(untyped="7"), f'{CALL}.entries["7"]: an identifier that', "one entry"),
        (lambda m: call(m).entries.add(number=8, handles=[0]), f"{CALL}.entries[8]: the handle 0", "count from 1"),
        (lambda m: call(m).entries.add(text='\x1b[31m"\x7f', handles=[0]), '.entries["\\u001b[31m\\"\\u007f"]', "count from 1"),
        (
            lambda m: call(m).operators.add(handle=9, operators=[pb.Operator(name="x")]),
            f"{CALL}.operators[9]: a handle",
            "only",
        ),
        (lambda m: call(m).operators.add(handle=1), f"{CALL}.operators[1]: no operator", "leave the handle out"),
        (
            lambda m: call(m).operators.add(handle=1, operators=[pb.Operator()]),
            f"{CALL}.operators[1].operators[0].name",
            "one char",
        ),
    ],
)
def test_refused(change: Callable[[pb.Mapping], Any], where: str, way_out: str) -> None:
    """A fault is told with its path, what was found and the way out; foreign text is escaped."""
    with pytest.raises(MalformedMapping) as caught:
        canonical(_spoil(change))
    assert where in str(caught.value)
    assert way_out in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("file", "where"),
    [
        (pb.MappingFile(build_id="b" * 129), "build_id: a text of 129"),
        (pb.MappingFile(build_id="a\nb"), 'build_id: "a\\nb"'),
        (pb.MappingFile(name="a@b"), 'name: "a@b"'),
        (pb.MappingFile(version="1"), "name: an empty string"),
        (pb.MappingFile(name="a", version="\x00"), "version"),
    ],
)
def test_refused_names(file: pb.MappingFile, where: str) -> None:
    """A build id and an alias are short and printable; an alias reads back from NAME@VERSION."""
    file.mapping.CopyFrom(mapping_of({"a": [1]}))
    with pytest.raises(MalformedMapping) as caught:
        canonical_file(file)
    assert where in str(caught.value)


@pytest.mark.parametrize(
    ("limit", "what"),
    [
        ("MAX_METHODS", "2 methods"),
        ("MAX_INSTRUCTIONS", "2 instructions"),
        ("MAX_ENTRIES", "2 entries"),
        ("MAX_HANDLES", "4 handles"),
        ("MAX_OPERATORS", "2 operators"),
        ("MAX_DOCUMENT_BYTES", " bytes"),
    ],
)
def test_counts_are_bounded(limit: str, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each count has a bound of its own, and one below it is taken."""
    mapping = mapping_of({"a": [1]})
    mapping.methods[0].instructions[0].operators.add(handle=1, operators=[pb.Operator(name="x")])
    mapping.methods.add().CopyFrom(mapping.methods[0])
    mapping.methods[1].name = "backward"
    assert canonical(mapping)
    monkeypatch.setattr(limits, limit, 1)
    with pytest.raises(MalformedMapping, match=what):
        canonical(mapping)


def _changed(change: Callable[[pb.Mapping], Any]) -> str | None:
    return first_difference(canonical(mapping_of({"conv #1": [1, 2], 7: [3]})), canonical(_spoil(change)))


def test_untyped_takes_both() -> None:
    """An untyped key leaves neither the integer nor the text to a later entry."""
    for later in ({"number": 8}, {"text": "8"}):
        mapping = _spoil(lambda m: call(m).entries.add(untyped="8"))
        call(mapping).entries.add(**later)
        with pytest.raises(MalformedMapping, match="an identifier that an earlier entry stands for"):
            canonical(mapping)


def test_difference() -> None:
    """Mappings resolve alike if methods, instructions, backends, handles and identifiers agree; operators only describe."""
    assert _changed(lambda m: call(m).operators.add(handle=1, operators=[pb.Operator(name="x")])) is None
    assert _changed(lambda m: call(m).entries[0].handles.append(3)) == f'{CALL}.entries["conv #1"]'
    assert _changed(lambda m: call(m).entries.add(number=8)) == f"{CALL}.entries[8]"
    assert _changed(lambda m: call(m).handles.append(9)) == CALL
    assert _changed(lambda m: setattr(call(m), "delegate", "Other")) == CALL
    assert _changed(lambda m: m.methods.add(name="other")) == "methods[other]"
    assert _changed(lambda m: m.methods[0].instructions.add(id=4)) == "methods[forward].instructions[4]"


def test_difference_sees_whole_identifiers() -> None:
    """Identifiers that agree in all that an error would show are still compared whole."""
    one, two = (canonical(mapping_of({"x" * 100 + end: [1]})) for end in "ab")
    assert first_difference(one, two) is not None


def test_untyped_is_both() -> None:
    """A key whose type is lost resolves like the integer and the text together, and not like one of them."""
    loose = mapping_of({})
    loose.methods[0].instructions[0].handles.append(5)
    loose.methods[0].instructions[0].entries.add(untyped="1", handles=[5])
    assert first_difference(canonical(loose), canonical(mapping_of({1: [5], "1": [5]}))) is None
    assert first_difference(canonical(loose), canonical(mapping_of({1: [5]}))) is not None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("{", "Failed to load JSON"),
        ('{"mapping": {"format": 1, "format": 1}}', "duplicate key"),
        ('{"mapping": {"format": 1, "shape": 2}}', 'no field named \\"shape\\"'),
        ('{"mapping": {"format": NaN}}', "format"),
        ('{"mapping": {"format": 1e400}}', "format"),
        ('{"mapping": {"format": ' + "9" * 5000 + "}}", "mapping document"),
        ('{"mapping": {"methods": "forward"}}', "methods"),
        ('{"mapping": ' * 200 + "}" * 200, "mapping document"),
        ("[" * 100_000, "mapping document"),
        ('{"build_id": "\\ud800"}', "mapping document"),
    ],
)
def test_refused_json(text: str, found: str) -> None:
    """JSON that is not exactly a file is refused with what is wrong, on one bounded line, and the way out."""
    with pytest.raises(MalformedMapping) as caught:
        from_json(text)
    assert found in str(caught.value)
    assert "mapping build" in str(caught.value)
    assert len(str(caught.value)) < 500
    assert str(caught.value).isprintable()
