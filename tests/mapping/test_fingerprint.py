"""Who an operator is, in every build."""

import json
import zipfile
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.captures import CAPTURES, FIXTURES
from support.mappings import CAPTURES as MODELS
from support.mappings import capture
from support.spans import resolve_dump

from otel_bridge.mapping.compiled import compile_mapping
from otel_bridge.mapping.fingerprint import Fingerprint, _remembered_id, fingerprints, id_of
from otel_bridge.mapping.source import read_source
from otel_bridge.model.events import EventKind
from otel_bridge.spans.describe import describe
from otel_bridge.v1 import mapping_pb2 as pb

Spec = tuple[str, str]
"""Module path and target."""


def method_of(*instructions: tuple[str, dict[int, list[Spec]]], shift: int = 0, nodes: str = "") -> pb.Method:
    """A method: (delegate, handle -> operators) each; `nodes` begins the names of nodes, "" leaves them out."""
    method = pb.Method(name="forward")
    for number, (delegate, listed) in enumerate(instructions):
        call = method.instructions.add(id=number, delegate=delegate, handles=[handle + shift for handle in listed])
        for handle, operators in listed.items():
            known = call.operators.add(handle=handle + shift)
            for position, (path, target) in enumerate(operators):
                node = f"{nodes}{handle}_{position}" if nodes else ""
                known.operators.add(name=target, module_path=path, node=node)
    return method


def ids_of(method: pb.Method) -> list[str]:
    """The ids of a method, by instruction, handle and place."""
    found = fingerprints(method)
    return [each.id for place in sorted(found) for each in found[place]]


@pytest.mark.parametrize(
    ("path", "target", "ordinal", "golden"),
    [
        ("layer1.0.conv", "aten.convolution.default", 0, "a538433fe7d7966d"),
        ("", "aten.add.Tensor", 2, "d4e43873a9515b1e"),
        ('é."x"', "aten.mm.default", 1, "e9c7ec9dac797b32"),
    ],
)
def test_the_derivation_is_an_interface(path: str, target: str, ordinal: int, golden: str) -> None:
    """The values are those of `printf '["layer1.0.conv","aten.convolution.default",0]' | sha256sum`, cut to 16 digits."""
    assert golden == Fingerprint(path, target, ordinal).id


kinds = st.tuples(st.sampled_from(["", "a", "a.b"]), st.sampled_from(["aten.add.Tensor", "aten.mul.Tensor"]))
layers = st.lists(st.lists(kinds, min_size=1, max_size=3), max_size=8)


@given(layers, layers, st.data())
def test_operators_that_are_added_elsewhere_change_no_id(
    old: list[list[Spec]], new: list[list[Spec]], data: st.DataObject
) -> None:
    """Layers of other modules come in between: those that were there keep their ids, and all ids of a method are distinct."""
    marked = [[(f"new.{path}", target) for path, target in operators] for operators in new]
    merged = data.draw(st.permutations([*(("old", n) for n in range(len(old))), *(("new", n) for n in range(len(new)))]))
    # A shuffle of two lists that keeps the order of each.
    counters = {"old": iter(old), "new": iter(marked)}
    both = [(which, next(counters[which])) for which, _ in merged]
    before = method_of(("", dict(enumerate(old, 1))))
    after = method_of(("", dict(enumerate((operators for _, operators in both), 1))))
    found = fingerprints(after)
    kept = [each.id for handle, (which, _) in enumerate(both, 1) if which == "old" for each in found[0, handle]]
    assert ids_of(before) == kept
    assert len(set(ids_of(after))) == len(ids_of(after))


@given(layers, st.integers(0, 1000), st.lists(st.integers(0, 3), min_size=8, max_size=8), st.sampled_from(["", "n", "zz"]))
def test_handles_nodes_and_delegates_do_not_matter(old: list[list[Spec]], shift: int, calls: list[int], nodes: str) -> None:
    """Another backend, other handles, other names of nodes: the same ids."""
    before = method_of(("", dict(enumerate(old, 1))))
    parts: list[dict[int, list[Spec]]] = [{} for _ in range(4)]
    for handle, operators in enumerate(old, 1):
        parts[calls[handle - 1]][handle] = operators
    after = method_of(*((f"Backend{number}", part) for number, part in enumerate(parts)), shift=shift, nodes=nodes)
    found = fingerprints(after)
    ids = [each.id for handle in range(1, len(old) + 1) for each in found[calls[handle - 1], handle + shift]]
    assert ids_of(before) == ids


def test_an_operator_that_several_instructions_list_is_one() -> None:
    """A handle stands for all nodes of what was decomposed, at each instruction that runs one of them."""
    operators = [("a", "aten.mul.Scalar"), ("a", "aten.bmm.default"), ("a", "aten.mul.Scalar")]
    found = fingerprints(
        method_of(("", {7: operators}), ("", {7: operators}), ("Toy", {7: operators, 9: operators[:1]}), nodes="n")
    )
    assert [each.ordinal for each in found[0, 7]] == [0, 0, 1]
    assert found[0, 7] == found[1, 7] == found[2, 7]
    assert [each.ordinal for each in found[2, 9]] == [2]


@pytest.mark.parametrize("model", MODELS)
def test_the_ids_of_captures_are_those_of_their_graphs(model: str) -> None:
    """Every node of the graph in the ETRecord, counted by hand by (module path, target), has the id at its place."""
    mapping = read_source(capture(model)).mapping
    with zipfile.ZipFile(FIXTURES / model / "model.etrecord") as record:
        for method in mapping.methods:
            program = json.loads(record.read(f"edge_dialect_exported_program/{method.name}"))
            seen: dict[Spec, int] = {}
            expected: dict[str, Fingerprint] = {}
            for node in nodes_of(program):
                stack = node["metadata"].get("nn_module_stack", "").rpartition(";")[2].split(",")
                kind = (stack[1] if len(stack) > 2 else "", node["target"].removeprefix("executorch.exir.dialects.edge.ops."))
                seen[kind] = seen.get(kind, -1) + 1
                expected[node["name"]] = Fingerprint(*kind, seen[kind])
            found = fingerprints(method)
            for instruction in method.instructions:
                for known in instruction.operators:
                    wanted = [expected[operator.node] for operator in known.operators]
                    assert wanted == list(found[instruction.id, known.handle])


def nodes_of(program: dict) -> list[dict]:  # type: ignore[type-arg]  # JSON
    """Nodes with a handle, by handle and then in graph order; those of a delegate's module in its place."""
    nodes = []
    for node in program["graph_module"]["graph"]["nodes"]:
        if node["target"].endswith("executorch_call_delegate"):
            nodes += nodes_of(json.loads(node["inputs"][0]["arg"]["as_string"])["original_module"])
        elif "debug_handle" in node["metadata"]:
            nodes.append(node)
    return sorted(nodes, key=lambda node: int(node["metadata"]["debug_handle"]))


def test_one_model_on_two_backends_has_one_set_of_ids() -> None:
    """`toy_backend_int` and `two_backends` are one model, shared out differently."""
    (a,), (b,) = (read_source(capture(model)).mapping.methods for model in ("toy_backend_int", "two_backends"))
    assert set(ids_of(a)) == set(ids_of(b)) != set()


def test_spans_say_the_id_of_their_first_operator() -> None:
    """Delegate events and kernel calls, equal in every run; distinct identifiers that begin with other operators differ."""
    found = CAPTURES["toy_backend_int/run10"]
    by_handle = {known.handle: known.operators[0] for known in found.mapping.mapping.methods[0].instructions[0].operators}
    spans = [s for s in resolve_dump(found.dump, found.mapping).spans if "executorch.operator.id" in s.attributes]
    assert len(spans) == 40
    for span in spans:
        handles = span.attributes["executorch.debug_handles"]
        first = by_handle[handles[0]]  # type: ignore[index]  # a tuple of ints
        assert span.attributes["executorch.operator.id"] == Fingerprint(first.module_path, first.name, 0).id


@pytest.mark.parametrize(
    ("entries", "known"), [({"p": [1, 2]}, True), ({"p": [1, 2], "q": [2]}, True), ({"p": [1], "q": [1]}, False)]
)
def test_the_first_of_several_nodes_is_said_only_where_all_of_them_ran(entries: dict[str, list[int]], *, known: bool) -> None:
    """Handle 1 stands for two nodes: one identifier runs both, of two each may run either."""
    method = method_of(("Toy", {1: [("a", "aten.mm.default"), ("a", "aten.add.Tensor")], 2: [("b", "aten.relu.default")]}))
    for identifier, handles in entries.items():
        method.instructions[0].entries.add(text=identifier, handles=handles)
    resolution = compile_mapping("", pb.Mapping(methods=[method])).methods["forward"].resolve(0, "p")
    said = dict(describe(EventKind.DELEGATE, "p", resolution, instruction=0).attributes)
    assert said.get("executorch.operator.id") == (Fingerprint("a", "aten.mm.default", 0).id if known else None)


def test_a_kernel_of_a_decomposed_operator_says_its_own_id_or_none() -> None:
    """Handle 11 of `xnn_transformer` stands for 25 nodes: a kernel that names one of them has its id, else there is none."""
    found = CAPTURES["xnn_transformer/run"]
    spans = [s for s in resolve_dump(found.dump, found.mapping).spans if s.attributes.get("executorch.debug_handles") == (11,)]
    ids = {
        span.name: span.attributes.get("executorch.operator.id")
        for span in spans
        if "executorch.delegate.name" not in span.attributes
    }
    assert ids["where.self_out"] == Fingerprint("", "aten.where.self", 0).id
    assert ids["eq.Scalar_out"] == Fingerprint("", "aten.eq.Scalar", 0).id
    assert ids["expand_copy.out"] is None  # four nodes
    assert all(a != b for a, b in pairwise(sorted(filter(None, ids.values()))))


@given(st.text(max_size=600), st.text(min_size=1, max_size=20), st.integers(0, 3))
def test_an_id_is_the_same_whether_it_is_remembered_or_not(path: str, target: str, ordinal: int) -> None:
    """And names as long as documents may have are not remembered, or a few uploads would keep tens of megabytes."""
    assert id_of(path, target, ordinal) == id_of(path, target, ordinal) == Fingerprint(path, target, ordinal).id
    kept = _remembered_id.cache_info().currsize
    id_of(path + "x" * 512, target, ordinal)
    assert _remembered_id.cache_info().currsize == kept
