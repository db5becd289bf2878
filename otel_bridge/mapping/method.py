"""
Which method of a mapping a block ran: ETDump does not say (all methods log blocks named `Execute`).

Invariants
* A block belongs to a method only where no other reading is possible; else to none, and its events say `no_method`.
* A method that is given from outside must fit the events too; the only method of a mapping must not be contradicted by them.
* Identifiers only break ties between methods that fit equally well.

The rule compares instructions: those that called a delegate must be exactly the method's delegate calls, and every kernel
that the method maps must have run. Instructions that the mapping does not know are ignored (mutable buffers and the bodies
of control flow run some). With JF_CALL in the block instructions may have been jumped over, so a subset is enough.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from otel_bridge.mapping.compiled import CompiledMapping, CompiledMethod
from otel_bridge.model.events import NO_INSTRUCTION, BlockKind, EventBatch, EventKind, Identifier
from otel_bridge.model.resolution import Status

_ENDED = "Method::execute"
_IGNORED, _DELEGATE_CALL, _OPERATOR_CALL, _JUMP, _DELEGATE_EVENT, _END = range(6)


@dataclass(frozen=True, slots=True)
class Calls:
    """What a block ran, as instruction ids; `ended` where `Method::execute` closes it, `jumped` where it has a JF_CALL."""

    delegates: frozenset[int]
    kernels: frozenset[int]
    events: frozenset[int]
    ended: bool
    jumped: bool

    def fits(self, method: CompiledMethod) -> bool:
        """Whether this method can have run these instructions."""
        known = method.delegates.keys()
        if not (self.delegates <= known and self.events <= known and self.kernels.isdisjoint(known)):
            return False
        if not self.ended or self.jumped or not (self.delegates or self.kernels):
            return True
        return self.delegates == known and method.kernels <= self.kernels


def attribute(batch: EventBatch, mappings: Iterable[CompiledMapping | None]) -> list[CompiledMethod | None]:
    """
    The method of each block, in block order; None: not known, or not an inference.

    `mappings` gives the mapping of each block's build, None where there is none.
    """
    execute = BlockKind.EXECUTE
    known: dict[tuple[str, str | None, bytes, bool], CompiledMethod | None] = {}
    result: list[CompiledMethod | None] = []
    for index, (mapping, signature) in enumerate(zip(mappings, _signatures(batch), strict=True)):
        block = batch.blocks[index]
        if mapping is None or block.kind is not execute:
            result.append(None)
            continue
        key = (mapping.digest, block.method, signature, block.part is not None)
        if key not in known:
            calls = _calls(signature)
            if block.part is not None:  # the other parts ran the rest
                calls = replace(calls, ended=False)
            candidates = _candidates(mapping, block.method, calls)
            if len(candidates) > 1:  # the tie depends on identifiers, which are not part of the key
                result.append(_untie(candidates, _logged(batch, index)))
                continue
            known[key] = candidates[0] if candidates else None
        result.append(known[key])
    return result


def _candidates(mapping: CompiledMapping, given: str | None, calls: Calls) -> list[CompiledMethod]:
    if given is not None:
        method = mapping.methods.get(given)
        return [method] if method is not None and calls.fits(method) else []
    if len(mapping.methods) == 1:  # nothing to confuse it with: calls may be missing, but none may contradict it
        calls = replace(calls, ended=False)
        return [method for method in mapping.methods.values() if calls.fits(method)]
    seen = calls.ended and bool(calls.delegates or calls.kernels)
    return [method for method in mapping.methods.values() if calls.fits(method)] if seen else []


def _untie(candidates: list[CompiledMethod], logged: set[tuple[int, Identifier]]) -> CompiledMethod | None:
    explained = [
        method
        for method in candidates
        if all(method.resolve(instruction, name).status in {Status.EXACT, Status.DELEGATE} for instruction, name in logged)
    ]
    return explained[0] if len(explained) == 1 else None


def _logged(batch: EventBatch, index: int) -> set[tuple[int, Identifier]]:
    first, last = batch.bounds[index], batch.bounds[index + 1]
    rows = np.flatnonzero(batch.kind[first:last] == EventKind.DELEGATE) + first
    return {(int(batch.instruction[row]), batch.names[batch.name[row]]) for row in rows}


def _signatures(batch: EventBatch) -> Iterator[bytes]:
    """One byte string a block, equal where blocks ran the same instructions in the same order."""
    meaning = {"DELEGATE_CALL": _DELEGATE_CALL, "OPERATOR_CALL": _OPERATOR_CALL, "JF_CALL": _JUMP}
    roles = np.full((len(batch.names) or 1, len(EventKind) + 1), _IGNORED, np.int64)
    roles[:, EventKind.DELEGATE] = _DELEGATE_EVENT
    for number, name in enumerate(batch.names):
        if isinstance(name, str):
            roles[number, EventKind.CALL] = meaning.get(name, _IGNORED)
            roles[number, EventKind.RUNTIME] = _END if name == _ENDED else _IGNORED
    role = roles[batch.name, batch.kind]
    role[(batch.kind == EventKind.DELEGATE) & (batch.instruction == NO_INSTRUCTION)] = _IGNORED
    telling = role.nonzero()[0]  # _IGNORED is 0
    column = np.maximum(batch.instruction[telling], 0).astype(np.int64) << 3 | role[telling]
    signatures = column.tobytes()
    edges = (np.searchsorted(telling, batch.bounds) * column.itemsize).tolist()
    for first, last in pairwise(edges):
        yield signatures[first:last]


def _calls(signature: bytes) -> Calls:
    by_role: dict[int, set[int]] = {role: set() for role in range(6)}
    for code in np.unique(np.frombuffer(signature, np.int64)).tolist():
        by_role[code & 7].add(code >> 3)
    return Calls(
        frozenset(by_role[_DELEGATE_CALL]),
        frozenset(by_role[_OPERATOR_CALL]),
        frozenset(by_role[_DELEGATE_EVENT]),
        bool(by_role[_END]),
        bool(by_role[_JUMP]),
    )
