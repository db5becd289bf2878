import io
import json
import re
import zipfile
from typing import Any

import pytest
from support.etrecords import ADD, GRAPH, MAPS, MUL, SUB, record_of
from support.mappings import CAPTURES, call_of, capture, etrecord_of, node_of, program_of, relation_of

from otel_bridge.mapping.document import first_difference
from otel_bridge.mapping.etrecord import read_etrecord
from otel_bridge.mapping.maps_json import read_maps
from otel_bridge.v1 import mapping_pb2 as pb


def operators_of(mapping: pb.Mapping, method: str = "forward") -> dict[int, dict[int, list[str]]]:
    """Instruction id -> handle -> names of its operators."""
    (found,) = [each for each in mapping.methods if each.name == method]
    return {
        instruction.id: {item.handle: [operator.name for operator in item.operators] for item in instruction.operators}
        for instruction in found.instructions
    }


def all_operators(mapping: pb.Mapping) -> list[pb.Operator]:
    return [o for m in mapping.methods for i in m.instructions for item in i.operators for o in item.operators]


@pytest.mark.parametrize("name", CAPTURES)
def test_same_as_maps(name: str) -> None:
    """An ETRecord and the maps JSON of one program resolve every identifier to the same handles."""
    record, maps = read_etrecord(capture(name)), read_maps(capture(name, "maps.json"))
    assert relation_of(record) == relation_of(maps)
    assert first_difference(record, maps) is None


@pytest.mark.parametrize("name", CAPTURES)
def test_maps_are_whole(name: str) -> None:
    """Every method, instruction, identifier and handle of ExecuTorch's maps is in the mapping, read here in another way."""
    source = json.loads(capture(name, "maps.json"))
    mapping = read_etrecord(capture(name))
    assert {
        (method.name, str(instruction.id), entry.text or entry.untyped, tuple(entry.handles))
        for method in mapping.methods
        for instruction in method.instructions
        for entry in instruction.entries
    } == {
        (method, number, key, tuple(sorted(handles)))
        for method, calls in source["delegate_map"].items()
        for number, call in calls.items()
        for key, handles in (call["delegate_map"] or {}).items()
    }
    assert {
        (method.name, str(instruction.id), bool(instruction.delegate), tuple(instruction.handles))
        for method in mapping.methods
        for instruction in method.instructions
    } == {
        (method, number, isinstance(handles, list), tuple(sorted(set(handles if isinstance(handles, list) else [handles]))))
        for method, calls in source["debug_handle_map"].items()
        for number, handles in calls.items()
    }


@pytest.mark.parametrize("name", CAPTURES)
def test_every_handle_is_named(name: str) -> None:
    """Each handle of each instruction has its operators, and no operator is the call of a delegate."""
    mapping = read_etrecord(capture(name))
    for method in mapping.methods:
        for instruction in method.instructions:
            assert [item.handle for item in instruction.operators] == list(instruction.handles)
    operators = all_operators(mapping)
    assert operators
    assert all(operator.name.split(".")[0] in ("aten", "dim_order_ops") and operator.node for operator in operators)


def test_operators_inside_a_delegate() -> None:
    """Handles of a module that was lowered before export are those of its own graph: never of the call that has handle 1."""
    mapping = read_etrecord(capture("toy_delegate_int"))
    assert operators_of(mapping) == {
        0: {
            1: ["aten.convolution.default"],
            2: ["aten.relu.default"],
            3: ["aten.convolution.default"],
            4: ["aten.relu.default"],
            5: ["aten.tan.default"],
        }
    }
    first = all_operators(mapping)[0]
    assert (first.module_path, first.module_type) == ("conv_layer.conv1", "torch.nn.modules.conv.Conv2d")
    assert (first.node, first.file, first.line) == ("aten_convolution_default", "site-packages/torch/nn/modules/conv.py", 565)


def test_methods_are_apart() -> None:
    """Each method has its own graph, though handles of both count from 1."""
    mapping = read_etrecord(capture("multi_method"))
    assert [method.name for method in mapping.methods] == ["decode", "encode"]
    assert operators_of(mapping, "decode")[1] == {3: ["aten.cumsum.default"]}
    assert operators_of(mapping, "encode")[0] == {1: ["aten.linear.default"], 2: ["aten.relu.default"]}


def lines_in(graph: str) -> dict[str, tuple[str, int]]:
    """Node -> (file, line) of the operators that stand in a graph.txt, where the line is the model's own."""
    found, last = {}, None
    for line in graph.splitlines():
        if line.strip().startswith("#"):
            last = re.match(r"\s*# File: (.+):(\d+) in", line)
        elif (
            last and not last[1].startswith("site-packages") and (node := re.match(r"\s*(\w+)(: .*)? = torch\.ops\.aten", line))
        ):
            found[node[1]] = last[1], int(last[2])
    return found


@pytest.mark.parametrize("name", ["mixed_ops", "portable_only", "two_backends", "multi_method", "xnn_transformer"])
def test_source_lines(name: str) -> None:
    """Source lines are those that torch prints beside the same node."""
    told = lines_in(capture(name, "graph.txt").decode())
    read = {operator.node: (operator.file, operator.line) for operator in all_operators(read_etrecord(capture(name)))}
    both = told.keys() & read.keys()
    assert both
    assert {node: read[node] for node in both} == {node: told[node] for node in both}


def test_file_is_as_good_as_bytes() -> None:
    """An open file is read like its bytes, and stays open."""
    file = io.BytesIO(capture("mixed_ops"))
    assert read_etrecord(file) == read_etrecord(capture("mixed_ops"))
    assert not file.closed


def test_weights_stay_unread() -> None:
    """Members that are not needed may be damaged, encrypted, unknown or enormous: nothing looks at them."""
    data = capture("mixed_ops")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        state = archive.getinfo(f"{GRAPH}/forward_state_dict")
    spoilt = bytearray(data)
    spoilt[state.header_offset : state.header_offset + 4] = b"XXXX"
    assert read_etrecord(bytes(spoilt)) == read_etrecord(data)
    with zipfile.ZipFile(buffer := io.BytesIO(data), "a") as archive:
        archive.writestr("delegate_info", b"\x00" * 1000)
        archive.writestr("delegate_info_2", "not JSON")
    assert read_etrecord(buffer.getvalue()) == read_etrecord(data)


def test_graph_may_be_missing() -> None:
    """Without a graph the handles resolve, and have no operators."""
    mapping = read_etrecord(etrecord_of(MAPS))
    assert relation_of(mapping) == {("forward", 0, "untyped", "7", (1,)), ("forward", 0, "text", "conv", (2,))}
    assert all_operators(mapping) == []


def test_old_layout() -> None:
    """An ETRecord with a single graph under the bare name is read as that of its only method."""
    graph = program_of([node_of("n1", "aten.add.Tensor", 1), node_of("n2", "aten.mul.Tensor", 2)])
    assert operators_of(read_etrecord(etrecord_of({**MAPS, GRAPH: graph}))) == {
        0: {1: ["aten.add.Tensor"], 2: ["aten.mul.Tensor"]},
        1: {1: ["aten.add.Tensor"]},
    }


def test_calls_in_order() -> None:
    """The n-th call in the graph is the n-th delegate instruction; handles of kernels are the method's."""
    mapping = read_etrecord(record_of({2: ("X", [1]), 10: ("X", [1])}, [SUB, call_of("X", [ADD]), call_of("X", [MUL])], {0: 1}))
    assert operators_of(mapping) == {0: {1: ["aten.sub.Tensor"]}, 2: {1: ["aten.add.Tensor"]}, 10: {1: ["aten.mul.Tensor"]}}


def test_handles_of_tuple_items() -> None:
    """A call fits though its instruction has more handles than its graph; those stay unnamed, the method's are not theirs."""
    mapping = read_etrecord(record_of({0: ("X", [1, 2])}, [node_of("s", "aten.sub.Tensor", 2), call_of("X", [ADD])]))
    assert operators_of(mapping) == {0: {1: ["aten.add.Tensor"]}}


def test_later_lowering() -> None:
    """Where more was lowered after the graph was recorded, an instruction that fits no call has the method's operators."""
    calls = {0: ("X", [1]), 1: ("Y", [1])}
    assert operators_of(read_etrecord(record_of(calls, [MUL, call_of("X", [ADD])]))) == {0: {}, 1: {1: ["aten.mul.Tensor"]}}


def test_doubt_names_nothing() -> None:
    """Where a handle may mean one of two operators it is not named; where all candidates agree it is."""
    calls = {0: ("X", [1, 2]), 1: ("X", [1, 2])}
    nodes = [node_of("r", "aten.relu.default", 2)]
    graph = [MUL, *nodes, call_of("X", [ADD, *nodes])]
    agreed = {2: ["aten.relu.default"]}
    assert operators_of(read_etrecord(record_of(calls, graph))) == {0: agreed, 1: agreed}


@pytest.mark.parametrize("argument", [{"as_string": "{"}, {"as_string": "{}"}, {"as_int": 3}, None])
def test_unreadable_module(argument: object) -> None:
    """A lowered module that cannot be read leaves its instruction unnamed; it is never given the method's operators."""
    call = call_of("X", [])
    call["inputs"][0]["arg"] = argument
    assert operators_of(read_etrecord(record_of({0: ("X", [1])}, [MUL, call]))) == {0: {}}


def test_foreign_nodes_are_passed_over() -> None:
    """Nodes without a handle, a target or metadata, and texts that do not fit, cost themselves only."""
    nodes: list[Any] = [None, 7, {}, {"target": 3, "metadata": []}, node_of("x", "aten.x", "(1, 2)"), node_of("z", "aten.z", 0)]
    long = node_of(
        "n" * 5000, "aten.add.Tensor", 1, stack_trace='File "\ud800", line 3, in f', nn_module_stack="k,p" + "p" * 5000 + ",T"
    )
    mapping = read_etrecord(record_of({}, [*nodes, long], {0: 1}))
    assert all_operators(mapping) == [pb.Operator(name="aten.add.Tensor", module_type="T")]
