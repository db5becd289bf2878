"""Ids are derived, and the derivation is an interface."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.scenes import STREAM, execute

from otel_bridge.model.events import Part
from otel_bridge.spans import ids

DERIVED = bytes.fromhex("000102030405060708090a0b0c0d0e0f")


def keys_of(derived: bytes) -> NDArray[np.uint64]:
    """The halves of a derived trace id, as a key of one row."""
    return np.frombuffer(derived, ">u8").astype(np.uint64).reshape(1, 2)


def span_id(place: int, derived: bytes = DERIVED) -> int:
    """The id of one place."""
    keys = keys_of(derived)
    return int(ids.span_ids(np.array([place], np.uint64), keys)[0])


def test_trace_ids_are_pinned() -> None:
    """A change of these values makes every stored link and every replay wrong."""
    assert ids.trace_id(STREAM, execute(0)).hex() == "8ad60eb6cba084aee220d19082df7acb"
    assert ids.trace_id(replace(STREAM, sequence=3, tenant="acme"), execute(7)).hex() == "8d123213664d9844e5e1aea969fc4bcf"
    assert ids.trace_id(replace(STREAM, content=bytes(32)), execute(0)).hex() == "b473ff136461adeaa00cd97f6dedb470"


def test_span_ids_are_pinned() -> None:
    """The root, a row, and an instruction of one trace."""
    row = int(ids.place_by_row(np.array([5], np.int64))[0])
    call = int(ids.place_by_instruction(np.array([3], np.int32), np.array([1], np.uint8), np.array([2], np.uint32))[0])
    assert [f"{span_id(place):016x}" for place in (ids.ROOT_PLACE, row, call)] == [
        "00f08cbc21722737",
        "96c74aab5563594e",
        "3444acb7aefb83ea",
    ]


def test_everything_that_names_an_inference_changes_its_trace() -> None:
    """Tenant, stream, request, content and position each count."""
    streams = [
        STREAM,
        replace(STREAM, tenant="a"),
        replace(STREAM, stream_id=b"x" * 16),
        replace(STREAM, sequence=1),
        replace(STREAM, content=b"y" * 32),
    ]
    found = {ids.trace_id(stream, execute(position)) for stream in streams for position in (0, 1)}
    assert len(found) == 10


def test_what_an_inference_is_resolved_with_does_not_change_its_trace() -> None:
    """A mapping that arrives between two attempts must not make a second trace."""
    assert ids.trace_id(STREAM, execute(0)) == ids.trace_id(replace(STREAM, build="other", received_ns=1), execute(0))


def test_parts_of_one_inference_share_its_trace() -> None:
    """Part n travels n requests after part 0."""
    first = ids.trace_id(replace(STREAM, sequence=8), execute(4, part=Part(0, last=False, first_event=0)))
    last = ids.trace_id(replace(STREAM, sequence=10), execute(4, part=Part(2, last=True, first_event=900)))
    assert first == last


@given(st.lists(st.integers(0, 2**64 - 1), min_size=2, max_size=200, unique=True), st.binary(min_size=16, max_size=16))
def test_no_two_places_of_a_trace_share_an_id(places: list[int], derived: bytes) -> None:
    """The mix is a bijection under any key, and never zero."""
    keys = np.tile(keys_of(derived), (len(places), 1))
    found = ids.span_ids(np.array(places, np.uint64), keys).tolist()
    assert len(places) == len(set(found))
    assert 0 not in found


@given(st.integers(0, 2**31 - 1), st.integers(0, 255), st.integers(0, ids.MAX_OCCURRENCES - 1), st.integers(0, 2**40))
def test_places_do_not_overlap(instruction: int, chain: int, occurrence: int, row: int) -> None:
    """An instruction's place tells its instruction, chain and occurrence, and is never a row's or the root's."""
    place = int(
        ids.place_by_instruction(
            np.array([instruction], np.int32), np.array([chain], np.uint8), np.array([occurrence], np.uint32)
        )[0]
    )
    assert (instruction, occurrence, chain, 2) == (
        place & (2**31 - 1),
        place >> 31 & (2**23 - 1),
        place >> 54 & 255,
        place >> 62,
    )
    assert int(ids.place_by_row(np.array([row], np.int64))[0]) >> 62 == 1
