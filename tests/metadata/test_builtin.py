"""The decoders that come with the bridge."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_bridge.metadata.builtin import decode_auto, decode_json, decode_raw, decode_utf8
from otel_bridge.metadata.decoder import MAX_KEYS, MAX_RAW_BYTES, MAX_TEXT, MAX_VALUES, Content, content_of


@pytest.mark.parametrize(
    ("data", "pairs"),
    [
        (b'{"op":"tan","sram":3072}', (("op", "tan"), ("sram", 3072.0))),
        (b'{"A b-C":1}', (("a_b_c", 1.0),)),
        (b'{"on":true,"off":false,"none":null}', (("on", "true"), ("off", "false"), ("none", "null"))),
        (b'{"deep":{"a":[1,2]},"list":[]}', (("deep", '{"a":[1,2]}'), ("list", "[]"))),
        ('{"ü":"ä"}'.encode(), ()),
        (b'{"x":"\\ud800"}', (("x", "\ud800"),)),
    ],
)
def test_a_json_object_gives_one_attribute_a_key(data: bytes, pairs: tuple[tuple[str, object], ...]) -> None:
    """Numbers are double, all else is text; keys are cut to [a-z0-9_]."""
    assert pairs == decode_json(data).pairs


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"{", "not JSON"),
        (b"[1]", "not an object"),
        (b'"x"', "not an object"),
        (b'{"x":\xff}', "not UTF-8 at byte 5"),
        (b"[" * 100_000, "not JSON"),
        (b"{}", "empty dict"),
        (b'{"n":NaN}', "n is not a finite number"),
        (b'{"n":Infinity,"m":-Infinity}', "n is not a finite number"),
        (b'{"n":1e400}', "n is not a finite number"),
        (b'{"n":' + b"9" * 400 + b"}", "n is not a finite number"),
        (b'{"n":' + b"9" * 5000 + b"}", "not JSON"),
    ],
)
def test_what_is_no_usable_json_object_stays_raw_and_says_why(data: bytes, said: str) -> None:
    """Raw bytes and an error, never an exception."""
    content = decode_json(data)
    assert data[:MAX_RAW_BYTES].hex() == content.raw
    assert said in content.error


def test_no_depth_of_nesting_breaks_a_decoder() -> None:
    """Reading and writing JSON need different amounts of stack: at every depth something comes out, and nothing is raised."""
    for depth in range(0, 1200, 3):
        content = decode_json(b'{"a":' + b"[" * depth + b"]" * depth + b"}")
        assert content.pairs or content.raw


def test_a_number_without_a_double_costs_its_key_only() -> None:
    """The rest of the object is kept."""
    content = decode_json(b'{"n":NaN,"op":"tan"}')
    assert (content.pairs, content.error, content.raw) == ((("op", "tan"),), "n is not a finite number", "")


def test_utf8_gives_one_value_or_stays_raw() -> None:
    """Text is shown, other bytes are not made into text."""
    assert decode_utf8("grüße".encode()).values == ("grüße",)
    assert (decode_utf8(b"\x00\xff").raw, decode_utf8(b"\x00\xff").error) == ("00ff", "not UTF-8 at byte 1")


def test_auto_reads_an_object_else_printable_text_else_hex() -> None:
    """Guessing is not an error: nothing was promised."""
    assert decode_auto(b' {"a":1}').pairs == (("a", 1.0),)
    assert decode_auto(b"{not json").values == ("{not json",)
    assert decode_auto(b"two\nlines").values == ("two\nlines",)
    for data in (b"\x1b[31mred", b"\x00\x01\x02\xff\xfe\x00\x07\x08"):
        assert Content(raw=data.hex()) == decode_auto(data)


@given(st.binary(min_size=1, max_size=3000))
def test_no_bytes_break_a_built_in_decoder(data: bytes) -> None:
    """Each gives something to show, within bounds, for any bytes."""
    for decode in (decode_json, decode_utf8, decode_raw, decode_auto):
        content = decode(data)
        assert content.pairs or content.values or content.raw
        assert len(content.raw) <= 2 * MAX_RAW_BYTES


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_any_answer_of_a_decoder_is_taken_within_bounds(answer: object) -> None:
    """Whatever a decoder gives: at most 32 keys of [a-z0-9_], 128 values, 2,048 characters each."""
    content = content_of(answer, b"x")
    assert len(content.pairs) <= MAX_KEYS
    assert len(content.values) <= MAX_VALUES
    assert all(key and set(key) <= set("abcdefghijklmnopqrstuvwxyz0123456789_") for key, _ in content.pairs)
    assert all(len(value) <= MAX_TEXT for value in content.values)
    assert all(isinstance(value, float) or len(value) <= MAX_TEXT for _, value in content.pairs)


def test_keys_that_become_one_keep_the_first() -> None:
    """`A` and `a` are one attribute; the second is told, not silently lost."""
    content = content_of({"A": 1, "a": 2, "!": 3}, b"x")
    assert content.pairs == (("a", 1.0),)
    assert "key 1" in content.error
    assert "key 2" in content.error


def test_json_that_python_writes_comes_back() -> None:
    """Nested values survive as JSON text."""
    assert json.loads(str(dict(decode_json(b'{"v":{"a":[1,{"b":null}]}}').pairs)["v"])) == {"a": [1, {"b": None}]}
