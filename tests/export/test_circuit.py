"""What all requests know together of the back end."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

from otel_bridge.export.circuit import Circuit, State

Run = Callable[[Coroutine[Any, Any, Any]], Any]
CLOSED, HALF_OPEN, OPEN = State.CLOSED, State.HALF_OPEN, State.OPEN


class Time:
    """Time that a test moves; who sleeps wakes when it has come."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._moved = asyncio.Condition()

    def now(self) -> float:
        """Seconds."""
        return self.now_s

    async def sleep(self, wait_s: float) -> None:
        """Until time has moved so far."""
        until = self.now_s + wait_s
        async with self._moved:
            await self._moved.wait_for(lambda: self.now_s >= until)

    async def move(self, seconds: float) -> None:
        """Let time pass, and everybody do what is due."""
        async with self._moved:
            self.now_s += seconds
            self._moved.notify_all()
        await settle()


async def settle() -> None:
    """Let every task run as far as it can."""
    for _ in range(20):
        await asyncio.sleep(0)


class Scene:
    """A circuit, and requests that are told one by one how they end."""

    def __init__(self) -> None:
        self.time = Time()
        self.states: list[State] = []
        self.circuit = Circuit(self.states.append, tolerated=0, sleep=self.time.sleep, now=self.time.now)
        self.trying: list[asyncio.Future[bool]] = []

    def request(self) -> "asyncio.Task[None]":
        """One attempt, that waits for its turn and then for `trying` to say how it ends."""

        async def attempt() -> None:
            async with self.circuit.passage():
                answer = asyncio.get_running_loop().create_future()
                self.trying.append(answer)
                if await answer:
                    self.circuit.succeed()
                else:
                    self.circuit.fail("away", 10.0)

        return asyncio.create_task(attempt())

    async def end(self, success: bool) -> None:  # noqa: FBT001 - read as end(False)
        """End the oldest attempt under way."""
        self.trying.pop(0).set_result(success)
        await settle()


def test_one_tries_while_the_others_wait(run: Run) -> None:
    """After a failure nobody tries until the wait is over, then one at a time; its success lets all others go."""

    async def story() -> None:
        scene = Scene()
        first = scene.request()
        await settle()
        await scene.end(False)
        await first
        assert scene.circuit.state is OPEN
        others = [scene.request() for _ in range(3)]
        await scene.time.move(9.0)
        assert scene.trying == []
        await scene.time.move(1.0)
        assert (len(scene.trying), scene.circuit.state) == (1, HALF_OPEN)
        await scene.end(True)
        assert (len(scene.trying), scene.circuit.state) == (2, CLOSED)
        await scene.end(True)
        await scene.end(True)
        await asyncio.gather(*others)
        assert scene.states == [OPEN, HALF_OPEN, CLOSED]

    run(story())


def test_everybody_gets_a_turn(run: Run) -> None:
    """Where one try fails another request tries next, so that one that cannot be taken does not keep the circuit open."""

    async def story() -> None:
        scene = Scene()
        scene.circuit.fail("away", 10.0)
        first, second = scene.request(), scene.request()
        await settle()
        await scene.time.move(10.0)
        await scene.end(False)
        await first
        assert (scene.trying, scene.circuit.state) == ([], OPEN)
        await scene.time.move(10.0)
        assert len(scene.trying) == 1
        await scene.end(True)
        await second
        assert scene.circuit.state is CLOSED

    run(story())


def test_a_try_that_is_cancelled_finds_nothing_out(run: Run) -> None:
    """It neither closes the circuit nor keeps the next one from trying."""

    async def story() -> None:
        scene = Scene()
        scene.circuit.fail("away", 10.0)
        first, second = scene.request(), scene.request()
        await settle()
        await scene.time.move(10.0)
        first.cancel()
        with suppress(asyncio.CancelledError):
            await first
        await settle()
        assert len(scene.trying) == 2  # that of the cancelled one is among them
        scene.trying.pop(0)
        await scene.end(True)
        await second
        assert scene.states == [OPEN, HALF_OPEN, OPEN, HALF_OPEN, CLOSED]

    run(story())


def test_a_straggler_closes_the_circuit(run: Run) -> None:
    """A request that was under way when another failed shows that the back end is there."""

    async def story() -> None:
        scene = Scene()
        straggler = scene.request()
        await settle()
        scene.circuit.fail("away", 1_000.0)
        await scene.end(True)
        await straggler
        request = scene.request()
        await settle()
        assert (len(scene.trying), scene.circuit.state) == (1, CLOSED)
        await scene.end(False)
        await request
        later = scene.request()
        await scene.time.move(10.0)  # the wait of before is over with what it was for
        assert len(scene.trying) == 1
        await scene.end(True)
        await later

    run(story())


def test_the_longest_wait_counts(run: Run) -> None:
    """Where two requests fail, nobody tries before the later of both times."""

    async def story() -> None:
        scene = Scene()
        scene.circuit.fail("away", 30.0)
        scene.circuit.fail("away", 1.0)
        request = scene.request()
        await settle()
        await scene.time.move(29.0)
        assert scene.trying == []
        await scene.time.move(1.0)
        await scene.end(True)
        await request

    run(story())


def test_changes_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """One line when the back end is gone and one when it is back, however often it is tried; not one for each try."""
    caplog.set_level("INFO", logger="otel_bridge")
    circuit = Circuit()
    for number in range(5):
        circuit.fail(f"no answer {number}", 1.0)
    circuit.succeed()
    circuit.succeed()
    assert [record.message for record in caplog.records] == [
        "no answer 2; requests wait and are sent again",
        "the back end answers again",
    ]


def test_a_few_failures_concern_nobody_else() -> None:
    """Three failures in a row open the circuit, whoever had them; fewer do not, where a success stands between."""
    states: list[State] = []
    circuit = Circuit(states.append)
    for ends in ("fail", "fail", "succeed", "fail", "fail", "succeed"):
        circuit.fail("away", 1.0) if ends == "fail" else circuit.succeed()
    assert (states, circuit.successes) == ([], 2)
    for _ in range(3):
        circuit.fail("away", 1.0)
    assert states == [OPEN]


def test_patience_that_is_asked_for_concerns_all() -> None:
    """Where the back end names a time the circuit opens at once."""
    circuit = Circuit()
    circuit.fail("too many requests", 5.0, is_told=True)
    assert circuit.state is OPEN
