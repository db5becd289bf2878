"""A block belongs to a method only where no other reading is possible."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from support.scenes import E, batch_of, call, delegated, execute, runtime

from otel_bridge.mapping.compiled import CompiledMapping, compile_mapping
from otel_bridge.mapping.document import canonical, digest, encode
from otel_bridge.mapping.method import attribute
from otel_bridge.model.events import Block, BlockKind, Identifier, Part
from otel_bridge.v1 import mapping_pb2 as pb

END = runtime("Method::execute", 0, 99)


def mapping_with(**methods: tuple[Sequence[int], Sequence[int]]) -> CompiledMapping:
    """Methods by name: the instructions that call a delegate, and those that call a kernel."""
    document = canonical(
        pb.Mapping(
            format=1,
            methods=[
                pb.Method(
                    name=name,
                    instructions=[pb.Instruction(id=i, delegate="Toy", handles=[i + 1]) for i in delegates]
                    + [pb.Instruction(id=i, handles=[i + 1]) for i in kernels],
                )
                for name, (delegates, kernels) in methods.items()
            ],
        )
    )
    return compile_mapping(digest(encode(document)), document)


def ran(*calls: str) -> list[E]:
    """Events of instructions: d3 is a delegate call at 3, o4 an operator call, j5 a jump, e6 a delegate's event."""
    names = {"d": "DELEGATE_CALL", "o": "OPERATOR_CALL", "j": "JF_CALL"}
    return [
        delegated("x", int(each[1:]), 1, 2) if each[0] == "e" else call(names[each[0]], int(each[1:]), 1, 2) for each in calls
    ]


def method_of(mapping: CompiledMapping | None, events: Sequence[E], block: Block | None = None) -> str | None:
    """The method that one block is attributed to."""
    (method,) = attribute(batch_of((block or execute(), events)), [mapping])
    return method.name if method else None


TWO = mapping_with(encode=([0], []), decode=([0, 2], [1]))


def test_the_instructions_tell_methods_apart() -> None:
    """Both methods log blocks named Execute; their delegate calls differ."""
    assert method_of(TWO, [*ran("d0"), END]) == "encode"
    assert method_of(TWO, [*ran("d0", "o1", "d2"), END]) == "decode"


def test_instructions_that_the_mapping_does_not_know_are_ignored() -> None:
    """Mutable buffers and bodies of control flow run kernels that no map lists."""
    assert method_of(TWO, [*ran("d0", "o1", "d2", "o7"), END]) == "decode"
    assert method_of(TWO, [*ran("d0", "o1"), END]) == "encode"


@pytest.mark.parametrize(
    ("calls", "why"),
    [
        (["d0", "d2"], "the kernel of decode did not run"),
        (["d0", "o1", "d2", "d3"], "no method calls a delegate at 3"),
        (["d5"], "no method calls a delegate at 5"),
        ([], "nothing ran"),
    ],
)
def test_what_fits_no_method_belongs_to_none(calls: list[str], why: str) -> None:
    """No guess is made."""
    assert method_of(TWO, [*ran(*calls), END]) is None, why


def test_a_failed_inference_is_not_attributed_by_guess() -> None:
    """Without Method::execute the block may be a piece of any method, even where only one has what ran so far."""
    assert method_of(TWO, ran("d0")) is None
    assert method_of(TWO, ran("d0", "o1", "d2")) is None
    assert method_of(TWO, ran("e2")) is None


def test_a_part_of_an_inference_is_not_attributed_by_guess() -> None:
    """What the other parts ran is not known, also to the part that has the end."""
    for last in (False, True):
        block = execute(part=Part(1, last=last, first_event=2))
        assert method_of(TWO, [*ran("d0", "o1", "d2"), END], block) is None
        assert method_of(TWO, [*ran("d2"), END], replace(block, method="encode")) is None


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_how_often_an_instruction_ran_says_nothing_of_the_method(turns: int) -> None:
    """A loop runs its body again and again, and jumps: the set of instructions tells methods apart."""
    assert method_of(TWO, [*ran(*["d0", "o7"] * turns), END]) == "encode"
    assert method_of(TWO, [*ran("d0", *["o1", "d2", "j9"] * turns), END]) == "decode"


def test_a_given_method_must_fit_the_events() -> None:
    """The sender's word is checked; a failed inference of that method fits as far as it got."""
    assert method_of(TWO, [*ran("d0", "o1", "d2"), END], execute(method="decode")) == "decode"
    assert method_of(TWO, [*ran("d0", "o1", "d2"), END], execute(method="encode")) is None
    assert method_of(TWO, [*ran("d0"), END], execute(method="nowhere")) is None
    assert method_of(TWO, ran("d0", "o1"), execute(method="decode")) == "decode"
    assert method_of(TWO, ran("d2"), execute(method="encode")) is None


def test_a_single_method_is_supplied() -> None:
    """There is nothing to confuse it with, unless the events contradict it: then the dump is another model's."""
    one = mapping_with(forward=([0], [1]))
    assert method_of(one, ran("d0")) == "forward"
    assert method_of(one, [*ran("d0"), END]) == "forward"
    assert method_of(one, [*ran("d4"), END]) is None
    assert method_of(one, [*ran("o0"), END]) is None


def test_after_a_jump_a_subset_is_enough() -> None:
    """JF_CALL may have skipped instructions."""
    mapping = mapping_with(a=([0, 4], [2]), b=([1, 5], []))
    assert method_of(mapping, [*ran("j3", "d0"), END]) == "a"
    assert method_of(mapping, [*ran("d0"), END]) is None


def test_two_methods_that_fit_are_told_apart_by_identifiers_or_not_at_all() -> None:
    """Identifiers break ties; where they do not, the method is ambiguous."""

    def entries(identifier: Identifier) -> pb.Method:
        entry = pb.MapEntry(number=identifier, handles=[1]) if isinstance(identifier, int) else pb.MapEntry(text=identifier)
        return pb.Method(instructions=[pb.Instruction(id=0, delegate="Toy", handles=[1], entries=[entry])])

    first, second = entries(1), entries("x")
    first.name, second.name = "first", "second"
    document = canonical(pb.Mapping(format=1, methods=[first, second]))
    mapping = compile_mapping(digest(encode(document)), document)
    assert method_of(mapping, [*ran("e0", "d0"), END]) == "second"
    assert method_of(mapping, [delegated(1, 0, 1, 2), *ran("d0"), END]) == "first"
    assert method_of(mapping, [delegated("neither", 0, 1, 2), *ran("d0"), END]) is None
    assert method_of(mapping, [*ran("d0"), END]) is None


def test_a_part_of_an_inference_fits_the_method_that_it_is_a_part_of() -> None:
    """The other parts ran the rest."""
    part = Part(1, last=True, first_event=2)
    assert method_of(TWO, [*ran("d2"), END], execute(method="decode", part=part)) == "decode"


def test_only_inferences_have_a_method() -> None:
    """A load block runs none."""
    assert method_of(TWO, [END], Block(BlockKind.LOAD, "Default", 0)) is None


def test_blocks_of_one_batch_are_attributed_apart() -> None:
    """Each by its own events and its own mapping, in order."""
    blocks = [(execute(0), [*ran("d0"), END]), (execute(1), [*ran("d0", "o1", "d2"), END]), (execute(2), [*ran("d0"), END])]
    found = attribute(batch_of(*blocks), [TWO, TWO, None])
    assert [method.name if method else None for method in found] == ["encode", "decode", None]
