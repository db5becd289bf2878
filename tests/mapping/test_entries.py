"""Maps are searched where they lie, and every entry is found."""

from hypothesis import given
from hypothesis import strategies as st

from otel_bridge.mapping.document import canonical
from otel_bridge.mapping.entries import Entries
from otel_bridge.mapping.identity import identifiers_of, key_of
from otel_bridge.model.events import Identifier
from otel_bridge.v1 import mapping_pb2 as pb

numbers = st.integers(-(2**31), 2**31 - 1).filter(lambda number: number != -1) | st.integers(0, 30)
words = st.text(min_size=1, max_size=6) | numbers.map(str)


def canonical_entries(*entries: pb.MapEntry) -> list[pb.MapEntry]:
    """These entries, ordered as documents have them."""
    call = pb.Instruction(id=0, delegate="Toy", entries=entries)
    mapping = pb.Mapping(format=1, methods=[pb.Method(name="forward", instructions=[call])])
    return list(canonical(mapping).methods[0].instructions[0].entries)


def table_of(entries: list[pb.MapEntry]) -> dict[Identifier, pb.MapEntry]:
    """What each identifier finds."""
    return {identifier: entry for entry in entries for identifier in identifiers_of(*key_of(entry))}


@st.composite
def entries_of_all_kinds(draw: st.DrawFn) -> list[pb.MapEntry]:
    """Numbers, texts and keys that have lost their type, among which no identifier comes twice."""
    found: list[pb.MapEntry] = []
    seen: set[Identifier] = set()
    for kind, key in draw(
        st.lists(st.tuples(st.just("number"), numbers) | st.tuples(st.sampled_from(["text", "untyped"]), words), max_size=40)
    ):
        stands_for = identifiers_of(kind, key)
        if seen.isdisjoint(stands_for):
            seen.update(stands_for)
            found.append(pb.MapEntry(**{kind: key}, handles=[len(found) + 1]))
    return canonical_entries(*found)


@given(entries_of_all_kinds(), st.lists(numbers | words))
def test_an_identifier_finds_its_entry_and_no_other(entries: list[pb.MapEntry], others: list[Identifier]) -> None:
    """As a table of all identifiers would: every one of the map, and none that is not in it."""
    table, searched = table_of(entries), Entries(entries)
    for identifier in [*table, *others, *map(str, table)]:
        assert searched.find(identifier) == table.get(identifier)
