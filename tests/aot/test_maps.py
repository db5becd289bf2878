"""Live maps of a program manager, without torch."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_bridge.aot.maps import read_live_maps
from otel_bridge.errors import MalformedMapping
from otel_bridge.mapping.document import canonical
from otel_bridge.mapping.identity import key_of
from otel_bridge.mapping.maps_json import mapping_of


def live(entries: object, *, handles: object = (1, 2), kernel: object = 3) -> Any:
    """The mapping of a delegate call at instruction 0 and a kernel call at 1."""
    return read_live_maps({"forward": {0: handles, 1: kernel}}, {"forward": {0: {"name": "Toy", "delegate_map": entries}}})


def test_types_of_identifiers() -> None:
    """1 and "1" are two identifiers; handles may be tuples or lists, with None and 0 for none, or not be there at all."""
    mapping = canonical(live({1: (1,), "1": [2, None, 0], "none": ()}, handles=[1, 2, None, 2]))
    delegate, kernel = mapping.methods[0].instructions
    assert [(*key_of(entry), list(entry.handles)) for entry in delegate.entries] == [
        ("number", 1, [1]),
        ("text", "1", [2]),
        ("text", "none", []),
    ]
    assert (list(delegate.handles), list(kernel.handles), kernel.delegate) == ([1, 2], [3], "")


@pytest.mark.parametrize("entries", [None, {}])
def test_a_backend_without_a_map(entries: object) -> None:
    """A call whose backend gave no map, or an empty one, has no entries."""
    assert not live(entries).methods[0].instructions[0].entries


REFUSED: dict[str, tuple[object, str]] = {
    "unset": ({-1: (1,)}, r"delegate_map\[forward\]\[0\].delegate_map\[at 0\]: the number -1; .* not -1"),
    "too large": ({"a": (1,), 2**31: (1,)}, r"delegate_map\[at 1\]: the number 2147483648; an identifier is a str, or an int"),
    "bool": ({True: (1,)}, r"\[at 0\]: true; "),
    "float": ({1.5: (1,)}, r"\[at 0\]: the number 1.5; "),
    "bytes": ({b"a": (1,)}, r'\[at 0\]: a value of type "bytes"; '),
    "half a character": ({"\ud800": (1,)}, r"\[at 0\]: half of a surrogate pair"),
    "nested handles": ({1: ((1, 2),)}, r"\[at 0\]\[0\]: a value of type \"tuple\"; a debug handle is an integer"),
    "negative handle": ({1: (-2,)}, r"\[at 0\]\[0\]: the number -2; a debug handle is an integer"),
    "one handle": ({1: 1}, r"\[at 0\]: the number 1; the value of an identifier is a list"),
    "no map": ([(1, (1,))], r"delegate_map\[forward\]\[0\].delegate_map: a list of 1; a debug handle map is a dict"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_resolved_with_is_refused(case: str) -> None:
    """A backend may have built its map by hand: the fault is told by its place."""
    entries, message = REFUSED[case]
    with pytest.raises(MalformedMapping, match=message):
        live(entries)


HANDLES = st.lists(st.integers(1, 9), max_size=3, unique=True)
ENTRIES = st.dictionaries(st.text("ab#", min_size=1, max_size=4), HANDLES.map(tuple), max_size=4)
CALLS = st.dictionaries(st.integers(0, 9), st.fixed_dictionaries({"name": st.just("Toy"), "delegate_map": ENTRIES}), max_size=4)


@given(calls=CALLS, kernels=st.dictionaries(st.integers(10, 19), st.integers(1, 9), min_size=1))
def test_agreement_with_maps_json(calls: dict[int, Any], kernels: dict[int, int]) -> None:
    """Where no identifier reads as a number, live maps and the same maps as JSON make one mapping."""
    handles: dict[int, Any] = {key: [1, 2] for key in calls}
    read = read_live_maps({"forward": handles | kernels}, {"forward": calls})
    as_json = {
        str(key): {"name": call["name"], "delegate_map": {text: list(given) for text, given in call["delegate_map"].items()}}
        for key, call in calls.items()
    }
    expected = mapping_of({"forward": {str(key): each for key, each in (handles | kernels).items()}}, {"forward": as_json})
    assert canonical(read) == canonical(expected)
