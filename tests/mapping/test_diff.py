"""What changed between two builds of a model."""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.mappings import CAPTURES, capture, mappings

from otel_bridge.mapping import diff as diff_module
from otel_bridge.mapping.diff import Diff, MethodDiff, compare
from otel_bridge.mapping.document import canonical
from otel_bridge.mapping.source import read_source
from otel_bridge.v1 import mapping_pb2 as pb


def call(
    delegate: str, operators: Sequence[str], entries: dict[str, list[str]] | None = None
) -> tuple[str, Sequence[str], dict]:  # type: ignore[type-arg]  # of the entries
    """An instruction: its backend ("": a kernel), operators by name, and identifiers with the operators that they list."""
    return delegate, operators, entries or {}


def build(*calls: tuple[str, Sequence[str], dict], first_handle: int = 1) -> pb.Mapping:  # type: ignore[type-arg]  # of the entries
    """A mapping whose handles count from `first_handle`, in the order of the names."""
    names = sorted({name for _, operators, _ in calls for name in operators})
    handle_of = {name: number for number, name in enumerate(names, first_handle)}
    method = pb.Method(name="forward")
    for number, (delegate, operators, entries) in enumerate(calls):
        instruction = method.instructions.add(id=number, delegate=delegate, handles=[handle_of[name] for name in operators])
        for name in operators:
            instruction.operators.add(handle=handle_of[name], operators=[pb.Operator(name=f"aten.{name}", module_path=name)])
        for identifier, listed in entries.items():
            instruction.entries.add(text=identifier, handles=[handle_of[name] for name in listed])
    return canonical(pb.Mapping(format=1, methods=[method]))


def only(diff: Diff) -> MethodDiff:
    """The one method of a difference."""
    (method,) = diff.methods
    return method


def names(method: MethodDiff, ids: Sequence[str]) -> list[str]:
    """Module paths of operators."""
    return [method.labels[each].split()[0] for each in ids]


def fusions(method: MethodDiff) -> list[tuple[list[tuple[str, list[str]]], list[tuple[str, list[str]]]]]:
    """(identifier, module paths) before and after, of each neighbourhood."""
    return [
        tuple(
            [(str(group.identifier), sorted(names(method, group.operators))) for group in side] for side in (f.before, f.after)
        )  # type: ignore[misc]  # two
        for f in method.fused
    ]


def test_numbers_that_every_build_makes_anew_are_no_change() -> None:
    """Handles, instructions and identifiers differ; operators, places and fusions do not."""
    before = build(call("", ["k"]), call("Toy", ["a", "b"], {"conv #1": ["a", "b"]}))
    after = build(call("Toy", ["a", "b"], {"7": ["a", "b"]}), call("", ["k"]), first_handle=40)
    assert compare(before, after).is_equal


def test_operators_come_and_go() -> None:
    """By their place."""
    diff = only(compare(build(call("", ["a", "b"])), build(call("", ["b", "c"]))))
    assert (names(diff, diff.added), names(diff, diff.removed), diff.moved, diff.fused) == (["c"], ["a"], (), ())
    assert set(diff.places.values()) == {("kernel",)}


def test_operators_move_between_delegates() -> None:
    """From a kernel to a backend, and from one backend to another; what stays is not listed."""
    before = build(call("", ["a"]), call("X", ["b", "c"]))
    after = build(call("X", ["a", "c"]), call("Y", ["b"]))
    diff = only(compare(before, after))
    moves = {names(diff, [move.id])[0]: (move.before, move.after) for move in diff.moved}
    assert moves == {"a": (("kernel",), ("X",)), "b": (("X",), ("Y",))}
    assert (diff.added, diff.removed) == ((), ())


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (
            {"p": ["a", "b"], "q": ["c"]},
            {"p": ["a"], "q": ["b", "c"]},
            [([("p", ["a", "b"]), ("q", ["c"])], [("p", ["a"]), ("q", ["b", "c"])])],
        ),
        ({"p": ["a", "b"], "q": ["c"]}, {"p": ["a", "b"], "q": []}, [([("q", ["c"])], [])]),
        ({"p": ["a", "b"], "q": ["b", "c"]}, {"p": ["a", "b"], "q": ["c"]}, [([("q", ["b", "c"])], [("q", ["c"])])]),
        ({"p": ["a"], "q": ["b"], "r": ["c"]}, {"r": ["a"], "q": ["b"], "p": ["c"]}, []),
    ],
)  # fmt: skip
def test_operators_are_fused_differently(before: dict[str, list[str]], after: dict[str, list[str]], expected: object) -> None:
    """Neighbourhoods of identifiers whose sets of operators differ; what is equal on both sides is left out."""
    operators = ["a", "b", "c"]
    diff = only(compare(build(call("Toy", operators, before)), build(call("Toy", operators, after))))
    assert (diff.added, diff.removed, diff.moved) == ((), (), ())
    assert fusions(diff) == expected


def test_a_fused_pair_that_goes_to_kernels_is_moved_and_parted() -> None:
    """A kernel runs each alone; one that ran alone before is only moved."""
    before = build(call("Toy", ["a", "b", "c"], {"p": ["a", "b"], "q": ["c"]}))
    diff = only(compare(before, build(call("", ["a"]), call("", ["b"]), call("", ["c"]))))
    assert sorted(names(diff, [move.id for move in diff.moved])) == ["a", "b", "c"]
    assert fusions(diff) == [([("p", ["a", "b"])], [])]


def test_of_a_delegate_without_a_map_no_fusion_is_told() -> None:
    """XNNPACK tells of none; Vulkan's map holds no handles."""
    told = build(call("Toy", ["a", "b"], {"p": ["a", "b"]}))
    for silent in (build(call("XnnpackBackend", ["a", "b"])), build(call("VulkanBackend", ["a", "b"], {"0": ["a"]}))):
        assert only(compare(told, silent)).fused == ()
        assert len(only(compare(told, silent)).moved) == 2


def test_methods_come_and_go() -> None:
    """By name; their operators are not listed one by one."""
    one, other = build(call("", ["a"])), build(call("", ["a"]))
    other.methods[0].name = "encode"
    diff = compare(one, other)
    assert (diff.added, diff.removed, diff.methods, diff.is_equal) == (("encode",), ("forward",), (), False)


def test_without_operators_handles_are_compared_and_it_is_said() -> None:
    """Maps JSON names none: the ETRecord of the same model is then compared by handle too."""
    record = read_source(capture("toy_backend_int")).mapping
    maps = read_source(capture("toy_backend_int", "maps.json")).mapping
    diff = compare(record, maps)
    assert diff.is_equal
    assert only(diff).by_handle
    changed = pb.Mapping.FromString(maps.SerializeToString())
    changed.methods[0].instructions[0].entries[0].handles.pop()
    assert [len(fusion.before) for fusion in only(compare(maps, canonical(changed))).fused] == [1]


def test_the_same_model_on_two_backends() -> None:
    """`two_backends` gives convolutions and relu to XNNPACK and tan to a kernel; the rest stays where it was."""
    diff = only(compare(*(read_source(capture(model)).mapping for model in ("toy_backend_int", "two_backends"))))
    moves = {diff.labels[move.id]: (move.before, move.after) for move in diff.moved}
    toy = ("ToyProfBackend",)
    assert moves == {
        "c1 aten.convolution.default": (toy, ("XnnpackBackend",)),
        "c2 aten.convolution.default": (toy, ("XnnpackBackend",)),
        "aten.relu.default": (toy, ("XnnpackBackend",)),
        "aten.tan.default": (toy, ("kernel",)),
    }
    assert (diff.added, diff.removed) == ((), ())


@pytest.mark.parametrize("model", CAPTURES)
def test_a_capture_equals_itself(model: str) -> None:
    """Also where one handle stands for many operators of many instructions."""
    mapping = read_source(capture(model)).mapping
    assert compare(mapping, mapping).is_equal


def chain(count: int) -> list[pb.Mapping]:
    """Pairs of neighbours, which each side forms another way, so that all hang together."""
    operators = [f"m{number:04}" for number in range(count)]
    pairs = [{f"p{at}": operators[at : at + 2] for at in range(first, count, 2)} for first in (0, 1)]
    return [build(call("Toy", operators, each)) for each in pairs]


def crowd(count: int) -> list[pb.Mapping]:
    """One identifier for all operators, and for all but one."""
    operators = [f"m{number:04}" for number in range(count)]
    return [build(call("Toy", operators, {"p": operators[left_out:]})) for left_out in (0, 1)]


@pytest.mark.parametrize("sides", [chain, crowd])
def test_one_large_neighbourhood_costs_what_its_operators_cost(
    sides: Callable[[int], list[pb.Mapping]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four times the operators are looked up about four times as often, not sixteen times."""
    looked_up = 0

    class Counted(str):
        __slots__ = ()

        def __hash__(self) -> int:
            nonlocal looked_up
            looked_up += 1
            return super().__hash__()

    operators_of = diff_module._operators
    monkeypatch.setattr(diff_module, "_operators", lambda *of: {Counted(key): name for key, name in operators_of(*of).items()})
    counts = []
    for count in (100, 400):
        before, after = sides(count)
        looked_up = 0
        assert len(only(compare(before, after)).fused) == 1
        counts.append(looked_up)
    assert counts[1] < 5 * counts[0]


@given(mappings(), mappings(), st.booleans())
def test_a_difference_turned_round_is_its_mirror(one: pb.Mapping, other: pb.Mapping, same: bool) -> None:  # noqa: FBT001 - drawn
    """Any mapping equals itself; from B to A what was added is removed, and moves and fusions are reversed."""
    before = canonical(one)
    after = before if same else canonical(other)
    there, back = compare(before, after), compare(after, before)
    assert there.is_equal == back.is_equal
    assert there.is_equal or not same
    assert (there.added, there.removed) == (back.removed, back.added)
    for a, b in zip(there.methods, back.methods, strict=True):
        assert (set(a.added), set(a.removed)) == (set(b.removed), set(b.added))
        assert {(move.id, move.before, move.after) for move in a.moved} == {
            (move.id, move.after, move.before) for move in b.moved
        }
        assert {frozenset(f.before) for f in a.fused} == {frozenset(f.after) for f in b.fused}
