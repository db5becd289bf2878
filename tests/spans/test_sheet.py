"""Attributes of many spans, a column at a time, are those that are written one by one."""

import struct

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from otel_bridge.spans import sheet as sheets
from otel_bridge.spans.encode import span_attributes
from otel_bridge.spans.sheet import Sheet

ROWS = st.lists(
    st.tuples(
        st.integers(-(2**63), 2**63 - 1) | st.integers(-1, 300),
        st.floats(allow_nan=False, allow_infinity=False),
        st.booleans(),
        st.binary(min_size=3, max_size=3),
        st.integers(0, 2**14),
    ),
    min_size=1,
    max_size=40,
)


@given(ROWS, st.data())
def test_filled_forms_are_what_is_written_one_by_one(
    rows: list[tuple[int, float, bool, bytes, int]], data: st.DataObject
) -> None:
    """Whatever the values, in any order and some of them only, with anything between them: byte for byte."""
    whole, number, flag, text, small = zip(*rows, strict=True)
    columns = [
        np.array(whole, np.int64),
        np.array(number, np.float64),
        np.array(flag, np.bool_),
        np.array([each.hex() for each in text], "S6"),
        np.array(small, np.int64),
    ]
    sheet = Sheet({f"executorch.k{index}": column for index, column in enumerate(columns)}, len(rows))
    entries = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=60))
    between = data.draw(st.binary(max_size=3))
    written = bytearray()
    at = []
    for entry in entries:
        written += between
        at.append(len(written))
        written += sheet.forms[sheet.form[entry]]
    sheet.fill(np.frombuffer(written, np.uint8), np.array(at, np.int64), np.array(entries, np.int64))
    expected = [sheet.attributes(entry) for entry in entries]
    assert bytes(written) == b"".join(between + span_attributes(each) for each in expected)
    said = [tuple(value for _, value in each) for each in expected]
    assert said == [(*rows[entry][:3], rows[entry][3].hex(), rows[entry][4]) for entry in entries]


def test_forms_are_few() -> None:
    """Values of equally many bytes share a form, however many there are."""
    numbers = np.frombuffer(struct.pack("<1000H", *range(1000)), "<u2")
    sheet = Sheet({"a": numbers.astype(np.int64), "b": numbers[::-1].astype(np.int64)}, 1000)
    assert len(sheet) == 1000
    assert len(sheet.forms) == 3


def test_a_form_of_long_texts_is_not_remembered() -> None:
    """What is remembered of a layout that somebody uploads is small, whatever lengths its devices' values have."""
    for length, kept in ((8, 1), (2048, 0)):
        sheets._known_form.cache_clear()
        Sheet({"executorch.text": np.array([b"x" * length]), "executorch.number": np.array([1], np.int64)}, 1)
        assert sheets._known_form.cache_info().currsize == kept
