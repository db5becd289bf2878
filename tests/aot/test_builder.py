"""The builder of debug handle maps, without torch. Its agreement with ExecuTorch's is shown in tests/engines/aot."""

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_bridge.aot import (
    DelegateMappingBuilder,
    DuplicateIdentifier,
    InvalidEntry,
    InvalidHandles,
    InvalidIdentifier,
)
from otel_bridge.mapping.document import canonical
from otel_bridge.v1 import mapping_pb2 as pb


def node(handle: object = None, **meta: object) -> SimpleNamespace:
    """What the builder sees of a graph's node."""
    return SimpleNamespace(meta=meta if handle is None else {"debug_handle": handle, **meta})


def test_fusion_and_decomposition() -> None:
    """An identifier may stand for several operators, an operator for several identifiers; handles ascend, each once."""
    builder = DelegateMappingBuilder()
    assert builder.insert_delegate_mapping_entry(nodes=[node(11), node(10), node(11)], identifier="fused") == "fused"
    assert builder.insert_delegate_mapping_entry(nodes=node(11), identifier="tail") == "tail"
    assert builder.insert_delegate_mapping_entry(handles=(12, None, 11), identifier="other") == "other"
    assert builder.get_delegate_mapping() == {"fused": (10, 11), "tail": (11,), "other": (11, 12)}


def test_generated_identifiers_count_from_0() -> None:
    """They are 0, 1, 2, and an insert that fails uses none up."""
    builder = DelegateMappingBuilder(generated_identifiers=True)
    assert builder.insert_delegate_mapping_entry(handles=5) == 0
    with pytest.raises(InvalidHandles):
        builder.insert_delegate_mapping_entry(handles=[None])
    assert builder.insert_delegate_mapping_entry(nodes=node(6)) == 1
    assert builder.get_delegate_mapping() == {0: (5,), 1: (6,)}


REFUSED: dict[str, tuple[type[InvalidEntry], dict[str, Any], str]] = {
    "unset": (InvalidIdentifier, {"handles": 1, "identifier": -1}, "-1, which means unset"),
    "beyond int32": (InvalidIdentifier, {"handles": 1, "identifier": 2**31}, "-2147483648 to 2147483647"),
    "below int32": (InvalidIdentifier, {"handles": 1, "identifier": -(2**31) - 1}, "-2147483648 to 2147483647"),
    "bool": (InvalidIdentifier, {"handles": 1, "identifier": True}, "a bool: an identifier is an int or a str"),
    "float": (InvalidIdentifier, {"handles": 1, "identifier": 1.0}, "a float: an identifier is an int or a str"),
    "empty": (InvalidIdentifier, {"handles": 1, "identifier": ""}, "a text of 0 bytes"),
    "long": (InvalidIdentifier, {"handles": 1, "identifier": "x" * 4097}, "a text of 4097 bytes"),
    "half a character": (InvalidIdentifier, {"handles": 1, "identifier": "\ud800"}, r"\\ud800.*surrogate"),
    "C string": (InvalidIdentifier, {"handles": 1, "identifier": "a\0b"}, "ends at the first NUL"),
    "other type": (InvalidIdentifier, {"handles": 1, "identifier": 7}, '7 beside "there": .* all int or all str'),
    "none": (InvalidIdentifier, {"handles": 1}, "no identifier"),
    "twice": (DuplicateIdentifier, {"handles": 1, "identifier": "there"}, '"there" for a second time'),
    "both": (InvalidHandles, {"nodes": node(1), "handles": 1, "identifier": "a"}, "both given"),
    "neither": (InvalidHandles, {"identifier": "a"}, "neither given"),
    "no handle": (InvalidHandles, {"nodes": [node(), node(other=1)], "identifier": "a"}, "without a debug handle"),
    "no nodes": (InvalidHandles, {"nodes": [], "identifier": "a"}, "without a debug handle"),
    "handle 0": (InvalidHandles, {"handles": [3, 0], "identifier": "a"}, r"handles\[1\]: 0; .* 0 means unset"),
    "node with 0": (InvalidHandles, {"nodes": node(0), "identifier": "a"}, "nodes: 0; .* 0 means unset"),
    "negative": (InvalidHandles, {"handles": -3, "identifier": "a"}, "handles: -3; a debug handle is 1 to 4294967295"),
    "beyond uint32": (InvalidHandles, {"handles": 2**32, "identifier": "a"}, "handles: 4294967296; "),
    "text": (InvalidHandles, {"handles": ["1"], "identifier": "a"}, r"handles\[0\]: a str; a debug handle is an int"),
    "set": (InvalidHandles, {"handles": {1}, "identifier": "a"}, "handles: a set; a debug handle is an int"),
    "true": (InvalidHandles, {"handles": True, "identifier": "a"}, "handles: a bool; a debug handle is an int"),
    "nested": (InvalidHandles, {"nodes": [node((1, 2))], "identifier": "a"}, r"nodes\[0\]: a tuple; a debug handle is an int"),
    "tuple of nodes": (InvalidHandles, {"nodes": (node(1),), "identifier": "a"}, "nodes: a tuple; give .* a list of nodes"),
    "no node": (InvalidHandles, {"nodes": [node(1), None], "identifier": "a"}, r"nodes\[1\]: a NoneType, which has no `meta`"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_work_is_refused(case: str) -> None:
    """Each is a `ValueError` of its kind that says the rule, and changes nothing."""
    kind, insert, message = REFUSED[case]
    builder = DelegateMappingBuilder()
    builder.insert_delegate_mapping_entry(handles=9, identifier="there")
    with pytest.raises(kind, match=message) as refused:
        builder.insert_delegate_mapping_entry(**insert)
    assert isinstance(refused.value, ValueError)
    assert builder.get_delegate_mapping() == {"there": (9,)}


def test_an_identifier_for_a_builder_that_generates_them() -> None:
    """It is refused, whatever it is."""
    builder = DelegateMappingBuilder(generated_identifiers=True)
    with pytest.raises(InvalidIdentifier, match="the builder generates them"):
        builder.insert_delegate_mapping_entry(handles=1, identifier=0)


IDENTIFIERS = st.one_of(st.integers(-(2**33), 2**33), st.text("ab\0\ud800", max_size=3), st.booleans(), st.none())
HANDLES = st.one_of(st.integers(-2, 2**33), st.none(), st.just("1"))
INSERTS = st.fixed_dictionaries(
    {}, optional={"identifier": IDENTIFIERS, "handles": st.one_of(HANDLES, st.lists(HANDLES, max_size=3))}
)


@given(generated=st.booleans(), inserts=st.lists(INSERTS, max_size=8))
def test_whatever_is_accepted_makes_a_mapping(*, generated: bool, inserts: list[dict[str, Any]]) -> None:
    """Any sequence of inserts leaves a map that a mapping can hold entry by entry; those that fail leave no trace."""
    builder = DelegateMappingBuilder(generated)
    expected: dict[int | str, tuple[int, ...]] = {}
    for insert in inserts:
        before = builder.get_delegate_mapping()
        try:
            identifier = builder.insert_delegate_mapping_entry(**insert)
        except InvalidEntry:
            assert builder.get_delegate_mapping() == before
            continue
        given = insert["handles"]
        several = given if isinstance(given, list) else [given]
        expected[identifier] = tuple(sorted({handle for handle in several if handle is not None}))
    assert builder.get_delegate_mapping() == expected
    call = pb.Instruction(delegate="Toy", handles=[handle for handles in expected.values() for handle in handles])
    for key, handles in expected.items():
        call.entries.add(handles=handles, **{"number": key} if isinstance(key, int) else {"text": key})
    kept = canonical(pb.Mapping(format=1, methods=[pb.Method(name="forward", instructions=[call])]))
    assert len(kept.methods[0].instructions[0].entries) == len(expected)


def test_nothing_of_torch_is_imported() -> None:
    """The whole room can be imported, and maps built, where torch and ExecuTorch cannot be."""
    program = """
import sys
sys.modules["torch"] = sys.modules["executorch"] = None  # an import of them raises
import otel_bridge.aot as aot
builder = aot.DelegateMappingBuilder(generated_identifiers=True)
builder.insert_delegate_mapping_entry(handles=1)
assert builder.get_delegate_mapping() == {0: (1,)}
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
