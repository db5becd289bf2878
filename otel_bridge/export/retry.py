"""
Waiting out a back end.

Exponential backoff with full jitter: the n-th wait is drawn from 0 to min(max_s, initial_s * 2^n), so that senders that failed
together do not return together. A back end that names a time is obeyed. Waiting ends at once on cancellation.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from otel_bridge.errors import BackEndUnavailable
from otel_bridge.export.protocol import Exporter, Sent

_log = logging.getLogger(__name__)

_LEAST_WAIT_S = 0.01  # a back end that asks for nanoseconds is not flooded
_LARGEST_POWER = 64  # 2^64 initial waits are longer than any bound; without it the float would overflow


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """
    All in seconds.

    initial_s       bound of the first wait
    max_s           bound of any wait
    max_elapsed_s   no attempt is made later than this after the first; 0: no retries
    """

    initial_s: float = 1.0
    max_s: float = 30.0
    max_elapsed_s: float = 300.0

    def wait_s(self, attempt: int, told_s: float | None, draw: Callable[[], float] = random.random) -> float:
        """The wait after attempt number `attempt`, from 0; `told_s` is what the peer asked for, `draw` gives 0 to 1."""
        if told_s is not None:
            return max(told_s, _LEAST_WAIT_S)
        return draw() * min(self.max_s, self.initial_s * 2.0 ** min(attempt, _LARGEST_POWER))


class Retry:
    """Sends again what `inner` found unavailable, until `policy` ends it; then raises what `inner` raised last."""

    def __init__(
        self,
        inner: Exporter,
        policy: RetryPolicy,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        random: Callable[[], float] = random.random,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._inner = inner
        self._policy = policy
        self._sleep = sleep
        self._random = random
        self._now = now
        self._is_out = False

    async def send(self, payload: bytes) -> Sent:
        """See `Exporter.send`."""
        started = self._now()
        attempt = 0
        while True:
            try:
                sent = await self._inner.send(payload)
            except BackEndUnavailable as error:
                self._note(str(error))
                wait = self._policy.wait_s(attempt, error.retry_after_s, self._random)
                if self._now() - started + wait >= self._policy.max_elapsed_s:
                    raise
            else:
                self._note("")
                return sent
            await self._sleep(wait)
            attempt += 1

    async def close(self) -> None:
        """See `Exporter.close`."""
        await self._inner.close()

    def _note(self, fault: str) -> None:
        """Log when an outage begins and when it ends, not each attempt."""
        if fault and not self._is_out:
            _log.warning("%s; requests are sent again for up to %g s each", fault, self._policy.max_elapsed_s)
        elif self._is_out and not fault:
            _log.info("the back end answers again")
        self._is_out = bool(fault)
