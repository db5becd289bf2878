"""What a mapping tells of source paths."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.mappings import CAPTURES, capture

from otel_bridge.mapping.disclosure import disclose
from otel_bridge.mapping.document import canonical, first_difference
from otel_bridge.mapping.etrecord import read_etrecord
from otel_bridge.v1 import mapping_pb2 as pb


def mapping_with(*files: str) -> pb.Mapping:
    """One kernel whose operators come from these files."""
    operators = [pb.Operator(name="aten.add.Tensor", node=f"n{at}", file=file, line=7) for at, file in enumerate(files)]
    known = pb.HandleOperators(handle=1, operators=operators)
    call = pb.Instruction(id=0, handles=[1], operators=[known])
    return canonical(pb.Mapping(format=1, methods=[pb.Method(name="forward", instructions=[call])]))


def files_in(mapping: pb.Mapping) -> list[str]:
    """The files of `mapping_with`."""
    return [operator.file for operator in mapping.methods[0].instructions[0].operators[0].operators]


@pytest.mark.parametrize(
    ("file", "prefixes", "kept"),
    [
        ("/builds/net/models/a.py", ["/builds/net"], "models/a.py"),
        ("/builds/net/models/a.py", ["/builds/net/"], "models/a.py"),
        ("/builds/net/models/a.py", ["/builds", "/builds/net"], "models/a.py"),
        ("/builds/network/a.py", ["/builds/net"], "/builds/network/a.py"),
        ("/builds/net", ["/builds/net"], "/builds/net"),
        ("/builds/net/", ["/builds/net"], "/builds/net/"),
        ("C:\\src\\net\\a.py", ["C:\\src"], "net\\a.py"),
        ("C:\\src\\net\\a.py", ["C:\\src\\"], "net\\a.py"),
        ("/a.py", ["/"], "a.py"),
        ("x/home/a.py", ["/home"], "x/home/a.py"),
        ("models/a.py", [""], "models/a.py"),
        ("models/a.py", ["models"], "a.py"),
        ("/a+b/c.py", ["/a+b"], "c.py"),
    ],
)
def test_prefixes(file: str, prefixes: list[str], kept: str) -> None:
    """The longest folder that a file lies in is taken off; folders match whole, and never all of a path."""
    told = disclose(mapping_with(file, "other.py"), strip_prefix=prefixes)
    assert files_in(told) == [kept, "other.py"]


@pytest.mark.parametrize("model", CAPTURES)
def test_nothing_else_changes(model: str) -> None:
    """Without its files and lines a mapping is canonical and has all else; it resolves as before."""
    before = read_etrecord(capture(model))
    told = disclose(before, with_source=False)
    assert canonical(told) == told
    assert first_difference(before, told) is None
    for mapping in (before, told):
        for method in mapping.methods:
            for instruction in method.instructions:
                for known in instruction.operators:
                    for operator in known.operators:
                        assert mapping is before or (operator.file, operator.line) == ("", 0)
                        operator.ClearField("file")
                        operator.ClearField("line")
    assert before == told


PARTS = st.sampled_from(["a", "b", "a+", ".", "..", ""])


@given(files=st.lists(st.lists(PARTS, min_size=1, max_size=4).map("/".join), min_size=1, max_size=3), folder=PARTS)
def test_a_path_becomes_its_own_end(files: list[str], folder: str) -> None:
    """What is left is the end of the path, not empty where it was not, and what was given is not touched."""
    mapping = mapping_with(*files)
    given = files_in(mapping)
    told = disclose(mapping, strip_prefix=[folder, "a/b"])
    assert all(
        before.endswith(after) and bool(after) == bool(before) for before, after in zip(given, files_in(told), strict=True)
    )
    assert files_in(mapping) == given
    assert canonical(told) == told
