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

from otel_bridge.mapping.faults import malformed, named, quoted, shown
from otel_bridge.mapping.formats import MAX_FORMATS, canonical_format
from otel_bridge.mapping.identity import identifiers_of, is_number, key_of, number_in
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
    if len(mapping.metadata) > MAX_FORMATS:
        raise malformed("metadata", f"{len(mapping.metadata)} formats", f"at most {MAX_FORMATS} are taken")
    for declaration in _each_once(mapping.metadata, lambda each: each.delegate, "metadata"):
        result.metadata.append(canonical_format(declaration, f"metadata[{named(declaration.delegate)}]"))
    result.DiscardUnknownFields()  # those of operators, which are taken as they are
    return result


def canonical_file(file: pb.MappingFile) -> pb.MappingFile:
    """The file with its mapping canonical, its build id and alias checked; what is unset stays unset."""
    check_label(file.build_id, "build_id", required=False)
    check_alias(file.name, file.version, required=bool(file.version))
    return pb.MappingFile(mapping=canonical(file.mapping), build_id=file.build_id, name=file.name, version=file.version)


def encode(mapping: pb.Mapping) -> bytes:
    """The canonical bytes of a mapping: the ones that are hashed and kept."""
    return serialise(canonical(mapping))


def serialise(document: pb.Mapping) -> bytes:
    """The bytes of a mapping that is canonical already."""
    data = document.SerializeToString(deterministic=True)
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


def first_difference(a: pb.Mapping, b: pb.Mapping) -> str | None:
    """
    The path at which two canonical mappings resolve differently; None: nowhere.

    Compared is (method, instruction, identifier) -> handles, and each instruction's backend, own handles and nodes with it:
    they are what a delegate call stands for, and its events, where its map is empty.
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
    _read_entries(source.entries, result, where)
    known = set(result.handles)
    result.kernel = _checked_kernel(source, where)
    result.nodes.extend(_checked_nodes(source, known, where))
    for item in _each_once(source.operators, lambda item: item.handle, f"{where}.operators"):
        place = f"{where}.operators[{item.handle}]"
        if item.handle not in known:
            raise malformed(place, "a handle that is not the instruction's", "operators are given for `handles` only")
        _check_operators(item, place)
        result.operators.append(item)
    return result


def _checked_kernel(source: pb.Instruction, where: str) -> str:
    check_text(source.kernel, f"{where}.kernel", required=False)
    if source.kernel and source.delegate:
        raise malformed(f"{where}.kernel", "a kernel at a delegate call", "an instruction is one of both: leave one out")
    return source.kernel


def _checked_nodes(source: pb.Instruction, known: set[int], where: str) -> Iterator[pb.DelegateNode]:
    if source.nodes and not source.delegate:
        raise malformed(f"{where}.nodes", "nodes at a kernel call", "only a delegate has nodes: set `delegate`")
    for index, node in enumerate(source.nodes):
        place = f"{where}.nodes[{index}]"
        check_text(node.kind, place, required=True)
        if node.handle and node.handle not in known:
            raise malformed(
                place, f"handle {node.handle}, which is not the instruction's", "nodes are given for `handles` only"
            )
        yield pb.DelegateNode(kind=node.kind, handle=node.handle)


def _read_entries(source: Iterable[pb.MapEntry], target: pb.Instruction, where: str) -> None:
    checked: dict[tuple[str, Identifier], pb.MapEntry] = {}
    seen: set[Identifier] = set()
    for index, entry in enumerate(source):
        kind, key = _checked_key(entry, f"{where}.entries[at {index}]")
        place = f"{where}.entries[{shown(key)}]"
        identifiers = identifiers_of(kind, key)
        if not seen.isdisjoint(identifiers):
            raise malformed(place, "an identifier that an earlier entry stands for", "give each identifier one entry")
        seen.update(identifiers)
        checked[kind, key] = pb.MapEntry(handles=_handles(entry.handles, place), weights=_weights(entry, place))
        setattr(checked[kind, key], kind, key)
    target.entries.extend(checked[each] for each in sorted(checked, key=_rank))


def _checked_key(entry: pb.MapEntry, where: str) -> tuple[str, Identifier]:
    """Kind and value of an entry's identifier. An untyped one that no integer matches is text."""
    kind, key = key_of(entry)
    if not kind:
        raise malformed(where, "no identifier", "set `number`, `text` or `untyped`")
    if isinstance(key, str):
        check_text(key, where, required=True)
        return ("text" if number_in(key) is None else kind), key
    if not is_number(key):
        raise malformed(where, f"the number {key}", "an int identifier is an int32, and not -1, which means unset")
    return kind, key


def _rank(kind_and_key: tuple[str, Identifier]) -> tuple[int, int, str]:
    """Numbers ascending, then texts, then untyped keys by their number."""
    kind, key = kind_and_key
    if isinstance(key, int):
        return 0, key, ""
    return (1, 0, key) if kind == "text" else (2, int(key), "")


def _check_operators(item: pb.HandleOperators, where: str) -> None:
    if not item.operators:
        raise malformed(where, "no operator", "leave the handle out")
    for index, operator in enumerate(item.operators):
        place = f"{where}.operators[{index}]"
        check_text(operator.name, f"{place}.name", required=True)
        check_text(operator.node, f"{place}.node", required=False)
        check_text(operator.file, f"{place}.file", required=False)
        check_text(operator.module_path, f"{place}.module_path", required=False)
        check_text(operator.module_type, f"{place}.module_type", required=False)


def _handles(source: Iterable[int], where: str) -> list[int]:
    handles = sorted(set(source))
    if handles and handles[0] == 0:
        raise malformed(where, "the handle 0, which means unset", "debug handles count from 1: leave it out")
    return handles


def _weights(entry: pb.MapEntry, where: str) -> list[int]:
    """The weights in the order of the canonical handles."""
    if not entry.weights:
        return []
    weight_of = dict(zip(entry.handles, entry.weights, strict=False))
    if len(entry.weights) != len(entry.handles) or len(weight_of) != len(entry.handles):
        found = f"{len(entry.weights)} weights for {len(set(entry.handles))} handles"
        raise malformed(f"{where}.weights", found, "give each handle once, with one weight, or leave all weights out")
    if not any(entry.weights):
        raise malformed(f"{where}.weights", "nothing but 0", "leave all weights out for equal shares")
    return [weight_of[handle] for handle in sorted(weight_of)]


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
            nodes = tuple((node.kind, node.handle) for node in instruction.nodes)
            relation[method.name, instruction.id, None] = instruction.delegate, tuple(instruction.handles), nodes
            for entry in instruction.entries:
                for identifier in identifiers_of(*key_of(entry)):
                    relation[method.name, instruction.id, identifier] = tuple(entry.handles)
    return relation


def _path(place: _Place) -> str:
    method, instruction, identifier = place
    path = f"methods[{named(method)}]"
    if instruction is not None:
        path += f".instructions[{instruction}]"
    if identifier is not None:
        path += f".entries[{shown(identifier)}]"
    return path
