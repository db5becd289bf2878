"""
Whether requests are welcome: what `/readyz` and gRPC health say.

Invariants
* Not before the bridge works, and not from the first step of a stop on: told at once.
* What comes and goes is believed once it has lasted (`Lasting`): a balancer that follows every blink moves the load of a fleet
  to and fro, and whoever gets it blinks next.
* A full spool is told at once, since senders are refused by then, and room is believed only where much of it is free: between
  the two lies what a balancer sends before it notices.
* A bridge of several workers is ready while all of them are: whoever sends does not choose which one takes it. One that does
  not answer is not, and keeps no other from looking at itself.
* The back end counts only where the settings say so: without it the bridge still takes what it has room for.
"""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

from otel_bridge.errors import Unavailable
from otel_bridge.mapping.registry import Registry
from otel_bridge.spool.protocol import Spool
from otel_bridge.wire.health import Condition

_log = logging.getLogger(__name__)

OK = "ok"

_LOOK_S = 1.0
LASTS_S = 5.0
"""How long the registry or a back end fails, or answers again, before that is believed."""
REST_S = 5.0
"""How long a spool that refused a request is full, at least: a disk without room shows no other sign."""
ROOM_SHARE = 0.8
"""Of the spool's bound: a spool that was full has room again below it."""
SILENT = Condition(is_ready=False, parts={"bridge": "a worker does not answer"})
"""What is told of other workers where one of them says nothing."""


class Tell(Protocol):
    """Told whether requests are welcome."""

    async def __call__(self, *, is_ready: bool) -> None:
        """Tell whoever asks."""


class Sight(Protocol):
    """What was seen of the doors and of the back ends."""

    @property
    def full_at_s(self) -> float:
        """When a request last found no room, by the monotonic clock; -inf: never."""

    @property
    def is_cut_off(self) -> bool:
        """Whether a back end is away: its circuit is not closed."""


class Lasting:
    """Something that is wrong or right, once it has been so for `least_s` without a break."""

    def __init__(self, least_s: float, now: Callable[[], float]) -> None:
        self._least_s = least_s
        self._now = now
        self._agreed_s = now()
        self.is_wrong = False

    def see(self, *, is_wrong: bool) -> bool:
        """Take what is seen now; whether it is wrong, as far as that is believed."""
        now = self._now()
        if is_wrong is self.is_wrong:
            self._agreed_s = now
        elif now - self._agreed_s >= self._least_s:
            self.is_wrong, self._agreed_s = is_wrong, now
        return self.is_wrong


class Readiness:
    """
    Looks at the parts while the bridge runs.

    max_bytes      bound of the spool
    needs_egress   whether a back end that is away makes the bridge not ready
    broken         whether the pipeline has ended
    others         what the other workers have to tell, or raises `Unavailable`; None: there are none
    stage          "starting", "ok" or "stopping": whoever starts and stops the bridge says so
    """

    def __init__(
        self,
        registry: Registry,
        spool: Spool,
        sight: Sight,
        *,
        max_bytes: int,
        needs_egress: bool,
        broken: Callable[[], bool],
        others: Callable[[], Awaitable[list[Condition]]] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._registry = registry
        self._spool = spool
        self._sight = sight
        self._room_bytes = int(max_bytes * ROOM_SHARE)
        self._needs_egress = needs_egress
        self._broken = broken
        self._others = others
        self._conditions: list[Condition] = []
        self._now = now
        self._registry_fails = False
        self._asked_registry_s = math.inf
        self._registry_wrong = Lasting(LASTS_S, now)
        self._egress_wrong = Lasting(LASTS_S, now)
        self._is_full = False
        self.stage = "starting"

    async def run(self, tell: Tell) -> None:
        """Look at the parts until cancelled, from when all is well; `tell` is told each change of the whole."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_registry())
            group.create_task(self._watch(tell))
            if self._others is not None:
                group.create_task(self._watch_others(self._others))

    def condition(self) -> Condition:
        """What there is to tell now; of other workers, what they told last."""
        own = self.own_condition()
        for other in self._conditions:
            parts = {part: found if found != OK else other.parts.get(part, OK) for part, found in own.parts.items()}
            own = Condition(own.is_ready and other.is_ready, parts)
        return own

    def own_condition(self) -> Condition:
        """What there is to tell of this worker."""
        wrong = {
            "bridge": self.stage if not self._broken() else "broken: the pipeline has ended",
            "registry": "cannot be read" if self._registry_wrong.is_wrong else OK,
            "spool": "full" if self._fills() else OK,
        }
        is_ready = all(found == OK for found in wrong.values())
        if self._egress_wrong.is_wrong:
            wrong["egress"] = "a back end is away" if self._needs_egress else "a back end is away; not needed"
            is_ready = is_ready and not self._needs_egress
        else:
            wrong["egress"] = OK
        return Condition(is_ready, wrong)

    def look(self) -> None:
        """See what lasts. A registry that has been asked since the last look and says nothing fails too."""
        is_silent = self._now() - self._asked_registry_s >= _LOOK_S
        self._registry_wrong.see(is_wrong=self._registry_fails or is_silent)
        self._egress_wrong.see(is_wrong=self._sight.is_cut_off)

    async def _watch(self, tell: Tell) -> None:
        told = True
        while True:
            self.look()
            condition = self.condition()
            if condition.is_ready is not told:
                told = condition.is_ready
                _log.log(logging.INFO if told else logging.WARNING, "%s", ", ".join(condition.lines()))
                await tell(is_ready=told)
            await asyncio.sleep(_LOOK_S)

    async def _watch_others(self, others: Callable[[], Awaitable[list[Condition]]]) -> None:
        while True:
            try:
                self._conditions = await others()
            except Unavailable as error:  # after a patience longer than `LASTS_S`
                _log.warning("what other workers have to tell is not known: %s", error)
                self._conditions = [SILENT]
            await asyncio.sleep(_LOOK_S)

    async def _watch_registry(self) -> None:
        while True:
            self._asked_registry_s = self._now()
            try:
                await asyncio.to_thread(self._registry.refresh)
                self._registry_fails = False
            except Exception as error:  # noqa: BLE001 - whatever keeps it from answering; the next look tries again
                _log.warning("the registry of mappings cannot be read: %s", error)
                self._registry_fails = True
            self._asked_registry_s = math.inf
            await asyncio.sleep(_LOOK_S)

    def _fills(self) -> bool:
        if self._now() - self._sight.full_at_s < REST_S:
            self._is_full = True
        elif self._is_full:
            self._is_full = self._spool.size_bytes > self._room_bytes
        return self._is_full
