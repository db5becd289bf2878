"""
Mappings from programs that are alive in an export script.

    edge = to_edge_transform_and_lower(..., generate_etrecord=True)
    program = edge.to_executorch()
    file = mapping_from_program(program, model="camera", version="1.0")

Invariants
* It is what `read_etrecord` and `merge` make of the saved ETRecord and `.pte`, but for the types of identifiers, which an
  ETRecord loses and this keeps. The rules are theirs; here only live objects are brought into the form that they read.
* A graph that `to_executorch` has rewritten is never taken for an edge graph: its debug handles are instruction ids.
* The weights are neither copied nor looked at, but for their hash.
"""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

from otel_bridge.aot.build_id import embed_build_id
from otel_bridge.aot.graphs import graph_of
from otel_bridge.aot.maps import read_live_maps
from otel_bridge.mapping.disclosure import disclose
from otel_bridge.mapping.document import canonical, canonical_file
from otel_bridge.mapping.etrecord import name_operators
from otel_bridge.mapping.faults import malformed, named, quoted
from otel_bridge.mapping.merge import merge
from otel_bridge.mapping.operators import Graph
from otel_bridge.mapping.pte import read_program
from otel_bridge.v1 import mapping_pb2 as pb

_EDGE = "edge_program_manager"


def mapping_from_program(
    executorch_program_manager: Any,
    edge_program_manager: Any = None,
    *,
    model: str,
    version: str,
    build_id: str | None = None,
    strip_prefix: str | Sequence[str] = (),
    with_source: bool = True,
    backend_config: Any = None,
) -> pb.MappingFile:
    """
    The mapping of a program, canonical, with its build id and alias. The build id is written into the program, too.

    executorch_program_manager   what `to_executorch` gave, an `ExecutorchProgramManager`
    edge_program_manager         a copy of the `EdgeProgramManager`, made before `to_executorch`, which rewrites its graphs.
                                 Not needed where the program has an ETRecord (`generate_etrecord=True`): it holds such a copy.
                                 With neither, operators inside delegates are known, and kernels have their names only
    model, version               alias of the build, as devices may send it; "" for none
    build_id, backend_config     see `embed_build_id`
    strip_prefix, with_source    see `otel_bridge.mapping.disclosure`: folders to take off source paths; False: no source lines

    Raises `MalformedMapping`: the maps of a backend cannot be resolved with, or the managers are not of one export.
    """
    graphs = _graphs(executorch_program_manager, edge_program_manager)
    mapping = read_live_maps(executorch_program_manager.debug_handle_map, executorch_program_manager.delegate_map)
    name_operators(mapping, graphs.get)
    with _written(executorch_program_manager) as pte:
        whole = merge(canonical(mapping), read_program(pte))
    prefixes = [strip_prefix] if isinstance(strip_prefix, str) else strip_prefix
    told = disclose(whole, strip_prefix=prefixes, with_source=with_source)
    file = canonical_file(pb.MappingFile(mapping=told, name=model, version=version))
    # Last, so that a program whose mapping is refused stays as it was.
    file.build_id = embed_build_id(executorch_program_manager, build_id, backend_config=backend_config)
    return file


def _graphs(program: Any, edge: Any) -> Mapping[str, Graph]:
    """Each method's edge graph, from the edge programs given, else from the ETRecord; else its calls of delegates alone."""
    programs = _edge_programs(program, edge)
    if programs is not None:
        return {name: graph_of(each, f"{_EDGE}[{named(name)}]") for name, each in programs.items()}
    return {name: graph_of(program.exported_program(name), named(name), calls_only=True) for name in program.methods}


def _edge_programs(program: Any, edge: Any) -> Mapping[str, Any] | None:
    if edge is not None:
        if edge.methods != program.methods:
            found = f"the methods {_names(edge.methods)}, and the program has {_names(program.methods)}"
            raise malformed(_EDGE, found, "give that which `to_executorch` was called on")
        given = {name: edge.exported_program(name) for name in edge.methods}
        if not any(each.graph_module is program.exported_program(name).graph_module for name, each in given.items()):
            return given
    recorded = _recorded(program)
    if edge is not None and recorded is None:
        way_out = "give copy.deepcopy() of it from before, or generate_etrecord=True when lowering, or leave it out"
        raise malformed(_EDGE, "graphs that `to_executorch` has rewritten", way_out)
    return recorded


def _recorded(program: Any) -> Mapping[str, Any] | None:
    """The edge programs that the ETRecord keeps, None: there is none."""
    try:
        programs = program.get_etrecord().edge_dialect_program
    except (AttributeError, RuntimeError):  # made without, or by an ExecuTorch that makes none
        return None
    return programs if programs is None or isinstance(programs, Mapping) else {"forward": programs}


def _names(methods: set[str]) -> str:
    return ", ".join(quoted(name) for name in sorted(methods)[:5]) or "none"


@contextmanager
def _written(program: Any) -> Iterator[BinaryIO]:
    """The `.pte` in a file without a name, so that it is mapped into memory and not held there."""
    with tempfile.TemporaryFile() as file:
        program.write_to_file(file)
        file.flush()
        yield cast("BinaryIO", file)
