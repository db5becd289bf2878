"""
What changed between two builds of a model, operator by operator.

Invariants
* Operators are compared by their fingerprints (mapping/fingerprint.py): handles, instruction numbers and identifiers are made
  anew with every build, so that they differ says nothing.
* Where a mapping names no operators at all for a method (maps JSON), both sides of it are compared by handle instead, and the
  difference says so. A single handle without an operator stands for itself.
* Added, removed and moved concern the operators of a method that both mappings have.

An operator is at a kernel call, or at a delegate of a backend; where one handle stands for several operators of several
instructions, it is at all of them. Two operators are fused where one identifier lists both. Where a delegate has no map,
nothing is known of what it fuses, and nothing is said.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from otel_bridge.backends.table import backend_of
from otel_bridge.mapping.fingerprint import Fingerprint, fingerprints
from otel_bridge.mapping.identity import key_of
from otel_bridge.model.events import Identifier
from otel_bridge.v1 import mapping_pb2 as pb

KERNEL = "kernel"
"""Instead of a backend id: the operator is not delegated."""


@dataclass(frozen=True, slots=True)
class Move:
    """An operator that is run by another now. `before` and `after`: `KERNEL` and backend ids, ascending."""

    id: str
    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """An identifier of a delegate, and the operators that it stands for."""

    instruction: int
    identifier: Identifier
    operators: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Refusion:
    """Operators that are fused in another way now; both sides are of the same neighbourhood, and either may be empty."""

    before: tuple[Group, ...]
    after: tuple[Group, ...]


@dataclass(frozen=True, slots=True)
class MethodDiff:
    """
    What changed in one method. Operators are given by id: see `labels`.

    labels      id -> the operator for people
    places      of added and removed operators: `KERNEL` and backend ids, ascending
    by_handle   a side names no operators: ids are `handle N`, which count differently with every layer that is added
    """

    name: str
    added: tuple[str, ...]
    removed: tuple[str, ...]
    moved: tuple[Move, ...]
    fused: tuple[Refusion, ...]
    labels: Mapping[str, str]
    places: Mapping[str, tuple[str, ...]]
    by_handle: bool

    @property
    def is_equal(self) -> bool:
        """Whether nothing changed."""
        return not (self.added or self.removed or self.moved or self.fused)


@dataclass(frozen=True, slots=True)
class Diff:
    """What changed: methods that only one side has, and those that both have, ascending by name."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    methods: tuple[MethodDiff, ...]

    @property
    def is_equal(self) -> bool:
        """Whether the same operators run at the same places, fused alike."""
        return not (self.added or self.removed) and all(method.is_equal for method in self.methods)


def compare(before: pb.Mapping, after: pb.Mapping) -> Diff:
    """What changed from one canonical mapping to another."""
    old, new = ({method.name: method for method in mapping.methods} for mapping in (before, after))
    return Diff(
        added=tuple(sorted(new.keys() - old.keys())),
        removed=tuple(sorted(old.keys() - new.keys())),
        methods=tuple(_compare_methods(old[name], new[name]) for name in sorted(old.keys() & new.keys())),
    )


@dataclass(slots=True)
class _Side:
    """
    A method by operator: where each is run and what it is called, the groups, the numbers of those that list it, and the
    operators of delegates that tell of no groups.

    sets    a number for each set of operators, the same on both sides: comparing sets themselves would walk all of a group for
            each of its operators
    set_of  the number of each group's set
    """

    sets: dict[tuple[str, ...], int]
    places: dict[str, set[str]] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    groups: list[Group] = field(default_factory=list)
    member_of: dict[str, list[int]] = field(default_factory=dict)
    set_of: list[int] = field(default_factory=list)
    untold: set[str] = field(default_factory=set)

    def number(self, operators: tuple[str, ...]) -> int:
        """The number of a set of operators, given ascending."""
        return self.sets.setdefault(operators, len(self.sets))

    def fusion(self, operator: str) -> frozenset[int]:
        """The sets of operators that it is fused into. A kernel runs it alone; a delegate's map may leave it out."""
        alone = frozenset({self.number((operator,))}) if KERNEL in self.places[operator] else frozenset()
        return frozenset(self.set_of[number] for number in self.member_of.get(operator, ())) or alone


def _compare_methods(before: pb.Method, after: pb.Method) -> MethodDiff:
    by_handle = any(_names_nothing(method) for method in (before, after))
    sets: dict[tuple[str, ...], int] = {}
    old, new = (_side(method, sets, by_handle=by_handle) for method in (before, after))
    both = old.places.keys() & new.places.keys()
    labels = old.labels | new.labels
    order = sorted(labels, key=lambda operator: (_natural(labels[operator]), operator))
    return MethodDiff(
        name=before.name,
        added=tuple(each for each in order if each not in old.places),
        removed=tuple(each for each in order if each not in new.places),
        moved=tuple(
            Move(each, tuple(sorted(old.places[each])), tuple(sorted(new.places[each])))
            for each in order
            if each in both and old.places[each] != new.places[each]
        ),
        fused=tuple(_refusions(old, new, [each for each in order if each in both])),
        labels={each: labels[each] for each in order},
        places={each: tuple(sorted((old.places | new.places)[each])) for each in order if each not in both},
        by_handle=by_handle,
    )


def _names_nothing(method: pb.Method) -> bool:
    return not any(instruction.operators for instruction in method.instructions)


def _side(method: pb.Method, sets: dict[tuple[str, ...], int], *, by_handle: bool) -> _Side:
    side = _Side(sets)
    known = {} if by_handle else fingerprints(method)
    for instruction in method.instructions:
        of_handle = {handle: _operators(known.get((instruction.id, handle), ()), handle) for handle in instruction.handles}
        for operators in of_handle.values():
            for operator, label in operators.items():
                side.places.setdefault(operator, set()).add(instruction.delegate or KERNEL)
                side.labels[operator] = label
        if instruction.entries and backend_of(instruction.delegate).map_holds_handles:
            for entry in instruction.entries:
                _add_group(side, instruction.id, key_of(entry)[1], (of_handle.get(handle, {}) for handle in entry.handles))
        elif instruction.delegate:
            side.untold.update(operator for operators in of_handle.values() for operator in operators)
    return side


def _operators(known: Sequence[Fingerprint], handle: int) -> dict[str, str]:
    """Id -> label of the operators of a handle."""
    return {each.id: str(each) for each in known} or {f"handle {handle}": f"handle {handle}"}


def _add_group(side: _Side, instruction: int, identifier: Identifier, listed: Iterable[dict[str, str]]) -> None:
    operators = tuple(sorted({operator for of_handle in listed for operator in of_handle}))
    for operator in operators:
        side.member_of.setdefault(operator, []).append(len(side.groups))
    side.groups.append(Group(instruction, identifier, operators))
    side.set_of.append(side.number(operators))


def _refusions(old: _Side, new: _Side, operators: Iterable[str]) -> Iterator[Refusion]:
    """Neighbourhoods of operators, among those of both sides, whose fusion differs."""
    untold = old.untold | new.untold
    changed = [each for each in operators if each not in untold and old.fusion(each) != new.fusion(each)]
    waiting = set(changed)
    for first in changed:
        if first not in waiting:
            continue
        waiting.remove(first)
        reached = [first]
        before, after = set[int](), set[int]()
        while reached:
            operator = reached.pop()
            for side, seen in ((old, before), (new, after)):
                for number in side.member_of.get(operator, ()):
                    if number not in seen:  # a group is walked once, however many operators lead to it
                        seen.add(number)
                        fresh = waiting.intersection(side.groups[number].operators)
                        waiting -= fresh
                        reached += fresh
        yield Refusion(_only(old, before, new, after), _only(new, after, old, before))


def _only(side: _Side, numbers: set[int], other: _Side, others: set[int]) -> tuple[Group, ...]:
    """The groups that none of the others equals, by instruction and identifier."""
    known = {other.set_of[number] for number in others}
    groups = dict.fromkeys(side.groups[number] for number in sorted(numbers) if side.set_of[number] not in known)
    return tuple(sorted(groups, key=lambda group: (group.instruction, _natural(str(group.identifier)))))


def _natural(text: str) -> list[tuple[int, str]]:
    """For sorting: numbers in a text count as numbers."""
    return [(int(part) if part.isdecimal() else -1, part) for part in re.split(r"([0-9]{1,18})", text)]
