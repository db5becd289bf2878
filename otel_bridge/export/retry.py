"""
Waiting out a back end.

Invariants
* Exponential backoff with full jitter: the n-th wait is drawn from 0 to min(max_s, initial_s * 2^n), so that senders that
  failed together do not return together. A back end that names a time is obeyed, for an hour at most. Waiting ends at once on
  cancellation.
* An outage is nobody's fault: by default it is waited out, however long. A request that fails again and again while others get
  through is the fault: it is given up after `max_stuck_s`, or it would hold up the others for ever.
"""

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from otel_bridge.errors import BackEndUnavailable, ExportRejected
from otel_bridge.export.circuit import Circuit
from otel_bridge.export.protocol import Exporter, Sent

_LEAST_WAIT_S = 0.01  # a back end that asks for nanoseconds is not flooded
_MOST_WAIT_S = 3_600.0  # nor is one obeyed that asks for years
_LARGEST_POWER = 64  # 2^64 initial waits are longer than any bound; without it the float would overflow


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """
    All in seconds.

    initial_s       bound of the first wait
    max_s           bound of any wait
    max_elapsed_s   no attempt is made later than this after the first; 0: no retries
    max_stuck_s     nor when a request has failed for so long while others got through
    """

    initial_s: float = 1.0
    max_s: float = 30.0
    max_elapsed_s: float = 300.0
    max_stuck_s: float = math.inf

    def wait_s(self, attempt: int, told_s: float | None, draw: Callable[[], float] = random.random) -> float:
        """The wait after attempt number `attempt`, from 0; `told_s` is what the peer asked for, `draw` gives 0 to 1."""
        if told_s is not None:
            return min(max(told_s, _LEAST_WAIT_S), _MOST_WAIT_S)
        return draw() * min(self.max_s, self.initial_s * 2.0 ** min(attempt, _LARGEST_POWER))


class Retry:
    """Sends again what `inner` found unavailable, until `policy` ends it; then raises what `inner` raised last."""

    def __init__(
        self,
        inner: Exporter,
        policy: RetryPolicy,
        circuit: Circuit,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        random: Callable[[], float] = random.random,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._inner = inner
        self._policy = policy
        self._circuit = circuit
        self._sleep = sleep
        self._random = random
        self._now = now

    async def send(self, payload: bytes, tenant: str = "") -> Sent:
        """See `Exporter.send`."""
        trial = _Trial(self._policy, self._circuit, self._now)
        while True:
            async with self._circuit.passage():
                trial.check()
                try:
                    sent = await self._inner.send(payload, tenant)
                except BackEndUnavailable as error:
                    wait = trial.fail(error, self._random())
                except ExportRejected:
                    self._circuit.succeed()  # a refusal is an answer
                    raise
                else:
                    self._circuit.succeed()
                    return sent
            trial.check(wait)
            await self._sleep(wait)

    async def close(self) -> None:
        """See `Exporter.close`."""
        await self._inner.close()


class _Trial:
    """The attempts to send one payload."""

    def __init__(self, policy: RetryPolicy, circuit: Circuit, now: Callable[[], float]) -> None:
        self._policy = policy
        self._circuit = circuit
        self._now = now
        self._attempts = 0
        self._error: BackEndUnavailable | None = None
        self._started_s = self._failed_s = 0.0
        self._stuck_s = 0.0
        self._successes = 0

    def fail(self, error: BackEndUnavailable, drawn: float) -> float:
        """Note a failed attempt; the wait before the next one."""
        now = self._now()
        if self._error is not None and self._circuit.successes > self._successes:
            self._stuck_s += now - self._failed_s
        self._error, self._failed_s, self._successes = error, now, self._circuit.successes
        told = error.retry_after_s
        shared_wait_s = self._policy.wait_s(self._circuit.failures, told, lambda: drawn)
        self._circuit.fail(str(error), shared_wait_s, is_told=told is not None)
        self._attempts += 1
        return self._policy.wait_s(self._attempts - 1, told, lambda: drawn)

    def check(self, wait_s: float = 0.0) -> None:
        """Raise what was found last if an attempt after `wait_s` would be one too many."""
        if self._error is None:
            self._started_s = self._now()
            return
        elapsed = self._now() - self._started_s + wait_s
        if elapsed >= self._policy.max_elapsed_s or self._stuck_s >= self._policy.max_stuck_s:
            raise self._error
