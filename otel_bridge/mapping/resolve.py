"""
(mapping, method, instruction, identifier) -> what it stands for.

Invariant: a total function. Each delegate event gets exactly one status; the runtime's own events get none.
"""

from dataclasses import dataclass

from otel_bridge.mapping.compiled import CompiledMethod
from otel_bridge.model.events import NO_INSTRUCTION, EventKind, Identifier
from otel_bridge.model.resolution import DebugHandle, Resolution, Status


@dataclass(frozen=True, slots=True)
class Attribution:
    """
    What a block's events are resolved with.

    digest        of the mapping; None: there is none for the build
    method        None: not known, does not fit, or not an inference
    delegates     instructions of the only method, where the events do not fit it: others are not even calls of a delegate
    method_name   what the spans say: the mapping's method, or the sender's word where there is no mapping to check it
    only_backend  the backend of every delegate of the model, so that an event outside any instruction can be of no other;
                  None: there are several, or it is not known
    """

    digest: str | None = None
    method: CompiledMethod | None = None
    delegates: frozenset[int] | None = None
    method_name: str | None = None
    only_backend: str | None = None


def resolve(
    attribution: Attribution, kind: EventKind, instruction: int, name: Identifier, derived: DebugHandle = 0
) -> Resolution:
    """What one event stands for; `derived` is the handle that follows from its place in its call, 0: none does."""
    method = attribution.method
    if kind is EventKind.CALL:
        return method.call(str(name), instruction) if method is not None else Resolution()
    if kind is not EventKind.DELEGATE:
        return Resolution()
    if attribution.digest is None:
        return Resolution(Status.NO_MAPPING)
    if instruction == NO_INSTRUCTION:  # only a delegate's initialisation runs outside any instruction
        return Resolution(Status.PHASE, attribution.only_backend)
    if method is None:
        foreign = attribution.delegates is not None and instruction not in attribution.delegates
        return Resolution(Status.UNMAPPED_INSTRUCTION if foreign else Status.NO_METHOD)
    return method.derive(instruction, derived) if derived else method.resolve(instruction, name)
