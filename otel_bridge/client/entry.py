"""
What a tracer hands out, and what its author can do wrong.

The errors are of whoever writes the instrumentation, and raised where he stands: `MisusedTracer` is a `ValueError`. ExecuTorch
aborts the process for most of them (`ET_CHECK` in devtools/etdump/etdump_flatcc.cpp).
"""

from otel_bridge.model.events import Identifier


class MisusedTracer(ValueError):
    """The tracer was called in a way that can never be right."""


class NoEventBlock(MisusedTracer):
    """There is no event block on this thread to put the event into."""


class WrongIdentifier(MisusedTracer):
    """Not exactly one of name and delegate debug identifier, or one that ExecuTorch or the bridge cannot take."""


class WrongEntry(MisusedTracer):
    """An entry that was ended already, or that the other kind of call began."""


class WrongValue(MisusedTracer):
    """A tick, instruction, chain, clock, code or metadata outside of what ExecuTorch's types can hold."""


class EventTracerEntry:
    """
    An event that has begun; to be given to the call that ends it, once.

    name          its name, or for a delegate's event its delegate debug identifier
    kind          `EventKind.DELEGATE`, or `EventKind.SCOPE` for every other event
    chain_id      -1: none
    debug_handle  instruction
    start_time    ticks
    """

    __slots__ = ("chain_id", "debug_handle", "is_open", "kind", "name", "start_time")

    def __init__(self, name: Identifier, kind: int, chain_id: int, debug_handle: int, start_time: int) -> None:
        self.name = name
        self.kind = kind
        self.chain_id = chain_id
        self.debug_handle = debug_handle
        self.start_time = start_time
        self.is_open = True
