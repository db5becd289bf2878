"""What spans say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_bridge.model.events import BlockKind, EventKind, Identifier
from otel_bridge.model.resolution import Operator, Resolution, Status
from otel_bridge.spans import attributes as at
from otel_bridge.spans.attributes import cut
from otel_bridge.spans.describe import describe, describe_root

OPERATORS = tuple(Operator(f"aten.op{n}", file="net.py", line=n, module_path=f"layer{n}") for n in range(1, 6))


@pytest.mark.parametrize(
    ("count", "name"),
    [
        (1, "aten.op1"),
        (3, "aten.op1, aten.op2, aten.op3"),
        (5, "aten.op1, aten.op2, aten.op3 +2"),
        (0, "Convolution (NHWC, F32) IGEMM"),
    ],
)
def test_a_delegate_event_is_named_by_its_operators_else_by_its_identifier(count: int, name: str) -> None:
    """At most three operators; an identifier without its ordinal. The whole identifier is an attribute."""
    resolution = Resolution(Status.EXACT, "Toy", tuple(range(1, count + 1)), OPERATORS[:count])
    face = describe(EventKind.DELEGATE, "Convolution (NHWC, F32) IGEMM #12", resolution, instruction=3)
    said = dict(face.attributes)
    assert name == face.name
    assert said[at.DELEGATE_DEBUG_ID] == "Convolution (NHWC, F32) IGEMM #12"


@pytest.mark.parametrize(
    ("identifier", "name"),
    [("Conv #1", "Conv"), ("toy::add#7", "toy::add"), ("#7", "#7"), ("a #1 b", "a #1 b"), (17, "id 17"), ("17", "17")],
)
def test_an_identifier_is_shortened_by_its_ordinal_only(identifier: Identifier, name: str) -> None:
    """What is left names the kind of thing."""
    assert name == describe(EventKind.DELEGATE, identifier, Resolution(Status.NO_MAPPING)).name


def test_a_block_without_a_name_has_one_as_a_span() -> None:
    """An ETDump may leave it out; OTLP asks for a name of a span."""
    assert describe_root(BlockKind.OTHER, "", "net", None).name == "(unnamed)"


def test_the_attributes_of_a_resolved_event_are_those_of_its_first_operator() -> None:
    """Source line and module of the lowest handle; all names, all handles."""
    resolution = Resolution(Status.EXACT, "XnnpackBackend", (1, 2), OPERATORS[:2])
    assert dict(describe(EventKind.DELEGATE, 5, resolution, instruction=3).attributes) == {
        at.INSTRUCTION_ID: 3,
        at.DELEGATE_NAME: "XnnpackBackend",
        at.DELEGATE_DEBUG_ID: "5",
        at.RESOLUTION_STATUS: "exact",
        at.DEBUG_HANDLES: (1, 2),
        at.OPERATOR_NAMES: ("aten.op1", "aten.op2"),
        at.MODULE_PATH: "layer1",
        at.CODE_FILE_PATH: "net.py",
        at.CODE_LINE_NUMBER: 1,
        at.TIME_QUALITY: "laid_out",
    }


def test_a_delegate_call_bears_the_handles_of_the_whole_call() -> None:
    """Its events may have none of their own; operators would make every query match the call too."""
    face = describe(
        EventKind.CALL, "DELEGATE_CALL", Resolution(None, "Toy", (1, 2), OPERATORS[:2]), method="forward", instruction=0
    )
    assert face.name == "delegate Toy"
    assert dict(face.attributes) == {
        at.METHOD_NAME: "forward",
        at.INSTRUCTION_ID: 0,
        at.DELEGATE_NAME: "Toy",
        at.DEBUG_HANDLES: (1, 2),
    }
    assert describe(EventKind.CALL, "DELEGATE_CALL", Resolution(), instruction=0).name == "delegate"


def test_an_operator_call_is_named_by_its_kernel_else_by_its_operator_else_as_it_is() -> None:
    """OPERATOR_CALL says nothing by itself."""
    known = Resolution(handles=(1,), operators=OPERATORS[:1])
    names = [
        describe(EventKind.CALL, "OPERATOR_CALL", resolution, instruction=0, kernel=kernel).name
        for resolution, kernel in (
            (known, "native_call_add.out"),
            (known, None),
            (Resolution(), None),
            (Resolution(), "native_call_"),
        )
    ]
    assert names == ["add.out", "aten.op1", "OPERATOR_CALL", "OPERATOR_CALL"]


def test_chain_zero_is_not_said() -> None:
    """There is one chain a method today."""
    for chain, expected in ((0, {}), (2, {at.CHAIN_INDEX: 2})):
        said = dict(describe(EventKind.CALL, "MOVE_CALL", Resolution(), instruction=0, chain=chain).attributes)
        assert expected == {key: value for key, value in said.items() if key == at.CHAIN_INDEX}


def test_many_handles_are_cut_and_counted() -> None:
    """A thousand are shown; the count says how many there are."""
    said = dict(describe(EventKind.CALL, "DELEGATE_CALL", Resolution(handles=tuple(range(1, 1502)))).attributes)
    assert (len(said[at.DEBUG_HANDLES]), said[at.DEBUG_HANDLE_COUNT]) == (1000, 1501)


def test_roots_are_named_by_what_ran() -> None:
    """`execute`, `load`, or the block's own name."""
    cases = [
        (BlockKind.EXECUTE, "Execute", "net", "forward", "execute net.forward"),
        (BlockKind.EXECUTE, "Execute", "net", None, "execute net"),
        (BlockKind.EXECUTE, "Execute", None, "forward", "execute forward"),
        (BlockKind.EXECUTE, "Execute", None, None, "execute"),
        (BlockKind.LOAD, "Default", "net", None, "load net"),
        (BlockKind.OTHER, "warm up", "net", "forward", "warm up"),
    ]
    for kind, name, model, method, expected in cases:
        assert expected == describe_root(kind, name, model, method).name


@given(st.text(max_size=5000))
def test_names_are_never_longer_than_a_back_end_takes(name: str) -> None:
    """255 characters, and never empty for a name that is not."""
    for face in (
        describe(EventKind.SCOPE, name, Resolution()),
        describe(EventKind.DELEGATE, name, Resolution(Status.NO_MAPPING)),
    ):
        assert len(face.name) <= 255
        assert face.name or not name


@given(st.text(max_size=3000), st.integers(1, 3000))
def test_text_is_cut_at_a_character(text: str, limit: int) -> None:
    """What is left is the longest beginning of whole characters within the limit."""
    short = cut(text, limit)
    assert text.startswith(short)
    assert len(short.encode()) <= limit
    assert short == text or len(text[: len(short) + 1].encode()) > limit
