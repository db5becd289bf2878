"""
What a piece of time is called, by what one asks for.

Invariants
* A name in parentheses is no name of the model: it says where time is that nothing of the model can be named for.
* The time of an event that stands for several operators is shared out by the weights of its handles in the mapping, equally
  where there are none, and equally between the operators of one handle. Only here: a span is never split.
* A kernel call belongs to those operators of its handle that its kernel names (spans/describe.py, `narrow`).

    what has time                      operator                  module           identifier             backend
    delegate event, operators known    its operators             their modules    instruction: its id    backend
    delegate event, none known         shortened identifier      (backend)        instruction: its id    backend
    delegate call, in no event inside  (backend)                 (backend)        (backend)              backend
    kernel call                        its operators, or kernel  their modules    instruction: kernel    (not delegated)
    other instruction                  its name                  (no module)      instruction: name      (not delegated)
    inference, in no instruction       (framework)               (framework)      (framework)            (framework)
"""

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from math import lcm

from otel_bridge.backends.table import read
from otel_bridge.mapping.identity import number_in
from otel_bridge.model.events import Identifier
from otel_bridge.model.resolution import Operator, Resolution
from otel_bridge.spans.describe import narrow

FRAMEWORK = "(framework)"
NO_MODULE = "(no module)"
NOT_DELEGATED = "(not delegated)"
UNKNOWN_BACKEND = "unknown backend"


class By(StrEnum):
    """What totals are asked for by."""

    OPERATOR = "operator"
    MODULE = "module"
    IDENTIFIER = "identifier"
    BACKEND = "backend"


@dataclass(frozen=True, slots=True)
class Piece:
    """
    An event that has time of its own.

    place        chain and instruction, as they are shown: "3", in another chain than the first "1/3"
    name         name or identifier
    is_delegate  a delegate logged it
    kernel       name of the call's `native_call_<op>`; None: there is none
    """

    place: str
    name: Identifier
    is_delegate: bool
    resolution: Resolution
    kernel: str | None


def shares_of(piece: Piece, by: By) -> dict[str, int]:
    """Who has the time of a piece, with their weights."""
    backend = piece.resolution.delegate
    rest = f"({backend or UNKNOWN_BACKEND})"
    is_delegate_call = not piece.is_delegate and piece.name == "DELEGATE_CALL"
    if by is By.BACKEND:
        return {(backend or rest) if piece.is_delegate or is_delegate_call else NOT_DELEGATED: 1}
    if is_delegate_call:
        return {rest: 1}
    kernel = (piece.kernel or str(piece.name)).removeprefix("native_call_")
    if by is By.IDENTIFIER:
        return {f"{piece.place}: {_shown(piece.name) if piece.is_delegate else kernel}": 1}
    if by is By.MODULE:
        unknown = rest if piece.is_delegate else NO_MODULE
    else:
        unknown = read(backend, piece.name).name if piece.is_delegate else kernel
    parts: dict[str, Fraction] = {}
    for operators, part in _split(piece):
        keys = [operator.name if by is By.OPERATOR else operator.module_path or NO_MODULE for operator in operators]
        if not operators or (operators[0].is_candidate and len(set(keys)) > 1):
            keys = [unknown]
        for key in keys:
            parts[key] = parts.get(key, Fraction(0)) + part / len(keys)
    unit = lcm(*(part.denominator for part in parts.values()))
    return {key: int(part * unit) for key, part in parts.items()}


def _split(piece: Piece) -> list[tuple[tuple[Operator, ...], Fraction]]:
    """The operators that the piece stands for, by handle, with the part of each handle."""
    resolution = piece.resolution
    if not piece.is_delegate:  # a kernel runs one operator, of one handle
        return [(narrow(resolution.operators, piece.kernel), Fraction(1))]
    weights = resolution.weights if any(resolution.weights) else (1,) * len(resolution.handles)
    return [
        (tuple(operator for operator in resolution.operators if operator.handle == handle), Fraction(weight))
        for handle, weight in zip(resolution.handles, weights, strict=True)
    ] or [((), Fraction(1))]


def _shown(identifier: Identifier) -> str:
    """An identifier that a string of digits cannot be mistaken for."""
    return f'"{identifier}"' if isinstance(identifier, str) and number_in(identifier) is not None else str(identifier)
