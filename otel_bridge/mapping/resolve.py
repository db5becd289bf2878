"""
(mapping, method, instruction, identifier) -> what it stands for.

Invariant: a total function. Each delegate event gets exactly one status; the runtime's own events get none.
"""

from dataclasses import dataclass

from otel_bridge.mapping.compiled import CompiledMethod
from otel_bridge.model.events import NO_INSTRUCTION, EventKind, Identifier
from otel_bridge.model.resolution import Resolution, Status


@dataclass(frozen=True, slots=True)
class Attribution:
    """
    What a block's events are resolved with.

    digest        of the mapping; None: there is none for the build
    method        None: not known, does not fit, or not an inference
    delegates     instructions of the only method, where the events do not fit it: others are not even calls of a delegate
    method_name   what the spans say: the mapping's method, or the sender's word where there is no mapping to check it
    """

    digest: str | None = None
    method: CompiledMethod | None = None
    delegates: frozenset[int] | None = None
    method_name: str | None = None


def resolve(attribution: Attribution, kind: EventKind, instruction: int, name: Identifier) -> Resolution:
    """What one event stands for."""
    method = attribution.method
    if kind is EventKind.CALL:
        return method.call(str(name), instruction) if method is not None else Resolution()
    if kind is not EventKind.DELEGATE:
        return Resolution()
    if attribution.digest is None:
        return Resolution(Status.NO_MAPPING)
    if instruction == NO_INSTRUCTION:  # only a delegate's initialisation runs outside any instruction
        return Resolution(Status.PHASE)
    if method is None:
        foreign = attribution.delegates is not None and instruction not in attribution.delegates
        return Resolution(Status.UNMAPPED_INSTRUCTION if foreign else Status.NO_METHOD)
    return method.resolve(instruction, name)
