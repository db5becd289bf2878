"""
The document: one mapping, canonical and immutable, named by the SHA-256 of its bytes.

Invariants
* `canonical` is idempotent and does not depend on the order of its input: equal content has equal bytes and one digest.
* Nothing in a document names a build.
* What has two meanings (an identifier, an instruction, a method or a handle given twice) is refused, never merged.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from google.protobuf import json_format

from otel_bridge.mapping.faults import malformed, named, quoted
from otel_bridge.mapping.identity import identifiers_of, is_number, number_in
from otel_bridge.mapping.limits import MAX_INSTRUCTION_ID, check_alias, check_counts, check_label, check_size, check_text
from otel_bridge.model.events import Identifier
from otel_bridge.v1 import mapping_pb2 as pb

FORMAT = 1
"""The version of the format that this bridge reads and writes."""

_Item = TypeVar("_Item")
_Place = tuple[str, int | None, Identifier | None]
_NUMBERS_ON_LINES = re.compile(r"\[\n\s*(\d+(?:,\n\s*\d+)*)\n\s*\]")


def canonical(mapping: pb.Mapping) -> pb.Mapping:
    """
    The mapping with everything in its place: ascending, each thing once, unknown fields gone.

    Raises `MalformedMapping` with the path of the fault, such as `methods[forward].instructions[3].entries["conv #1"]`.
    """
    if mapping.format != FORMAT:
        raise malformed("format", f"{mapping.format}", f"only {FORMAT} is known: build the mapping with this bridge's version")
    if not mapping.methods:
        raise malformed("methods", "none", "a mapping needs at least one method")
    check_counts(mapping)
    result = pb.Mapping(format=FORMAT)
    for method in _each_once(mapping.methods, lambda method: method.name, "methods"):
        where = f"methods[{named(method.name)}]"
        check_text(method.name, where, required=True)
        target = result.methods.add(name=method.name)
        for instruction in _each_once(method.instructions, lambda each: each.id, f"{where}.instructions"):
            target.instructions.append(_instruction(instruction, f"{where}.instructions[{instruction.id}]"))
    return result


def canonical_file(file: pb.MappingFile) -> pb.MappingFile:
    """The file with its mapping canonical, its build id and alias checked; what is unset stays unset."""
    check_label(file.build_id, "build_id", required=False)
    check_alias(file.name, file.version, required=bool(file.version))
    return pb.MappingFile(mapping=canonical(file.mapping), build_id=file.build_id, name=file.name, version=file.version)


def encode(mapping: pb.Mapping) -> bytes:
    """The canonical bytes of a mapping: the ones that are hashed and kept."""
    data = canonical(mapping).SerializeToString(deterministic=True)
    check_size(len(data))
    return data


def digest(data: bytes) -> str:
    """SHA-256 of canonical bytes: 64 hex digits."""
    return hashlib.sha256(data).hexdigest()


def default_build_id(digest: str) -> str:
    """The build id of a file that names none."""
    return f"sha256:{digest[:16]}"


def to_json(file: pb.MappingFile) -> str:
    """The canonical file as protobuf JSON, indented, lists of numbers on one line, with a newline at the end."""
    value = json_format.MessageToDict(canonical_file(file), preserving_proto_field_name=True)
    for method in value["mapping"]["methods"]:  # protobuf leaves out what is 0, and readers miss the instruction's id
        method["instructions"] = [{"id": 0} | instruction for instruction in method.get("instructions", [])]
    text = json.dumps(value, indent=1, ensure_ascii=False)
    # No string holds a raw newline, so the pattern cannot match inside one.
    return _NUMBERS_ON_LINES.sub(lambda match: f"[{', '.join(re.findall(r'[0-9]+', match[1]))}]", text) + "\n"


def from_json(text: str) -> pb.MappingFile:
    """The canonical file that a protobuf JSON text holds; duplicate keys and unknown fields are refused."""
    try:
        return canonical_file(json_format.Parse(text, pb.MappingFile()))
    except (json_format.ParseError, RecursionError, UnicodeEncodeError) as error:
        found = quoted(str(error), limit=240)
        raise malformed("mapping document", found, "give what `otel-bridge mapping build -o FILE.json` writes") from error


def same_resolution(a: pb.Mapping, b: pb.Mapping) -> bool:
    """Whether two canonical mappings resolve every identifier alike. Operators may differ: they only describe."""
    return first_difference(a, b) is None


def first_difference(a: pb.Mapping, b: pb.Mapping) -> str | None:
    """
    The path at which two canonical mappings resolve differently; None: nowhere.

    Compared is (method, instruction, identifier) -> handles, and each instruction's backend and own handles with it: they
    are what a delegate call stands for where its map is empty.
    """
    left, right = _relation(a), _relation(b)
    both = (*left, *right)
    return next((_path(at) for at in both if at not in left or at not in right or left[at] != right[at]), None)


def _instruction(source: pb.Instruction, where: str) -> pb.Instruction:
    if source.id > MAX_INSTRUCTION_ID:
        raise malformed(where, f"an id beyond {MAX_INSTRUCTION_ID}", "an instruction id is an index in the method's chain")
    check_text(source.delegate, f"{where}.delegate", required=False)
    if source.entries and not source.delegate:
        raise malformed(f"{where}.entries", "a map at a kernel call", "only a delegate has one: set `delegate`")
    result = pb.Instruction(id=source.id, delegate=source.delegate, handles=_handles(source.handles, f"{where}.handles"))
    result.entries.extend(_entries(source.entries, where))
    known = set(result.handles)
    for item in _each_once(source.operators, lambda item: item.handle, f"{where}.operators"):
        place = f"{where}.operators[{item.handle}]"
        if item.handle not in known:
            raise malformed(place, "a handle that is not the instruction's", "operators are given for `handles` only")
        result.operators.append(_operators(item, place))
    return result


def _entries(source: Iterable[pb.MapEntry], where: str) -> list[pb.MapEntry]:
    entries = []
    seen: set[Identifier] = set()
    for index, given in enumerate(source):
        entry = _identified(given, f"{where}.entries[at {index}]")
        place = f"{where}.entries[{_key(entry)}]"
        identifiers = identifiers_of(entry)
        if not seen.isdisjoint(identifiers):
            raise malformed(place, "an identifier that an earlier entry stands for", "give each identifier one entry")
        seen.update(identifiers)
        entry.handles.extend(_handles(given.handles, place))
        entries.append(entry)
    return sorted(entries, key=_rank)


def _identified(given: pb.MapEntry, where: str) -> pb.MapEntry:
    """An entry with the identifier alone. An untyped one that no integer matches is text."""
    kind = given.WhichOneof("identifier")
    if kind is None:
        raise malformed(where, "no identifier", "set `number`, `text` or `untyped`")
    if kind == "number":
        if not is_number(given.number):
            raise malformed(where, f"the number {given.number}", "an int identifier is an int32, and not -1, which means unset")
        return pb.MapEntry(number=given.number)
    text = given.text if kind == "text" else given.untyped
    check_text(text, where, required=True)
    return pb.MapEntry(untyped=text) if kind == "untyped" and number_in(text) is not None else pb.MapEntry(text=text)


def _rank(entry: pb.MapEntry) -> tuple[int, int, str]:
    """Numbers ascending, then texts, then untyped keys by their number."""
    if entry.HasField("number"):
        return 0, entry.number, ""
    return (1, 0, entry.text) if entry.HasField("text") else (2, int(entry.untyped), "")


def _key(entry: pb.MapEntry) -> str:
    return str(entry.number) if entry.HasField("number") else quoted(entry.text or entry.untyped)


def _operators(source: pb.HandleOperators, where: str) -> pb.HandleOperators:
    if not source.operators:
        raise malformed(where, "no operator", "leave the handle out")
    result = pb.HandleOperators(handle=source.handle)
    for index, given in enumerate(source.operators):
        fields = {key: getattr(given, key) for key in ("name", "node", "file", "module_path", "module_type")}
        for key, text in fields.items():
            check_text(text, f"{where}.operators[{index}].{key}", required=key == "name")
        result.operators.add(line=given.line, **fields)
    return result


def _handles(source: Iterable[int], where: str) -> list[int]:
    handles = sorted(set(source))
    if handles and handles[0] == 0:
        raise malformed(where, "the handle 0, which means unset", "debug handles count from 1: leave it out")
    return handles


def _each_once(items: Iterable[_Item], key: Callable[[_Item], int | str], where: str) -> Iterator[_Item]:
    """`items` ascending by key; one that comes twice is refused."""
    last: int | str | None = None
    for item in sorted(items, key=key):
        if key(item) == last:
            raise malformed(f"{where}[{named(str(last))}]", "given twice", "give it once, with everything that belongs to it")
        last = key(item)
        yield item


def _relation(mapping: pb.Mapping) -> dict[_Place, object]:
    """What resolution depends on; an untyped entry counts as the identifiers it stands for."""
    relation: dict[_Place, object] = {}
    for method in mapping.methods:
        relation[method.name, None, None] = None
        for instruction in method.instructions:
            relation[method.name, instruction.id, None] = instruction.delegate, tuple(instruction.handles)
            for entry in instruction.entries:
                for identifier in identifiers_of(entry):
                    relation[method.name, instruction.id, identifier] = tuple(entry.handles)
    return relation


def _path(place: _Place) -> str:
    method, instruction, identifier = place
    path = f"methods[{named(method)}]"
    if instruction is not None:
        path += f".instructions[{instruction}]"
    if identifier is not None:
        path += f".entries[{quoted(identifier) if isinstance(identifier, str) else identifier}]"
    return path
