"""
ETRecords (devtools/etrecord/_etrecord.py): a zip of JSON members, read without torch.

Invariants
* Only the maps and the methods' edge graphs are read. Weights, inputs and members of later versions are never touched.
* An instruction's operators come from the graph its handles were counted in: that of the lowered module it calls, else the
  method's. Where it cannot be told with certainty which, an operator is named only if all candidates agree.
* What is read is bounded before it is read: the directory of the zip, each member, all members.
"""

import io
import zipfile
import zlib
from collections.abc import Callable, Iterable
from typing import BinaryIO

from otel_bridge.mapping.document import canonical
from otel_bridge.mapping.faults import malformed, quoted
from otel_bridge.mapping.json_input import load_quickly, load_strictly
from otel_bridge.mapping.limits import MAX_OPERATORS
from otel_bridge.mapping.maps_json import mapping_of
from otel_bridge.mapping.operators import Call, Graph, Scope, read_graph
from otel_bridge.v1 import mapping_pb2 as pb

MAX_DIRECTORY_BYTES = 1 << 20
"""Of the zip's directory: some 20,000 members. An ETRecord has 5 and 4 a method."""
MAX_MEMBER_BYTES = 256 << 20
"""Of one member that is read. Graphs of large models have some MB; modules lowered before export carry their payload."""
MAX_READ_BYTES = 512 << 20
"""Of all members that are read."""

_MAX_PAIRS = 1 << 20
"""Of calls and instructions that are compared each with each."""
_PIECE_BYTES = 1 << 20
_GRAPH = "edge_dialect_exported_program"
_REMAKE = "make it anew with ETRecord.save(), or give the maps as JSON"


def read_etrecord(source: bytes | BinaryIO) -> pb.Mapping:
    """
    The canonical mapping of an ETRecord, given as bytes or as an open, seekable file. Raises `MalformedMapping`.

    Other than the maps JSON it has operators: see `operators`.
    """
    archive = _Archive(io.BytesIO(source) if isinstance(source, bytes) else source)
    handles, delegates = archive.read("debug_handle_map"), archive.read("delegate_map")
    mapping = mapping_of(
        None if handles is None else load_strictly(handles, "debug_handle_map"),
        None if delegates is None else load_strictly(delegates, "delegate_map"),
    )
    alone = len(mapping.methods) == 1
    name_operators(mapping, lambda method: _graph(archive, method, alone=alone))
    return canonical(mapping)


def name_operators(mapping: pb.Mapping, graph_of: Callable[[str], Graph | None]) -> None:
    """Names the operators of all handles that can be told; `graph_of` gives a method's graph by its name, None: not known."""
    named = 0
    for method in mapping.methods:
        graph = graph_of(method.name)
        if graph is not None:
            named = _name_operators(method.instructions, graph, named)


def tie(instructions: Iterable[pb.Instruction], graph: Graph) -> dict[int, list[Scope | None]]:
    """
    For each instruction id the scopes that its handles may have been counted in; None stands for one that cannot be read.

    The emitter walks the graph in order, so where there are as many calls as delegate instructions and each call fits its
    instruction, the n-th call is the n-th instruction. Else the graph was recorded at another stage than the maps (further
    parts were lowered later): any call that fits, or the method's graph, may be meant. Calls that fit nothing say nothing.
    """
    delegates = sorted((each for each in instructions if each.delegate), key=lambda each: each.id)
    scopes: dict[int, list[Scope | None]] = {each.id: [graph.scope] for each in instructions}
    if len(graph.calls) == len(delegates) and all(map(_fits, graph.calls, delegates)):
        return scopes | {each.id: [call.scope] for call, each in zip(graph.calls, delegates, strict=True)}
    if len(graph.calls) * len(delegates) > _MAX_PAIRS:
        found = f"{len(graph.calls)} calls of delegates in the graph, {len(delegates)} in the maps"
        raise malformed("ETRecord", found, "give the maps as JSON, without the graphs")
    for each in delegates:
        scopes[each.id] += [call.scope for call in graph.calls if _fits(call, each)]
    return scopes


def _fits(call: Call, instruction: pb.Instruction) -> bool:
    """Whether the instruction may be this call. The maps may hold more handles: nodes of tuple items are not written."""
    return call.backend in ("", instruction.delegate) and (call.scope or {}).keys() <= set(instruction.handles)


def _name_operators(instructions: Iterable[pb.Instruction], graph: Graph, named: int) -> int:
    scopes = tie(instructions, graph)
    for instruction in instructions:
        for handle in sorted(set(instruction.handles)):
            operators = _agreed(scopes[instruction.id], handle)
            named += len(operators)
            if named > MAX_OPERATORS:
                raise malformed("operators", f"more than {MAX_OPERATORS}", "give the maps as JSON, without the graphs")
            if operators:
                instruction.operators.add(handle=handle, operators=operators)
    return named


def _agreed(scopes: list[Scope | None], handle: int) -> list[pb.Operator]:
    found = [None if scope is None else scope.get(handle) for scope in scopes]
    first = found[0]
    return first if first is not None and all(each == first for each in found) else []


def _graph(archive: "_Archive", method: str, *, alone: bool) -> Graph | None:
    """The method's graph; older ETRecords hold a single one under the bare name."""
    names = [f"{_GRAPH}/{method}", _GRAPH] if alone else [f"{_GRAPH}/{method}"]
    for name in names:
        data = archive.read(name)
        if data is not None:
            return read_graph(load_quickly(data, name), name)
    return None


class _Archive:
    """The members of a zip, each read at most once, within the limits."""

    def __init__(self, file: BinaryIO) -> None:
        try:
            self._zip = zipfile.ZipFile(_InPieces(file))
        except (zipfile.BadZipFile, NotImplementedError, ValueError, OverflowError, OSError) as error:
            raise malformed(
                "ETRecord", f"no whole zip: {quoted(str(error))}", "is the file complete, and an ETRecord?"
            ) from error
        self._left_bytes = MAX_READ_BYTES
        self._members: dict[str, list[zipfile.ZipInfo]] = {}
        for member in self._zip.infolist():
            self._members.setdefault(member.filename, []).append(member)

    def read(self, name: str) -> bytes | None:
        """The content of a member; None: there is none of that name."""
        members = self._members.get(name, [])
        if not members:
            return None
        if len(members) > 1:
            raise malformed(name, f"{len(members)} members of that name", _REMAKE)
        if members[0].compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise malformed(name, f"compression of kind {members[0].compress_type}", _REMAKE)
        limit = min(MAX_MEMBER_BYTES, self._left_bytes)
        pieces, size = [], 0
        try:
            with self._zip.open(members[0]) as member:
                while piece := member.read(_PIECE_BYTES):
                    pieces.append(piece)
                    size += len(piece)
                    if size > limit:
                        raise malformed(name, f"more than {limit} bytes", "give the maps as JSON, without the graphs")
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError, OSError) as error:
            found = f"a member that cannot be read: {quoted(str(error))}"
            raise malformed(name, found, f"is it encrypted or damaged? {_REMAKE}") from error
        self._left_bytes -= size
        return b"".join(pieces)


class _InPieces:
    """A file that gives at most so much at a time: `ZipFile` would read a directory of any size in one piece."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, size: int = -1) -> bytes:
        if size > MAX_DIRECTORY_BYTES:
            raise malformed(
                "ETRecord", f"a directory of {size} bytes", f"at most {MAX_DIRECTORY_BYTES} are read: is it an ETRecord?"
            )
        return self._file.read(size if size >= 0 else MAX_DIRECTORY_BYTES)
