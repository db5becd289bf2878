"""
Finding what the back end does not take, so that its neighbours arrive.

Invariants
* A payload that is refused for a reason of `BOUNDS` is halved by spans, and so are refused halves, the largest first, down to
  single spans and to the bound on attempts that stands there. Other refusals (a wrong key, an unknown method) are of no span
  in particular: the payload is refused as a whole.
* A back end that took no part of a request for what it says is asked for few of the next, until it has taken one: it may be
  that it refuses everything, and then halving only adds to its load.
* Each span is sent until it is taken or refused. What is refused in the end is given to `keep`, and counted by its reason.
* What the back end has is never called lost: `send` raises only where nothing was taken.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from otel_bridge.errors import BackEndUnavailable, ExportRejected
from otel_bridge.export.halves import count_spans, halves_of
from otel_bridge.export.protocol import EXHAUSTED, INVALID, TOO_LARGE, Exporter, Sent


@dataclass(frozen=True, slots=True)
class Bound:
    """How far a refused payload is halved: requests in all that it may cost, and bytes below which a part stays whole."""

    attempts: int
    floor_bytes: int = 0


BOUNDS = {
    TOO_LARGE: Bound(1_024),
    INVALID: Bound(64),  # one bad span among 4,096 takes 25
    EXHAUSTED: Bound(64, floor_bytes=65_536),  # no back end's size limit is lower; below it, it means something else
}
"""Reason of a refusal -> how far to halve."""

_WITHOUT_HOPE = 7
"""Requests that a refused payload may cost while nothing is taken: itself, its halves, their halves."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A request that the back end does not take: its bytes, spans, why, as a reason and in words, and whose it is."""

    payload: bytes
    spans: int
    reason: str
    message: str
    tenant: str = ""


Keep = Callable[[Refused], Awaitable[None]]


class Isolate:
    """
    Sends to `inner`, in halves what it refuses.

    keep     takes what is refused in the end
    halved   told of each halving, with its reason
    """

    def __init__(self, inner: Exporter, *, keep: Keep | None = None, halved: Callable[[str], None] = lambda _: None) -> None:
        self._inner = inner
        self._keep = keep
        self._halved = halved
        self._has_hope = True

    async def send(self, payload: bytes, tenant: str = "") -> Sent:
        """See `Exporter.send`."""
        outcome = _Outcome()
        parts, attempts = deque([payload]), 1
        while parts:
            part = parts.popleft()
            try:
                outcome.taken.append(await self._inner.send(part, tenant))
                self._has_hope = True
            except (ExportRejected, BackEndUnavailable) as error:
                if halves := await self._halves(part, error, attempts + 2):
                    self._halved(error.reason)
                    parts.extend(halves)
                    attempts += 2
                else:
                    outcome.errors.append(error)
                    outcome.refused.append(await asyncio.to_thread(_refused, part, error, tenant))
        if attempts > 1 and not outcome.taken:
            self._has_hope = False
        return await self._finish(payload, tenant, outcome)

    async def close(self) -> None:
        """See `Exporter.close`."""
        await self._inner.close()

    async def _halves(self, part: bytes, error: ExportRejected | BackEndUnavailable, attempts: int) -> tuple[bytes, ...]:
        bound = BOUNDS.get(error.reason)
        if bound is None or attempts > bound.attempts or len(part) <= bound.floor_bytes:
            return ()
        if attempts > _WITHOUT_HOPE and not self._has_hope and error.reason != TOO_LARGE:  # a size limit is believed
            return ()
        return await asyncio.to_thread(halves_of, part)

    async def _finish(self, payload: bytes, tenant: str, outcome: "_Outcome") -> Sent:
        if not outcome.taken:  # in one piece: whoever sends it again need not know where it was cut
            first = outcome.errors[0]
            if self._keep is not None:
                await self._keep(await asyncio.to_thread(_refused, payload, first, tenant))
            raise first
        for each in outcome.refused:
            if self._keep is not None:
                await self._keep(each)
        return outcome.sent()


@dataclass(slots=True)
class _Outcome:
    """How the parts of a payload ended."""

    taken: list[Sent] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    errors: list[ExportRejected | BackEndUnavailable] = field(default_factory=list)

    def sent(self) -> Sent:
        """All parts together."""
        by_reason: Counter[str] = Counter()
        for each in self.refused:
            by_reason[each.reason] += each.spans
        said = [*(each.message for each in self.taken), *(each.message for each in self.refused)]
        spans = by_reason.total() + sum(each.rejected_spans for each in self.taken)
        return Sent(spans, next(filter(None, said), ""), tuple(by_reason.items()))


def _refused(payload: bytes, error: ExportRejected | BackEndUnavailable, tenant: str) -> Refused:
    return Refused(payload, count_spans(payload), error.reason, str(error), tenant)
