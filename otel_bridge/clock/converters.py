"""
Converters of delegates' times: what an author supplies where ticks are no clock that the bridge could know.

Two signatures are taken, told apart by the number of parameters:

    converter(event_name, time)                    ExecuTorch's Inspector calls it so (`delegate_time_scale_converter`)
    converter(backend, identifier, ticks)          the bridge's own, which can tell backends and types of identifiers apart

`event_name` is the identifier, int or str (the Inspector hands over `str(identifier)` always); `backend` is None where it is
not known; `time` and `ticks` are the raw start or end. The Inspector's kind answers in milliseconds, its default
`target_time_scale`; ours in nanoseconds. `@ns`, `@us`, `@ms` or `@s` behind the function says otherwise.

Invariants
* A converter is a function: it is called for each distinct (identifier, start, end) of a batch, in the pipeline's own thread.
  That is Python per event, and the price of a converter.
* One that raises or answers nonsense costs that event its conversion, is counted, and nothing else is lost: the event keeps
  its ticks, and what its time is worth is then not known.
* A wrap of the counter within an event is undone before: the end that is handed over is never before the start, unless a
  64-bit counter says so.
"""

import importlib
import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otel_bridge.clock.convert import Times
from otel_bridge.errors import ConfigError
from otel_bridge.model.events import EventBatch, EventKind, Identifier
from otel_bridge.model.stream import LATEST_NS, Clock

NANOSECONDS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
"""Names of units that an answer may have."""

Converter = Callable[[str | None, Identifier, int], Any]

_RANGE_NS = 2**63
_OURS = 3
"""Parameters of the bridge's own kind."""

RAISED, NONSENSE = "raised", "nonsense"
"""Why an event kept its ticks."""


@dataclass(frozen=True, slots=True)
class Unconverted:
    """Why an event kept its ticks: the converter, and `RAISED` or `NONSENSE`."""

    converter: str
    reason: str


class Converters:
    """
    The converters that are configured.

    specs   "[BACKEND=]module:function[@UNIT]" each; of two for one backend the last
    watch   told of each event that kept its ticks: the converter, and `RAISED` or `NONSENSE`

    Raises `ConfigError` where a spec cannot be obeyed.
    """

    def __init__(
        self, specs: Iterable[str] = (), *, watch: Callable[[str, str], None] = lambda _converter, _reason: None
    ) -> None:
        self._by_backend = dict(map(_load, specs))
        self._watch = watch

    def __bool__(self) -> bool:
        return bool(self._by_backend)

    def apply(
        self, batch: EventBatch, times: Times, backends: Sequence[str | None], backend: NDArray[np.int64]
    ) -> tuple[Times, NDArray[np.bool_], NDArray[np.bool_]]:
        """
        The times of a batch with delegate events converted; bool[n] which events were; bool[n] for which a converter failed.

        `times` are those of the clocks; `backend` is int64[n], the index into `backends` of each event's. Converted times
        count from tick 0 of the event's clock.
        """
        done, failed = np.zeros(len(batch), np.bool_), np.zeros(len(batch), np.bool_)
        chosen = np.array([self._chosen(each) is not None for each in backends] or [False])
        rows = np.flatnonzero(chosen[backend] & (batch.kind == EventKind.DELEGATE))
        start_ns, end_ns = times.start.copy(), times.end.copy()
        answers: dict[tuple[str | None, Identifier, int, int], tuple[int, int] | Unconverted] = {}
        clocks = [batch.streams[block.stream].clocks for block in batch.blocks]
        for row, block in zip(rows.tolist(), batch.block_of[rows].tolist(), strict=True):
            clock = clocks[block][int(batch.clock[row])]
            start, end = _ticks(int(batch.start[row]), int(batch.duration[row]), clock)
            key = (backends[backend[row]], batch.names[batch.name[row]], start, end)
            if key not in answers:
                answers[key] = self.convert(*key)
            answer = answers[key]
            if isinstance(answer, Unconverted):
                self._watch(answer.converter, answer.reason)
                failed[row] = True
                continue
            zero_ns = int(start_ns[row]) - start * clock.numerator // clock.denominator
            start_ns[row], end_ns[row] = (min(max(zero_ns + each, 0), LATEST_NS) for each in answer)
            done[row] = True
        return replace(times, start=start_ns, end=end_ns, tied=times.tied | done), done, failed

    def convert(self, backend: str | None, identifier: Identifier, start: int, end: int) -> tuple[int, int] | Unconverted:
        """
        Start and end of an event in nanoseconds of the delegate's own axis, or why there are none.

        An event whose ticks end before they start has no length. Raises `LookupError` where no converter is for the backend.
        """
        chosen = self._chosen(backend)
        if chosen is None:
            raise LookupError(f"no converter for {backend!r}")
        try:
            answers = [chosen.function(backend, identifier, ticks) for ticks in (start, end)]
        except Exception:  # noqa: BLE001 - the author's code may raise anything
            return Unconverted(chosen.name, RAISED)
        start_ns, end_ns = (_nanoseconds(answer, chosen.unit_ns) for answer in answers)
        if start_ns is None or end_ns is None or (end_ns < start_ns and start <= end):
            return Unconverted(chosen.name, NONSENSE)
        return start_ns, max(start_ns, end_ns) if start <= end else start_ns

    def _chosen(self, backend: str | None) -> "_Chosen | None":
        return self._by_backend.get(backend) or self._by_backend.get(None)


@dataclass(frozen=True, slots=True)
class _Chosen:
    name: str
    function: Converter
    unit_ns: int


def _ticks(start: int, duration: int, clock: Clock) -> tuple[int, int]:
    """Start and end as the device counted, the end over a wrap of a narrow counter told as if there had been none."""
    if clock.counter_bits < 64:  # noqa: PLR2004 - the width of the columns
        return start, start + duration % 2**clock.counter_bits
    return start, (start + duration) % 2**64


def _nanoseconds(answer: Any, unit_ns: int) -> int | None:
    """The answer of a converter, rounded down; None: it is no time."""
    try:
        if isinstance(answer, bool) or not math.isfinite(answer):
            return None
        value = math.floor(Fraction(answer if isinstance(answer, int | Fraction | Decimal) else float(answer)) * unit_ns)
    except (TypeError, ValueError, ArithmeticError):
        return None
    return value if -_RANGE_NS < value < _RANGE_NS else None


def _load(spec: str) -> tuple[str | None, _Chosen]:
    backend, equals, target = spec.rpartition("=")
    path, at, unit = target.partition("@")
    module, colon, name = path.partition(":")
    if not (module and colon and name) or (at and unit not in NANOSECONDS):
        units = ", ".join(NANOSECONDS)
        raise ConfigError(f"clock converter {spec!r} must look like [BACKEND=]module:function[@UNIT], UNIT one of {units}")
    try:
        function = getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise ConfigError(f"clock converter {spec!r} cannot be imported: {error}") from error
    except AttributeError as error:
        raise ConfigError(f"clock converter {spec!r}: module {module!r} has no function {name!r}") from error
    except Exception as error:
        raise ConfigError(f"clock converter {spec!r} raised {type(error).__name__} while it was imported") from error
    if not callable(function):
        raise ConfigError(f"clock converter {spec!r} is not callable")
    converter, usual = (function, "ns") if _parameters(function) == _OURS else (_as_ours(function), "ms")
    return (backend if equals else None), _Chosen(path, converter, NANOSECONDS[unit or usual])


def _parameters(function: Callable[..., Any]) -> int:
    """Positional parameters without a default; those of a C function may not be told, and are then the Inspector's two."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 0
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(each.kind in positional and each.default is each.empty for each in parameters)


def _as_ours(function: Callable[[Identifier, int], Any]) -> Converter:
    return lambda _backend, identifier, ticks: function(identifier, ticks)
