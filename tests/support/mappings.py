"""Mappings for tests: the captures, small ones by hand, arbitrary ones by Hypothesis, and ETRecords of any content."""

import io
import json
import zipfile
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from otel_bridge.mapping.identity import number_in
from otel_bridge.v1 import mapping_pb2 as pb

FIXTURES = Path(__file__).parents[1] / "fixtures"
CAPTURES = sorted(path.parent.name for path in FIXTURES.glob("*/model.etrecord"))
"""Names of the fixtures, each with a `model.etrecord` and a `maps.json`."""


def capture(name: str, file: str = "model.etrecord") -> bytes:
    """The bytes of a fixture's file."""
    return (FIXTURES / name / file).read_bytes()


def mapping_of(entries: dict[int | str, list[int]], *, method: str = "forward", backend: str = "Toy") -> pb.Mapping:
    """One method with one delegate call at instruction 0, whose handles are those of its entries."""
    call = pb.Instruction(
        id=0, delegate=backend, handles=sorted({handle for handles in entries.values() for handle in handles})
    )
    for key, handles in entries.items():
        identifier: dict[str, Any] = {"number": key} if isinstance(key, int) else {"text": key}
        call.entries.add(handles=handles, **identifier)
    return pb.Mapping(format=1, methods=[pb.Method(name=method, instructions=[call])])


def etrecord_of(members: dict[str, Any], *, compression: int = zipfile.ZIP_STORED) -> bytes:
    """A zip; what is not bytes is written as JSON."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content if isinstance(content, bytes) else json.dumps(content))
    return buffer.getvalue()


def node_of(name: str, target: str, handle: object = None, **metadata: str) -> dict[str, Any]:
    """A node of an edge graph's JSON."""
    told = {} if handle is None else {"debug_handle": str(handle)}
    return {"name": name, "target": f"executorch.exir.dialects.edge.ops.{target}", "inputs": [], "metadata": told | metadata}


def call_of(backend: str, nodes: list[dict[str, Any]], handle: int = 1) -> dict[str, Any]:
    """A node that calls a delegate whose lowered module has these nodes."""
    module = json.dumps({"backend_id": backend, "original_module": program_of(nodes)})
    return {
        "name": "executorch_call_delegate",
        "target": "torch.ops.higher_order.executorch_call_delegate",
        "inputs": [{"name": "lowered_module_0", "arg": {"as_string": module}}],
        "metadata": {"debug_handle": str(handle)},
    }


def program_of(nodes: list[dict[str, Any]]) -> dict[str, Any]:
    """An exported program's JSON, as far as it is read."""
    return {"graph_module": {"graph": {"nodes": nodes}}}


def relation_of(mapping: pb.Mapping) -> set[tuple[str, int, str, int | str, tuple[int, ...]]]:
    """(method, instruction, kind of identifier, identifier, handles) of each entry."""
    return {
        (method.name, instruction.id, kind, getattr(entry, kind), tuple(entry.handles))
        for method in mapping.methods
        for instruction in method.instructions
        for entry in instruction.entries
        for kind in [entry.WhichOneof("identifier")]
    }


texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
numbers = st.integers(-(2**31), 2**31 - 1).filter(lambda number: number != -1)
handle_lists = st.lists(st.integers(1, 2**32 - 1) | st.integers(1, 9), max_size=6)
labels = st.text(st.characters(categories=["L", "N", "P", "S"], exclude_characters="@"), min_size=1, max_size=20)


@st.composite
def entry_lists(draw: st.DrawFn) -> list[pb.MapEntry]:
    """Entries in any order, handles in any order and repeated; no identifier twice."""
    keys = draw(st.dictionaries(numbers | st.integers(-9, 9).filter(lambda n: n != -1) | texts, handle_lists, max_size=6))
    entries = []
    for key, handles in keys.items():
        twin = number_in(key) if isinstance(key, str) else str(key)
        kind = "number" if isinstance(key, int) else "text"
        if isinstance(key, str) and twin not in keys and draw(st.booleans()):
            kind = "untyped"
        entries.append(pb.MapEntry(handles=handles, **{kind: key}))
    return entries


@st.composite
def instructions(draw: st.DrawFn, number: int) -> pb.Instruction:
    """A delegate call with a map, or a kernel call, with operators for some of its handles."""
    handles = draw(handle_lists)
    delegate = draw(st.just("") | texts)
    instruction = pb.Instruction(id=number, delegate=delegate, handles=handles, entries=draw(entry_lists()) if delegate else [])
    operator = st.builds(
        pb.Operator, name=texts, node=texts | st.just(""), file=texts | st.just(""), line=st.integers(0, 2**32 - 1)
    )
    for handle in draw(st.lists(st.sampled_from(handles), unique=True)) if handles else []:
        instruction.operators.add(handle=handle, operators=draw(st.lists(operator, min_size=1, max_size=3)))
    return instruction


@st.composite
def mappings(draw: st.DrawFn) -> pb.Mapping:
    """Any mapping that `canonical` takes, in any order."""
    mapping = pb.Mapping(format=1)
    for name in draw(st.lists(texts, min_size=1, max_size=3, unique=True)):
        numbers = draw(st.lists(st.integers(0, 2**31 - 1) | st.integers(0, 5), max_size=4, unique=True))
        mapping.methods.add(name=name, instructions=[draw(instructions(number)) for number in numbers])
    return mapping


def files() -> st.SearchStrategy[pb.MappingFile]:
    """Any file that `canonical_file` takes."""
    alias = st.just({}) | st.fixed_dictionaries({"name": labels}, optional={"version": labels})
    build = st.just("") | labels
    return st.builds(
        lambda mapping, build_id, names: pb.MappingFile(mapping=mapping, build_id=build_id, **names), mappings(), build, alias
    )
