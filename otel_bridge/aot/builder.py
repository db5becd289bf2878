"""
The debug handle map of a delegate, built while the delegate is compiled.

    builder = DelegateMappingBuilder()
    builder.insert_delegate_mapping_entry(nodes=[conv, relu], identifier="conv_relu#1")
    return PreprocessResult(processed_bytes=blob, debug_handle_map=builder.get_delegate_mapping())

Invariants
* What it accepts can be logged at run time and resolved afterwards; what cannot is refused with the rule that it breaks.
* For all that it accepts, its results are those of ExecuTorch's builder (exir/backend/utils.py), and that accepts it too.
* An insert that fails changes nothing: no identifier is used up.
* Nothing of torch is needed: a node is what has `meta`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from otel_bridge.mapping.faults import shown
from otel_bridge.mapping.identity import INT32_MAX, INT32_MIN, UNSET_NUMBER, is_number
from otel_bridge.mapping.limits import MAX_HANDLE, MAX_TEXT_BYTES
from otel_bridge.model.events import Identifier

_HANDLE = "debug_handle"
_SEVERAL = (list, tuple)


class InvalidEntry(ValueError):
    """An entry that a debug handle map cannot have; the message says the rule."""


class InvalidIdentifier(InvalidEntry):
    """An identifier that no event of the run time can carry, or that is not for this builder."""


class DuplicateIdentifier(InvalidEntry):
    """An identifier that the map already has."""


class InvalidHandles(InvalidEntry):
    """Nodes or handles that name no operator, or not only operators."""


class Node(Protocol):
    """A node of an FX graph, as far as it matters here: `meta["debug_handle"]` is its debug handle."""

    meta: Any


class DelegateMappingBuilder:
    """
    A debug handle map, entry by entry: delegate debug identifier -> debug handles of the operators that it stands for.

    generated_identifiers   True: identifiers are 0, 1, 2, ...; False: each insert brings its own

    One identifier may stand for several operators (fusion), and one operator for several identifiers (decomposition).
    """

    def __init__(self, generated_identifiers: bool = False) -> None:  # noqa: FBT001, FBT002 - as in ExecuTorch's builder
        self._generates = generated_identifiers
        self._map: dict[Identifier, tuple[int, ...]] = {}

    def insert_delegate_mapping_entry(
        self,
        nodes: Node | list[Any] | None = None,
        handles: int | Sequence[int | None] | None = None,
        identifier: Identifier | None = None,
    ) -> Identifier:
        """
        Add an entry, and return its identifier.

        nodes        a node or a list of nodes; those without a debug handle are passed over
        handles      in their place: a debug handle, or a list or tuple of them; None is passed over
        identifier   an int or a str, all of a map of one type; None where the builder generates them

        Raises `InvalidIdentifier`, `DuplicateIdentifier`, `InvalidHandles`: all are `InvalidEntry` and so `ValueError`.
        """
        checked = self._identifier(identifier)
        if (nodes is None) == (handles is None):
            given = "neither" if nodes is None else "both"
            raise InvalidHandles(f"nodes and handles: {given} given; an entry has one of the two")
        found = _handles_of(nodes) if nodes is not None else _handles_in(handles)
        kept = {_checked_handle(handle, where) for where, handle in found if handle is not None}
        if not kept:
            raise InvalidHandles(
                "an entry without a debug handle: give at least one node that has one (debug handles are in place once the "
                "program is in the edge dialect), or leave the entry out"
            )
        self._map[checked] = tuple(sorted(kept))
        return checked

    def get_delegate_mapping(self) -> dict[int, tuple[int, ...]] | dict[str, tuple[int, ...]]:
        """The map so far, for `PreprocessResult.debug_handle_map`: handles ascending, entries in order of insertion."""
        return dict(self._map)  # type: ignore[return-value]  # `_identifier` keeps all keys of one type

    def _identifier(self, identifier: Identifier | None) -> Identifier:
        if self._generates:
            if identifier is not None:
                raise InvalidIdentifier("an identifier, and the builder generates them: leave it out")
            return len(self._map)
        if identifier is None:
            raise InvalidIdentifier("no identifier: give an int or a str, or let the builder generate them")
        _check_identifier(identifier)
        for first in self._map:
            if isinstance(first, int) != isinstance(identifier, int):
                raise InvalidIdentifier(
                    f"{shown(identifier)} beside {shown(first)}: the identifiers of a map are all int or all str, "
                    'because ETRecords and JSON cannot tell 1 from "1"'
                )
            break
        if identifier in self._map:
            raise DuplicateIdentifier(
                f"{shown(identifier)} for a second time: give all operators of an identifier in one insert"
            )
        return identifier


def _check_identifier(identifier: object) -> None:
    """What `DelegateDebugIntId` (int32, -1 is unset) and `const char*` hold (runtime/core/event_tracer.h)."""
    if isinstance(identifier, int) and not isinstance(identifier, bool):
        if not is_number(identifier):
            raise InvalidIdentifier(
                f"{identifier}: an int identifier is {INT32_MIN} to {INT32_MAX}, and not {UNSET_NUMBER}, which means unset"
            )
    elif isinstance(identifier, str):
        _check_text(identifier)
    else:
        raise InvalidIdentifier(f"a {type(identifier).__name__}: an identifier is an int or a str")


def _check_text(identifier: str) -> None:
    try:
        size_bytes = len(identifier.encode())
    except UnicodeEncodeError as error:
        raise InvalidIdentifier(f"{shown(identifier)}: half of a surrogate pair, which UTF-8 cannot hold") from error
    if not 0 < size_bytes <= MAX_TEXT_BYTES:
        raise InvalidIdentifier(f"a text of {size_bytes} bytes of UTF-8: a str identifier has 1 to {MAX_TEXT_BYTES}")
    if "\0" in identifier:
        raise InvalidIdentifier(f"{shown(identifier)}: the run time takes a C string, which ends at the first NUL")


def _handles_of(nodes: object) -> list[tuple[str, object]]:
    """(where, handle or None) of each node."""
    if isinstance(nodes, tuple):
        raise InvalidHandles("nodes: a tuple; give a node or a list of nodes, as ExecuTorch's builder takes no tuple")
    several = isinstance(nodes, list)
    found: list[tuple[str, object]] = []
    for index, node in enumerate(nodes if isinstance(nodes, list) else [nodes]):
        where = f"nodes[{index}]" if several else "nodes"
        meta = getattr(node, "meta", None)
        if not isinstance(meta, Mapping):
            raise InvalidHandles(f"{where}: a {type(node).__name__}, which has no `meta`; give nodes of the graph")
        found.append((where, meta.get(_HANDLE)))
    return found


def _handles_in(handles: object) -> list[tuple[str, object]]:
    if isinstance(handles, _SEVERAL):
        return [(f"handles[{index}]", handle) for index, handle in enumerate(handles)]
    return [("handles", handles)]


def _checked_handle(handle: object, where: str) -> int:
    if not isinstance(handle, int) or isinstance(handle, bool):
        raise InvalidHandles(f"{where}: a {type(handle).__name__}; a debug handle is an int")
    if not 0 < handle <= MAX_HANDLE:
        raise InvalidHandles(f"{where}: {handle}; a debug handle is 1 to {MAX_HANDLE}, and 0 means unset")
    return handle
