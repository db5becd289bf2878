"""
Our builder of debug handle maps beside ExecuTorch's.

Usage: compare_builders.py CASES.json
First any sequence of inserts is tried with both (Hypothesis). Then CASES, a list of texts, each one insert or several divided
by `;` as arguments of `insert_delegate_mapping_entry`, where `node(1)` is a node with debug handle 1: printed is a JSON list of
what each gives, [theirs, ours]: the names of the exceptions that it raises, and the map in the end.
"""

import ast
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from executorch.exir.backend.utils import DelegateMappingBuilder as Theirs
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_bridge.aot import DelegateMappingBuilder as Ours
from otel_bridge.aot import InvalidEntry

Insert = dict[str, Any]


def node(*handle: object) -> SimpleNamespace:
    """A node with that debug handle, or without one."""
    return SimpleNamespace(meta={"debug_handle": handle[0]} if handle else {})


_IDENTIFIERS = st.one_of(
    st.integers(-(2**31), 2**31 - 1),
    st.integers(-2, 5),
    st.text("ab\0", max_size=3),
    st.sampled_from([True, 1.5, 2**31, "a\0"]),
    st.none(),
)
_HANDLES = st.one_of(st.integers(1, 9), st.none(), st.sampled_from([0, -1, 2**32, "1", True]))
_NODES = st.builds(node, _HANDLES) | st.builds(node) | st.none()
_INSERTS = st.fixed_dictionaries(
    {},
    optional={
        "identifier": _IDENTIFIERS,
        "handles": st.one_of(_HANDLES, st.lists(_HANDLES, max_size=4), st.lists(_HANDLES, max_size=4).map(tuple)),
        "nodes": st.one_of(_NODES, st.lists(_NODES, max_size=4)),
    },
)
_VALID_HANDLES = st.integers(1, 9)
_VALID_INSERTS = st.one_of(
    st.fixed_dictionaries({"handles": st.one_of(_VALID_HANDLES, st.lists(st.none() | _VALID_HANDLES, max_size=4))}),
    st.fixed_dictionaries({"nodes": st.one_of(_VALID_HANDLES.map(node), st.lists(_VALID_HANDLES.map(node), max_size=4))}),
)


@settings(max_examples=400, deadline=None)
@given(generated=st.booleans(), inserts=st.lists(_INSERTS | _VALID_INSERTS, max_size=10))
def agree(*, generated: bool, inserts: list[Insert]) -> None:
    """What ours accepts theirs accepts, with the same result; what ours refuses changes nothing."""
    ours, theirs = Ours(generated), Theirs(generated)
    for insert in inserts:
        before = ours.get_delegate_mapping()
        try:
            identifier = ours.insert_delegate_mapping_entry(**insert)
        except InvalidEntry:
            assert ours.get_delegate_mapping() == before
            continue
        assert same(theirs.insert_delegate_mapping_entry(**insert), identifier)
        assert same(list(theirs.get_delegate_mapping().items()), list(ours.get_delegate_mapping().items()))


@settings(max_examples=400, deadline=None)
@given(kind=st.sampled_from([None, int, str]), inserts=st.lists(_VALID_INSERTS, max_size=10), repeated=st.booleans())
def agree_on_valid_use(*, kind: type | None, inserts: list[Insert], repeated: bool) -> None:
    """Valid use of either mode gives the same with both; where theirs refuses valid types, as a duplicate, so does ours."""
    ours, theirs = Ours(kind is None), Theirs(kind is None)
    for number, insert in enumerate(inserts):
        key = {} if kind is None else {"identifier": kind(number // 2 if repeated else number)}
        burnt = theirs._next_index
        try:
            given_back = theirs.insert_delegate_mapping_entry(**insert, **key)
        except Exception:  # noqa: BLE001 - theirs raises nothing else
            theirs._next_index = burnt  # what it then counts on from is one of the differences
            refuses(ours, insert | key)
            continue
        assert same(given_back, ours.insert_delegate_mapping_entry(**insert, **key))
    assert same(list(theirs.get_delegate_mapping().items()), list(ours.get_delegate_mapping().items()))


def same(theirs: object, ours: object) -> bool:
    """Equal, types included: 1 is not True."""
    return repr(theirs) == repr(ours)


def refuses(builder: Ours, insert: Insert) -> None:
    """It must be refused."""
    try:
        builder.insert_delegate_mapping_entry(**insert)
    except InvalidEntry:
        return
    raise AssertionError(f"accepted: {insert}")


def outcome(builder: Any, case: str) -> str:
    """What a sequence of inserts gives: the exceptions in their order, then the map if there is anything in it."""
    said = []
    for insert in case.split(";"):
        arguments = ast.parse(f"f({insert})", mode="eval").body.keywords  # type: ignore[attr-defined]  # it is a call
        try:
            builder.insert_delegate_mapping_entry(**{each.arg: value_of(each.value) for each in arguments})
        except Exception as error:  # noqa: BLE001 - the name is what is asked for
            said.append(type(error).__name__)
    try:
        said += [repr(found)] if (found := builder.get_delegate_mapping()) else []
    except TypeError as error:  # theirs sorts only now
        said.append(type(error).__name__)
    return ", ".join(said)


def value_of(expression: ast.expr) -> Any:
    """The value of a literal, with `node(...)` for nodes and `**` for powers."""
    if isinstance(expression, ast.Call):
        return node(*map(value_of, expression.args))
    if isinstance(expression, ast.BinOp):
        return value_of(expression.left) ** value_of(expression.right)
    if isinstance(expression, ast.List | ast.Tuple):
        values = [value_of(each) for each in expression.elts]
        return values if isinstance(expression, ast.List) else tuple(values)
    return ast.literal_eval(expression)


if __name__ == "__main__":
    agree()
    agree_on_valid_use()
    cases = json.loads(Path(sys.argv[1]).read_text())
    modes = [(case.removeprefix("generated: "), case.startswith("generated: ")) for case in cases]
    print(json.dumps([[outcome(Theirs(mode), case), outcome(Ours(mode), case)] for case, mode in modes]))  # noqa: T201 - the answer
