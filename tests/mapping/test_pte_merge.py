"""Bringing a mapping and a program together, and what a document says of kernels and nodes."""

from collections.abc import Callable

import pytest
from support.mappings import CAPTURES, capture
from support.programs import Call, Kernel, Methods, Other, write_program, xnnpack_payload

from otel_bridge.errors import MalformedMapping
from otel_bridge.mapping import limits
from otel_bridge.mapping.document import canonical, first_difference, from_json, to_json
from otel_bridge.mapping.etrecord import read_etrecord
from otel_bridge.mapping.merge import merge
from otel_bridge.mapping.pte import Program, read_program
from otel_bridge.v1 import mapping_pb2 as pb

XNNPACK = "XnnpackBackend"


def program_of(model: str) -> Program:
    """The program of a fixture."""
    return read_program(capture(model, "model.pte"))


@pytest.mark.parametrize("model", CAPTURES)
def test_captures(model: str) -> None:
    """Maps, handles and operators are the ETRecord's, kernels and nodes the program's, and nothing else is there."""
    etrecord, program = read_etrecord(capture(model)), program_of(model)
    mapping = merge(etrecord, program)
    for method, ran in zip(mapping.methods, program.mapping.methods, strict=True):
        assert [(each.id, each.kernel, list(each.nodes)) for each in method.instructions] == [
            (each.id, each.kernel, list(each.nodes)) for each in ran.instructions
        ]
        for each in method.instructions:
            each.ClearField("kernel")
            each.ClearField("nodes")
        kept = [each for each in method.instructions if each.delegate or each.handles]
        del method.instructions[:]
        method.instructions.extend(kept)
    assert mapping == etrecord


def test_merging_again_changes_nothing() -> None:
    """A mapping that has a program's nodes already takes the same program again, also after a trip through JSON."""
    program = program_of("xnn_transformer")
    mapping = merge(read_etrecord(capture("xnn_transformer")), program)
    assert merge(mapping, program) == mapping
    assert from_json(to_json(pb.MappingFile(mapping=mapping))).mapping == mapping
    assert merge(program.mapping, program) == program.mapping


def test_foreign_captures() -> None:
    """No program goes with the ETRecord of another model, wherever the two differ in their instructions."""
    etrecords = {model: read_etrecord(capture(model)) for model in CAPTURES}
    shapes = {
        model: {(m.name, each.id, each.delegate) for m in mapping.methods for each in m.instructions if each.delegate}
        for model, mapping in etrecords.items()
    }
    refused = 0
    for ours in CAPTURES:
        for theirs in CAPTURES:
            if shapes[ours] != shapes[theirs]:
                with pytest.raises(MalformedMapping, match="of different models or exports"):
                    merge(etrecords[ours], program_of(theirs))
                refused += 1
    assert refused > len(CAPTURES) ** 2 // 2


STEPS: Methods = {
    "forward": [
        Kernel("aten::add", "out"),
        Call(XNNPACK, xnnpack_payload([("Conv2d", 1), ("Copy", 65535)])),
        Kernel("k"),
        Other(3),
    ]
}
ETRECORD = pb.Mapping(
    format=1,
    methods=[
        pb.Method(
            name="forward",
            instructions=[pb.Instruction(id=0, handles=[5]), pb.Instruction(id=1, delegate=XNNPACK, handles=[1, 2])],
        )
    ],
)


def changed(change: Callable[[pb.Method], object]) -> pb.Mapping:
    """`ETRECORD` with a change."""
    mapping = pb.Mapping()
    mapping.CopyFrom(ETRECORD)
    change(mapping.methods[0])
    return canonical(mapping)


def test_fits() -> None:
    """What the hand-made pair makes, before the changes below."""
    (method,) = merge(ETRECORD, read_program(write_program(STEPS))).methods
    assert list(method.instructions) == [
        pb.Instruction(id=0, handles=[5], kernel="aten::add.out"),
        pb.Instruction(
            id=1,
            delegate=XNNPACK,
            handles=[1, 2],
            nodes=[pb.DelegateNode(kind="Conv2d", handle=1), pb.DelegateNode(kind="Copy")],
        ),
        pb.Instruction(id=2, kernel="k"),
    ]


@pytest.mark.parametrize(
    ("change", "where", "found"),
    [
        (lambda m: setattr(m, "name", "other"), "methods[other]", "a method that the program does not have"),
        (lambda m: setattr(m.instructions[1], "delegate", "Toy"), "[1]", 'a call of "Toy", and in the program a call of "Xnn'),
        (lambda m: m.instructions[1].ClearField("delegate"), "[1]", "a kernel call, and in the program a call of"),
        (lambda m: m.instructions.pop(), "[1]", "in the program that the mapping does not have"),
        (lambda m: m.instructions.add(id=2, delegate="Toy"), "[2]", "and in the program a kernel call"),
        (lambda m: m.instructions.add(id=3, handles=[9]), "[3]", "and in the program neither"),
        (lambda m: m.instructions.add(id=7, delegate="Toy"), "[7]", "and in the program neither"),
        (lambda m: m.instructions[1].handles.remove(1), "[1].nodes[0]", "handle 1, which the call does not have"),
        (lambda m: m.instructions[1].nodes.add(kind="Add"), "[1].nodes", "other nodes than the program's"),
        (lambda m: setattr(m.instructions[0], "kernel", "aten::mul.out"), "[0].kernel", '"aten::mul.out", and in the program'),
    ],
)
def test_refused(change: Callable[[pb.Method], object], where: str, found: str) -> None:
    """The first thing that does not fit is named, with both sides of it."""
    with pytest.raises(MalformedMapping) as caught:
        merge(changed(change), read_program(write_program(STEPS)))
    assert where in str(caught.value)
    assert found in str(caught.value)
    assert "take both from one export" in str(caught.value)


def test_a_method_more_is_refused() -> None:
    """A program with a method that calls something, and that the mapping lacks, is another one."""
    with pytest.raises(MalformedMapping, match=r"methods\[extra\]: a method of the program"):
        merge(ETRECORD, read_program(write_program(STEPS | {"extra": [Kernel("aten::add", "out")]})))


def test_constant_methods() -> None:
    """A method that calls nothing, as `get_dim` of a language model, is in no map, and stays out of the mapping."""
    with_constant = write_program(STEPS | {"get_dim": []})
    assert merge(ETRECORD, read_program(with_constant)) == merge(ETRECORD, read_program(write_program(STEPS)))


def test_bodies_of_control_flow() -> None:
    """Debug handle maps leave out what lies behind a jump: then, and only then, the program may call a delegate more often."""
    body = Call(XNNPACK, xnnpack_payload([("Add", 1)]))
    straight, looped = ({"forward": [*STEPS["forward"], *more]} for more in ([body], [Other(4), body]))
    with pytest.raises(MalformedMapping, match=r"a call of .* in the program that the mapping does not have"):
        merge(ETRECORD, read_program(write_program(straight)))
    (method,) = merge(ETRECORD, read_program(write_program(looped))).methods
    assert [each.id for each in method.instructions if each.delegate] == [1, 5]


@pytest.mark.parametrize(
    ("change", "where", "found"),
    [
        (lambda m: setattr(m.instructions[1], "kernel", "k"), "[1].kernel", "a kernel at a delegate call"),
        (lambda m: m.instructions[0].nodes.add(kind="Add"), "[0].nodes", "nodes at a kernel call"),
        (lambda m: m.instructions[1].nodes.add(handle=1), "[1].nodes[0]", "an empty string"),
        (
            lambda m: m.instructions[1].nodes.add(kind="Add", handle=9),
            "[1].nodes[0]",
            "handle 9, which is not the instruction's",
        ),
        (lambda m: setattr(m.instructions[0], "kernel", "k" * 5000), "[0].kernel", "a text of 5000 characters"),
    ],
)
def test_refused_documents(change: Callable[[pb.Method], object], where: str, found: str) -> None:
    """A document says of kernels and nodes only what can be."""
    with pytest.raises(MalformedMapping) as caught:
        changed(change)
    assert where in str(caught.value)
    assert found in str(caught.value)


def test_nodes_keep_their_order_and_count() -> None:
    """Nodes are a sequence: they are neither sorted nor made unique, and another order resolves differently."""
    one, two = (
        changed(lambda m, h=handles: m.instructions[1].nodes.extend(pb.DelegateNode(kind="Add", handle=x) for x in h))
        for handles in ([2, 1, 1, 0], [1, 2, 1, 0])
    )
    assert [node.handle for node in one.methods[0].instructions[1].nodes] == [2, 1, 1, 0]
    assert first_difference(one, two) == "methods[forward].instructions[1]"
    assert first_difference(one, ETRECORD) == "methods[forward].instructions[1]"
    assert first_difference(changed(lambda m: setattr(m.instructions[0], "kernel", "k")), ETRECORD) is None


def test_nodes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of nodes has a bound of its own."""
    monkeypatch.setattr(limits, "MAX_NODES", 1)
    with pytest.raises(MalformedMapping, match="2 nodes"):
        changed(lambda m: m.instructions[1].nodes.extend([pb.DelegateNode(kind="Add")] * 2))
