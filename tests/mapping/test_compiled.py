"""Resolution is exact and total."""

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.mappings import capture, mappings

from otel_bridge.backends.table import backend_of
from otel_bridge.mapping.compiled import CompiledMethod, compile_mapping
from otel_bridge.mapping.document import canonical, digest, encode
from otel_bridge.mapping.etrecord import read_etrecord
from otel_bridge.mapping.fingerprint import fingerprints
from otel_bridge.mapping.identity import key_of
from otel_bridge.mapping.resolve import Attribution, resolve
from otel_bridge.model.events import NO_INSTRUCTION, EventKind, Identifier
from otel_bridge.model.resolution import Resolution, Status
from otel_bridge.v1 import mapping_pb2 as pb

identifiers = st.one_of(st.integers(-(2**31), 2**31 - 1), st.text(max_size=8), st.integers(-3, 30).map(str))


def method_with(*entries: pb.MapEntry, backend: str = "Toy") -> CompiledMethod:
    """A method whose instruction 0 is a delegate call with these entries, and whose instruction 1 is a kernel."""
    operators = [pb.HandleOperators(handle=handle, operators=[pb.Operator(name=f"aten.op{handle}")]) for handle in (1, 2, 3)]
    instructions = [
        pb.Instruction(id=0, delegate=backend, handles=[1, 2, 3], entries=entries, operators=operators),
        pb.Instruction(id=1, handles=[4]),
    ]
    mapping = canonical(pb.Mapping(format=1, methods=[pb.Method(name="forward", instructions=instructions)]))
    return compile_mapping("0" * 64, mapping).methods["forward"]


def status(method: CompiledMethod, instruction: int, identifier: Identifier) -> Status | None:
    """The status of one look-up."""
    return method.resolve(instruction, identifier).status


def test_an_identifier_resolves_to_its_own_entry_and_no_other() -> None:
    """ExecuTorch's Inspector gives id 12 the handles of id 1 or 2, which are parts of its text; here a miss is a miss."""
    method = method_with(pb.MapEntry(number=1, handles=[1]), pb.MapEntry(number=2, handles=[2]))
    assert method.resolve(0, 1).handles == (1,)
    assert (method.resolve(0, 12).status, method.resolve(0, 12).handles) == (Status.UNMAPPED_IDENTIFIER, ())


def test_one_and_its_text_are_different_identifiers() -> None:
    """The type is part of an identifier wherever the source knows it."""
    method = method_with(pb.MapEntry(number=1, handles=[1]), pb.MapEntry(text="2", handles=[2]))
    assert [status(method, 0, 1), status(method, 0, "1")] == [Status.EXACT, Status.UNMAPPED_IDENTIFIER]
    assert [status(method, 0, "2"), status(method, 0, 2)] == [Status.EXACT, Status.UNMAPPED_IDENTIFIER]


@pytest.mark.parametrize(
    ("untyped", "number", "matches"),
    [("7", 7, True), ("-7", -7, True), ("07", 7, False), ("+7", 7, False), ("-0", 0, False), ("\u0667", 7, False)],
)
def test_an_entry_that_lost_its_type_stands_for_the_canonical_number_only(untyped: str, number: int, *, matches: bool) -> None:
    """JSON keys are text; `"7"` may have been 7, `"07"` never was."""
    method = method_with(pb.MapEntry(untyped=untyped, handles=[1]))
    assert status(method, 0, untyped) == Status.EXACT
    assert matches is (status(method, 0, number) == Status.EXACT)


def test_an_empty_map_means_the_delegate_as_a_whole() -> None:
    """XNNPACK's map is `{}`: its events have no handles of their own."""
    resolution = method_with(backend="XnnpackBackend").resolve(0, "Convolution #1")
    assert (resolution.status, resolution.delegate, resolution.handles) == (Status.DELEGATE, "XnnpackBackend", ())


def test_a_map_that_holds_no_handles_is_never_read_as_if_it_did() -> None:
    """Vulkan's map gives node ordinals, which look like debug handles and are none."""
    assert status(method_with(pb.MapEntry(number=0, handles=[3]), backend="VulkanBackend"), 0, 0) == Status.DELEGATE


def test_an_entry_may_name_no_operator() -> None:
    """NXP lists kernels of its own with `()`: known, and standing for nothing."""
    resolution = method_with(pb.MapEntry(number=5)).resolve(0, 5)
    assert (resolution.status, resolution.handles) == (Status.EXACT, ())


def test_an_instruction_that_calls_no_delegate_is_told() -> None:
    """A foreign dump logs delegate events where the mapping has a kernel, or nothing."""
    method = method_with(pb.MapEntry(number=1, handles=[1]))
    assert [status(method, 1, 1), status(method, 9, 1)] == [Status.UNMAPPED_INSTRUCTION] * 2


def test_every_delegate_event_has_one_status_and_no_other_event_has_any() -> None:
    """What is missing decides: the mapping, the instruction, the method."""
    method = method_with(pb.MapEntry(number=1, handles=[1]))
    known = Attribution("0" * 64, method, method_name="forward")
    misfit = Attribution("0" * 64, delegates=frozenset({0}))
    cases = [
        (Attribution(), 0, Status.NO_MAPPING),
        (Attribution(), NO_INSTRUCTION, Status.NO_MAPPING),
        (Attribution("0" * 64), 0, Status.NO_METHOD),
        (Attribution("0" * 64), NO_INSTRUCTION, Status.PHASE),
        (misfit, 0, Status.NO_METHOD),
        (misfit, 7, Status.UNMAPPED_INSTRUCTION),
        (known, NO_INSTRUCTION, Status.PHASE),
        (known, 0, Status.EXACT),
    ]
    for attribution, instruction, expected in cases:
        assert expected == resolve(attribution, EventKind.DELEGATE, instruction, 1).status
        for kind in (EventKind.RUNTIME, EventKind.CALL, EventKind.SCOPE):
            assert resolve(attribution, kind, instruction, "x").status is None
    assert resolve(known, EventKind.CALL, 0, "DELEGATE_CALL").handles == (1, 2, 3)
    assert resolve(known, EventKind.CALL, 1, "OPERATOR_CALL").handles == (4,)
    for name, instruction in (("OPERATOR_CALL", 0), ("DELEGATE_CALL", 1), ("MOVE_CALL", 0)):
        assert resolve(known, EventKind.CALL, instruction, name).handles == ()


@given(mappings(), st.integers(0, 40), identifiers)
def test_no_identifier_resolves_to_handles_that_its_own_entry_does_not_list(
    mapping: pb.Mapping, instruction: int, identifier: Identifier
) -> None:
    """For any mapping: the handles of an answer are those of an entry of this method, instruction and identifier."""
    mapping = canonical(mapping)
    for name, method in compile_mapping(digest(encode(mapping)), mapping).methods.items():
        resolution = method.resolve(instruction, identifier)
        keys = {("number", identifier)} if isinstance(identifier, int) else {("text", identifier)}
        keys.add(("untyped", str(identifier)))
        listed = [
            tuple(entry.handles)
            for known in mapping.methods
            if known.name == name
            for call in known.instructions
            if call.id == instruction and call.delegate
            for entry in call.entries
            if key_of(entry) in keys
        ]
        if resolution.status is Status.EXACT:
            assert resolution.handles in listed
        else:
            assert resolution.handles == ()


def answers(method: CompiledMethod, call: pb.Instruction) -> Iterator[tuple[Resolution, Sequence[int]]]:
    """What an instruction and each entry of its map stand for, beside the handles that they list."""
    yield method.call("DELEGATE_CALL" if call.delegate else "OPERATOR_CALL", call.id), call.handles
    if backend_of(call.delegate).map_holds_handles:
        for entry in call.entries:
            yield method.resolve(call.id, key_of(entry)[1]), entry.handles


@settings(max_examples=50)
@given(mappings())
def test_operators_are_those_that_the_instruction_lists_for_the_handles(mapping: pb.Mapping) -> None:
    """For any mapping: in the order of handles, with the ids that they have in the whole method."""
    mapping = canonical(mapping)
    compiled = compile_mapping(digest(encode(mapping)), mapping)
    for source in mapping.methods:
        known = fingerprints(source)
        for call in source.instructions:
            nodes = {item.handle: [operator.node for operator in item.operators] for item in call.operators}
            for resolution, handles in answers(compiled.methods[source.name], call):
                ids = [each.id for handle in handles for each in known.get((call.id, handle), ())]
                assert resolution.handles == tuple(handles)
                assert [each.id for each in resolution.operators] == ids
                assert [each.node for each in resolution.operators] == [
                    node for handle in handles for node in nodes.get(handle, ())
                ]


def test_operators_are_those_of_the_identifiers_handles() -> None:
    """On a real ETRecord: the demo backend's identifier 1 is a convolution and a relu, never the call itself."""
    mapping = read_etrecord(capture("toy_delegate_int"))
    method = compile_mapping(digest(encode(mapping)), mapping).methods["forward"]
    named = [[operator.name for operator in method.resolve(0, identifier).operators] for identifier in range(5)]
    assert all(name.startswith("aten.") for names in named for name in names)
    assert [len(names) for names in named] == [2, 2, 1, 1, 1]
