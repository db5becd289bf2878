"""
A debug handle map, searched where it lies: in the document as protobuf has parsed it.

Invariant: entries are in the order of canonical documents (mapping/document.py): numbers ascending, then texts ascending, then
keys that have lost their type, ascending by the number that they stand for too.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from operator import attrgetter

from otel_bridge.mapping.identity import number_in
from otel_bridge.model.events import Identifier
from otel_bridge.v1 import mapping_pb2 as pb

_RANK = {"number": 0, "text": 1, "untyped": 2}
_NUMBER: Callable[[pb.MapEntry], int] = attrgetter("number")
_TEXT: Callable[[pb.MapEntry], str] = attrgetter("text")


class Entries:
    """The entries of one instruction. What an identifier costs to find grows with the logarithm of their number."""

    def __init__(self, entries: Sequence[pb.MapEntry]) -> None:
        self._entries = entries
        self._texts = bisect_left(entries, _RANK["text"], key=_rank)
        self._untyped = bisect_left(entries, _RANK["untyped"], self._texts, key=_rank)

    def find(self, identifier: Identifier) -> pb.MapEntry | None:
        """The entry that stands for this identifier; None: there is none."""
        entries = self._entries
        if isinstance(identifier, str):
            place = bisect_left(entries, identifier, self._texts, self._untyped, key=_TEXT)
            if place < self._untyped and entries[place].text == identifier:
                return entries[place]
            number = number_in(identifier) if self._untyped < len(entries) else None
        else:
            place = bisect_left(entries, identifier, 0, self._texts, key=_NUMBER)
            if place < self._texts and entries[place].number == identifier:
                return entries[place]
            number = identifier
        if number is None:
            return None
        place = bisect_left(entries, number, self._untyped, key=_untyped)
        return entries[place] if place < len(entries) and _untyped(entries[place]) == number else None


def _rank(entry: pb.MapEntry) -> int:
    return _RANK[entry.WhichOneof("identifier") or "number"]


def _untyped(entry: pb.MapEntry) -> int:
    return int(entry.untyped)
