"""Waiting out a back end, with a clock that tests move."""

import asyncio
import math
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_bridge.config.egress import ExportConfig
from otel_bridge.errors import BackEndUnavailable, ExportRejected
from otel_bridge.export.circuit import Circuit, State
from otel_bridge.export.protocol import Exporter, Sent
from otel_bridge.export.retry import Retry, RetryPolicy

Run = Callable[[Coroutine[Any, Any, Any]], Any]


class Script:
    """An exporter that fails as told, one entry an attempt, and then takes all. It counts attempts."""

    def __init__(self, failures: Iterable[Exception]) -> None:
        self.failures = iter(failures)
        self.attempts = 0
        self.attempted = asyncio.Event()
        self.closed = False

    async def send(self, payload: bytes, tenant: str = "") -> Sent:  # noqa: ARG002 - as the protocol says
        """Fail as told."""
        self.attempts += 1
        self.attempted.set()
        for failure in self.failures:
            raise failure
        return Sent(message=payload.decode())

    async def close(self) -> None:
        """Remember it."""
        self.closed = True


class Clock:
    """Time that passes by sleeping only."""

    def __init__(self) -> None:
        self.time_s = 0.0
        self.waits: list[float] = []

    def now(self) -> float:
        """Seconds since the start of the test."""
        return self.time_s

    async def sleep(self, wait_s: float) -> None:
        """Be there at once."""
        self.waits.append(wait_s)
        self.time_s += wait_s


def unavailable(count: int, retry_after_s: float | None = None) -> Iterator[BackEndUnavailable]:
    return (BackEndUnavailable(f"attempt {number}", retry_after_s=retry_after_s) for number in range(count))


def retrying(inner: Exporter, clock: Clock, *, policy: RetryPolicy | None = None, draw: float = 1.0) -> Retry:
    circuit = Circuit(sleep=clock.sleep, now=clock.now)
    return Retry(inner, policy or RetryPolicy(), circuit, sleep=clock.sleep, random=lambda: draw, now=clock.now)


def test_backoff_doubles_up_to_its_bound(run: Run) -> None:
    """The bound of the n-th wait is initial * 2^n, and never more than the largest."""
    inner, clock = Script(unavailable(8)), Clock()
    assert run(retrying(inner, clock).send(b"x")) == Sent(message="x")
    assert clock.waits == [1, 2, 4, 8, 16, 30, 30, 30]


@given(
    initial=st.floats(0.001, 100),
    largest=st.floats(0.001, 1_000),
    draws=st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=60),
)
def test_waits_are_within_bounds(initial: float, largest: float, draws: list[float]) -> None:
    """Every wait is the drawn fraction of its bound (full jitter)."""
    inner, clock, drawn = Script(unavailable(len(draws))), Clock(), iter(draws)
    policy = RetryPolicy(initial, max(initial, largest), 1e9)
    circuit = Circuit(sleep=clock.sleep, now=clock.now)
    asyncio.run(Retry(inner, policy, circuit, sleep=clock.sleep, random=lambda: next(drawn), now=clock.now).send(b""))
    bounds = [min(policy.max_s, initial * 2**number) for number in range(len(draws))]
    assert clock.waits == [draw * bound for draw, bound in zip(draws, bounds, strict=True)]


@given(elapsed=st.floats(0, 600), draws=st.floats(0.3, 1), told=st.none() | st.floats(5, 1_000))
def test_total_time_is_bounded(elapsed: float, draws: float, told: float | None) -> None:
    """No attempt is made later than the bound after the first; then the last failure is raised as it came."""
    inner, clock = Script(unavailable(100_000, told)), Clock()
    policy = RetryPolicy(max_elapsed_s=elapsed)
    with pytest.raises(BackEndUnavailable) as caught:
        asyncio.run(retrying(inner, clock, policy=policy, draw=draws).send(b""))
    assert clock.time_s <= elapsed
    assert str(caught.value) == f"attempt {inner.attempts - 1}"
    assert caught.value.retry_after_s == told


def test_the_time_that_a_back_end_names_is_kept(run: Run) -> None:
    """A wait that the back end asks for is waited as it is, without jitter; next to nothing is rounded up, years to an hour."""
    told = [45.0, 0.1, 1e-9, None, 1e9]
    inner, clock = Script(BackEndUnavailable("", retry_after_s=wait) for wait in told), Clock()
    run(retrying(inner, clock, policy=RetryPolicy(max_elapsed_s=math.inf), draw=0.5).send(b""))
    assert clock.waits == [45.0, 0.1, 0.01, 4.0, 3_600.0]


def test_a_rejection_is_final(run: Run) -> None:
    """What a retry does not help is not tried again."""
    inner, clock = Script([ExportRejected("no")]), Clock()
    with pytest.raises(ExportRejected):
        run(retrying(inner, clock).send(b""))
    assert (inner.attempts, clock.waits) == (1, [])


def test_a_rejection_is_an_answer(run: Run) -> None:
    """A back end that refuses is there: the circuit closes, and nobody waits for it."""
    clock = Clock()
    circuit = Circuit(sleep=clock.sleep, now=clock.now)
    inner = Script([*unavailable(3), ExportRejected("no")])
    retry = Retry(inner, RetryPolicy(), circuit, sleep=clock.sleep, random=lambda: 1.0, now=clock.now)
    with pytest.raises(ExportRejected):
        run(retry.send(b""))
    assert (circuit.state, circuit.successes, circuit.failures) == (State.CLOSED, 1, 0)


def test_no_retries(run: Run) -> None:
    """With a bound of 0 there is one attempt, even where the drawn wait is 0."""
    inner, clock = Script(unavailable(1)), Clock()
    with pytest.raises(BackEndUnavailable):
        run(retrying(inner, clock, policy=RetryPolicy(max_elapsed_s=0), draw=0.0).send(b""))
    assert inner.attempts == 1


def test_waiting_ends_on_cancellation(run: Run) -> None:
    """A send that waits for its next attempt ends at once when it is cancelled."""
    inner = Script(unavailable(1, 3_600.0))
    retry = Retry(inner, RetryPolicy(max_elapsed_s=1e6), Circuit())

    async def scene() -> None:
        sending = asyncio.create_task(retry.send(b""))
        await inner.attempted.wait()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        await retry.close()

    run(scene())
    assert (inner.attempts, inner.closed) == (1, True)


def test_an_outage_is_told_once_and_so_is_its_end(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """Two lines for an operator, however many attempts there were."""
    caplog.set_level("INFO", logger="otel_bridge")
    clock = Clock()
    retry = retrying(Script(unavailable(5)), clock, draw=0.5)

    async def go() -> None:
        for _ in range(3):
            await retry.send(b"x")

    run(go())
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "attempt 2" in caplog.text


class Poisoned:
    """A back end that is there for all payloads but one."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.taken: list[bytes] = []
        self.poison_attempts_s: list[float] = []

    async def send(self, payload: bytes, tenant: str = "") -> Sent:  # noqa: ARG002 - as the protocol says
        """Take it, or be gone."""
        await asyncio.sleep(0)
        if payload == b"poison":
            self.poison_attempts_s.append(self.clock.now())
            raise BackEndUnavailable("reset")
        self.clock.time_s += 0.1
        self.taken.append(payload)
        return Sent()

    async def close(self) -> None:
        """Nothing to let go of."""


def test_a_request_that_is_stuck_while_others_pass_is_given_up(run: Run) -> None:
    """An outage never ends a request, but one that fails for `max_stuck_s` while others get through is raised."""
    clock = Clock()
    back_end = Poisoned(clock)
    retry = retrying(back_end, clock, policy=RetryPolicy(max_elapsed_s=math.inf, max_stuck_s=60.0), draw=0.5)

    async def scene() -> int:
        poison = asyncio.create_task(retry.send(b"poison"))
        sent = 0
        while not poison.done():
            await retry.send(b"fine")
            sent += 1
        with pytest.raises(BackEndUnavailable, match="reset"):
            await poison
        return sent

    sent = run(scene())
    assert len(back_end.taken) == sent > 0
    first, *_, last = back_end.poison_attempts_s
    assert 60 <= last - first <= 60 + 2 * 30


def test_an_outage_is_waited_out(run: Run) -> None:
    """By default nothing is given up for an outage, whose length nobody knows: here 500 attempts over two hours and more."""
    inner, clock = Script(unavailable(500)), Clock()
    policy = RetryPolicy(max_elapsed_s=ExportConfig().retry_max_elapsed_s, max_stuck_s=ExportConfig().retry_max_stuck_s)
    assert run(retrying(inner, clock, policy=policy, draw=0.5).send(b"x")) == Sent(message="x")
    assert clock.time_s > 7_200
