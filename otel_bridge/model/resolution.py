"""What an identifier turned out to stand for. A miss is a value with a name, never an exception and never a guess."""

from dataclasses import dataclass
from enum import StrEnum

DebugHandle = int
"""A debug handle: one operator instance of the model graph, from 1 (exir/passes/debug_handle_generator_pass.py)."""


class Status(StrEnum):
    """How a delegate event was resolved. Each one is the value of `executorch.resolution.status`."""

    EXACT = "exact"
    """The identifier is in its instruction's map."""
    DERIVED = "derived"
    """A backend's rule finds the handles with certainty."""
    DELEGATE = "delegate"
    """The map is null or empty: the handles stand on the span of the delegate call."""
    UNMAPPED_IDENTIFIER = "unmapped_identifier"
    """There is a map, and the identifier is not in it."""
    PHASE = "phase"
    """A phase of the delegate, not an operator."""
    UNMAPPED_INSTRUCTION = "unmapped_instruction"
    """There is a mapping, and it knows no delegate at that instruction."""
    NO_METHOD = "no_method"
    """There is a mapping, and the method is unknown, ambiguous or does not fit the events."""
    NO_MAPPING = "no_mapping"
    """There is no mapping for this build."""


@dataclass(slots=True, unsafe_hash=True)  # frozen, it would take twice as long to make; nobody changes one
class Operator:
    """
    One node of the model's edge graph; "" and 0 where a field is not known.

    handle        the debug handle under which it is listed; one handle may stand for several nodes
    id            its fingerprint, the same in every build that has it (mapping/fingerprint.py)
    is_candidate  its handle stands for several nodes that several things run: which of them runs it, the mapping cannot tell
    """

    name: str
    node: str = ""
    file: str = ""
    line: int = 0
    module_path: str = ""
    module_type: str = ""
    handle: DebugHandle = 0
    id: str = ""
    is_candidate: bool = False


@dataclass(slots=True, unsafe_hash=True)  # as above
class Resolution:
    """
    What one (mapping, method, instruction, identifier) stands for.

    status      None for the runtime's own events, which are not resolved
    delegate    backend id, e.g. "XnnpackBackend"; None where it is not known
    handles     debug handles, ascending, each once
    operators   operators of `handles`, ascending by handle, in graph order within one
    rule        name of the rule, for `derived`
    weights     share of each of `handles` in the time of the event, in their order; (): equal shares. Read by totals only
    """

    status: Status | None = None
    delegate: str | None = None
    handles: tuple[DebugHandle, ...] = ()
    operators: tuple[Operator, ...] = ()
    rule: str | None = None
    weights: tuple[int, ...] = ()
