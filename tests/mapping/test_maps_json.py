import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.mappings import capture, relation_of

from otel_bridge.errors import MalformedMapping
from otel_bridge.mapping.maps_json import read_maps


def maps(handles: Any = None, delegates: Any = None) -> bytes:
    """The text of a maps JSON; str is raw JSON."""
    handles = {"forward": {"0": [1], "1": 2}} if handles is None else handles
    delegates = {"forward": {"0": {"name": "Toy", "delegate_map": {"a": [1]}}}} if delegates is None else delegates
    raw = [value if isinstance(value, str) else json.dumps(value) for value in (handles, delegates)]
    return f'{{"debug_handle_map": {raw[0]}, "delegate_map": {raw[1]}}}'.encode()


def entry(key: str, value: str) -> str:
    """A delegate map of one raw entry."""
    return f'{{"forward": {{"0": {{"name": "Toy", "delegate_map": {{{key}: {value}}}}}}}}}'


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("0", "untyped"),
        ("7", "untyped"),
        ("-2", "untyped"),
        ("2147483647", "untyped"),
        ("-2147483648", "untyped"),
        ("-1", "text"),
        ("-0", "text"),
        ("007", "text"),
        ("2147483648", "text"),
        ("-2147483649", "text"),
        ("1.0", "text"),
        (" 1", "text"),
        ("1\n", "text"),
        ("\u0664", "text"),
        ("True", "text"),
        ("conv #1", "text"),
    ],
)
def test_type_of_identifiers(key: str, kind: str) -> None:
    """A key of JSON may stand for an int only if it is the canonical text of one that a runtime can log."""
    mapping = read_maps(maps(delegates=entry(json.dumps(key), "[1]")))
    assert relation_of(mapping) == {("forward", 0, kind, key, (1,))}


def test_unset_handles_drop_out() -> None:
    """`null` and 0 are ExecuTorch's words for no handle; what is repeated counts once."""
    mapping = read_maps(maps({"forward": {"0": [3, None, 0, 1, 3], "1": None, "2": 0}}, entry('"a"', "[0, null, 2, 2]")))
    (instruction,) = mapping.methods[0].instructions
    assert (instruction.id, list(instruction.handles), list(instruction.entries[0].handles)) == (0, [1, 3], [2])


def test_null_map() -> None:
    """A backend that gives no map is a delegate call without entries; so is one that gives an empty one."""
    for given_map in ("null", "{}"):
        mapping = read_maps(maps(delegates=f'{{"forward": {{"0": {{"name": "Toy", "delegate_map": {given_map}}}}}}}'))
        assert mapping.methods[0].instructions[0].delegate == "Toy"
        assert relation_of(mapping) == set()


def test_order_of_members() -> None:
    """What else stands in the file, and the order in which things stand, changes nothing."""
    value = json.loads(capture("toy_backend_str", "maps.json"))
    turned = {"else": [float("nan")], **dict(reversed(value.items()))}
    assert read_maps(json.dumps(turned).encode()) == read_maps(b"\xef\xbb\xbf" + capture("toy_backend_str", "maps.json"))


CALL = "delegate_map[forward][0]"


@pytest.mark.parametrize(
    ("data", "where", "way_out"),
    [
        (b"[]", "maps JSON: a list of 0", "is an object"),
        (b"{}", "debug_handle_map: missing", "ExecutorchProgramManager"),
        (b'{"debug_handle_map": {}, "debug_handle_map": {}}', "maps JSON[debug_handle_map]: a key that is given twice", "once"),
        (b'{"debug_handle_map": NaN}', "debug_handle_map: nan, which is no JSON number", "is an object"),
        (maps([]), "debug_handle_map: a list of 0", "ExecutorchProgramManager"),
        (maps("3"), "debug_handle_map: the number 3", "is an object"),
        (maps({"forward": [1]}), "debug_handle_map[forward]: a list of 1", "is an object"),
        (maps({"": {"0": 1}}), "methods[", "at least one character"),
        (maps('{"forward": {"1": 1, "1": 2}}'), "debug_handle_map[forward][1]: a key that is given twice", "once"),
        (maps('{"a": {"1": 1}, "a": {"1": 2}}'), "debug_handle_map[a]: a key that is given twice", "once"),
        (maps({"forward": {"01": 1}}), 'debug_handle_map[forward][01]: the key "01"', "from 0 to 2147483647"),
        (maps({"forward": {"-1": 1}}), 'the key "-1"', "from 0 to 2147483647"),
        (maps({"forward": {"2147483648": 1}}), 'the key "2147483648"', "from 0 to 2147483647"),
        (maps({"forward": {"x\x1b": 1}}), 'debug_handle_map[forward]["x\\u001b"]', "from 0 to 2147483647"),
        (maps({"forward": {"1": "2"}}), 'debug_handle_map[forward][1]: the string "2"', "integer from 0 to 4294967295"),
        (maps({"forward": {"1": True}}), "debug_handle_map[forward][1]: true", "integer from 0 to 4294967295"),
        (maps({"forward": {"1": 2.0}}), "debug_handle_map[forward][1]: the number 2.0", "integer from 0 to 4294967295"),
        (maps({"forward": {"1": -2}}), "debug_handle_map[forward][1]: the number -2", "integer from 0 to 4294967295"),
        (maps({"forward": {"1": 2**32}}), "debug_handle_map[forward][1]: the number 4294967296", "integer from 0 to"),
        (maps('{"forward": {"1": NaN}}'), "debug_handle_map[forward][1]: nan, which is no JSON number", "integer from 0 to"),
        (maps('{"forward": {"1": 1e400}}'), "debug_handle_map[forward][1]: inf, which is no JSON number", "integer from 0 to"),
        (maps('{"forward": {"1": ' + "9" * 5000 + "}}"), "debug_handle_map[forward][1]: inf", "integer from 0 to"),
        (maps({"forward": {"0": [1, [2, 3]]}}), "debug_handle_map[forward][0][1]: a list of 2", "integer from 0 to"),
        (maps({"forward": {"3": [1]}}), "debug_handle_map[forward][3]: a list of handles", "as a number"),
        (maps(delegates=[]), "delegate_map: a list of 0", "is an object"),
        (maps(delegates={"forward": 1}), "delegate_map[forward]: the number 1", "is an object"),
        (maps(delegates={"forward": {"0": None}}), f"{CALL}: null", "is an object"),
        (maps(delegates={"forward": {"0": {}}}), f"{CALL}.name: null", "string"),
        (maps(delegates={"forward": {"0": {"name": ""}}}), f'{CALL}.name: the string ""', "string"),
        (
            maps(delegates={"forward": {"0": {"name": "X", "delegate_map": [1]}}}),
            f"{CALL}.delegate_map: a list of 1",
            "is an object",
        ),
        (maps(delegates=entry('"a"', "1")), f"{CALL}.delegate_map[a]: the number 1", "is a list"),
        (maps(delegates=entry('"a"', '["1"]')), f'{CALL}.delegate_map[a][0]: the string "1"', "integer from 0 to"),
        (maps(delegates=entry('"a"', "[[1, 2]]")), f"{CALL}.delegate_map[a][0]: a list of 2", "integer from 0 to"),
        (maps(delegates=entry('"a"', "[1], " + '"a": [2]')), f"{CALL}.delegate_map[a]: a key that is given twice", "once"),
        (maps(delegates=entry('"\\ud800"', "[1]")), f'{CALL}.delegate_map["\\ud800"]: half of a surrogate pair', "UTF-8"),
        (maps(delegates=entry('""', "[1]")), "methods[forward].instructions[0].entries[at 0]: an empty string", "at least one"),
        (maps(delegates=entry(f'"{"x" * 4097}"', "[1]")), "entries[at 0]: a text of 4097 characters", "at most 4096"),
    ],
)
def test_refused(data: bytes, where: str, way_out: str) -> None:
    """What is not a map is told with its path, what was found and the way out; foreign text is escaped and cut."""
    with pytest.raises(MalformedMapping) as caught:
        read_maps(data)
    message = str(caught.value)
    assert where in message
    assert way_out in message
    assert message.isprintable()
    assert len(message) < 500


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["0", "1", "name", "delegate_map", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(values, values)
def test_any_json(handles: Any, delegates: Any) -> None:
    """Whatever JSON holds, the answer is a mapping or a refusal, never another error."""
    with suppress(MalformedMapping):
        read_maps(json.dumps({"debug_handle_map": handles, "delegate_map": delegates}).encode())
