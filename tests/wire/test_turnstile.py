"""How many requests come in, and what becomes of the others."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_bridge.errors import Overloaded
from otel_bridge.wire import turnstile as module
from otel_bridge.wire.turnstile import AHEAD_BYTES, Limits, Memory, Turnstile

ROOMY = Memory(0, lambda: None)


def test_the_line_goes_by_turn(run: Callable[..., Any]) -> None:
    """Who waits goes in as others leave, in the order of arrival; who finds the line full is told to come again, later."""

    async def main() -> None:
        turnstile = Turnstile(Limits(requests=1, waiting=2), ROOMY)
        order: list[int] = []
        doors = [asyncio.Event() for _ in range(3)]

        async def visit(number: int) -> None:
            with await turnstile.enter():
                order.append(number)
                await doors[number].wait()

        visits = [asyncio.ensure_future(visit(number)) for number in range(3)]
        await asyncio.sleep(0)
        assert (turnstile.requests, turnstile.waiting) == (1, 2)
        with pytest.raises(Overloaded, match=r"2 wait \(ingress.max_waiting\)") as caught:
            await turnstile.enter()
        assert (caught.value.reason, caught.value.retry_after_s) == ("overloaded", 5.0)
        for door in doors:
            door.set()
        await asyncio.gather(*visits)
        assert order == [0, 1, 2]
        assert (turnstile.requests, turnstile.size_bytes, turnstile.waiting) == (0, 0, 0)

    run(main())


def test_nobody_waits_without_end(run: Callable[..., Any]) -> None:
    """Who has waited for `wait_s` is told to come again, and who goes away meanwhile is not let in for nothing."""

    async def main() -> None:
        turnstile = Turnstile(Limits(requests=1, wait_s=0.05), ROOMY)
        with await turnstile.enter():
            with pytest.raises(Overloaded, match=r"within 0.05 s \(ingress.max_wait_s\)"):
                await turnstile.enter()
            waiting = asyncio.ensure_future(turnstile.enter())
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            assert turnstile.waiting == 0
        waiting = asyncio.ensure_future(turnstile.enter())
        await asyncio.sleep(0)
        assert turnstile.requests == 1

    run(main())


def test_let_in_at_the_moment_of_going(run: Callable[..., Any]) -> None:
    """A request that is let in and given up in the same moment leaves again, and the next goes in."""

    async def main() -> None:
        turnstile = Turnstile(Limits(requests=1), ROOMY)
        with await turnstile.enter():
            gone, next_one = (asyncio.ensure_future(turnstile.enter()) for _ in range(2))
            await asyncio.sleep(0)
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        with await next_one:
            assert turnstile.requests == 1
        assert (turnstile.requests, turnstile.size_bytes) == (0, 0)

    run(main())


def test_gone_at_the_moment_of_letting_in(run: Callable[..., Any]) -> None:
    """A request that is given up in the moment in which another leaves is passed over, and the next goes in."""

    async def main() -> None:
        turnstile = Turnstile(Limits(requests=1), ROOMY)
        with await turnstile.enter():
            gone, next_one = (asyncio.ensure_future(turnstile.enter()) for _ in range(2))
            await asyncio.sleep(0)
            gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        with await next_one:
            assert turnstile.requests == 1
        assert (turnstile.requests, turnstile.size_bytes, turnstile.waiting) == (0, 0, 0)

    run(main())


def test_what_turns_out_small_makes_room(run: Callable[..., Any]) -> None:
    """Who waits for bytes goes in as soon as a request turns out smaller than it was counted, not only when one leaves."""

    async def main() -> None:
        turnstile = Turnstile(Limits(size_bytes=2 * AHEAD_BYTES), ROOMY)
        with await turnstile.enter() as small, await turnstile.enter() as other:
            waiting = asyncio.ensure_future(turnstile.enter())
            await asyncio.sleep(0)
            small.resize(10)
            other.resize(10)
            with await waiting:
                assert turnstile.requests == 3

    run(main())


def test_memory_runs_short_meanwhile(run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has waited in line does not go in either where memory is short by then, and leaves nothing behind."""
    monkeypatch.setattr(module, "LOOK_S", 0.0)
    used = [50]

    async def main() -> None:
        turnstile = Turnstile(Limits(requests=1), Memory(100, lambda: used[0]))
        with await turnstile.enter():
            waiting = asyncio.ensure_future(turnstile.enter())
            await asyncio.sleep(0)
            used[0] = 101
        with pytest.raises(Overloaded, match=r"\(ingress.memory_bytes\)"):
            await waiting
        assert (turnstile.requests, turnstile.size_bytes, turnstile.waiting) == (0, 0, 0)

    run(main())


def test_bytes_are_bounded(run: Callable[..., Any]) -> None:
    """A body finds room as it grows, or does not; one alone may be as large as it is. What waits counts no body."""

    async def main() -> None:
        turnstile = Turnstile(Limits(size_bytes=4 * AHEAD_BYTES, wait_s=0.01), ROOMY)
        with await turnstile.enter() as alone:
            alone.resize(100 * AHEAD_BYTES)
            with pytest.raises(Overloaded):
                await turnstile.enter()
            alone.resize(10)
            with await turnstile.enter() as other:
                other.resize(4 * AHEAD_BYTES - 10)
                with pytest.raises(Overloaded, match=r"\(ingress.max_bytes\)"):
                    other.resize(4 * AHEAD_BYTES - 9)
                assert turnstile.size_bytes == 4 * AHEAD_BYTES
        assert (turnstile.requests, turnstile.size_bytes) == (0, 0)

    run(main())


@given(st.lists(st.tuples(st.sampled_from(["enter", "leave", "grow", "give up"]), st.integers(0, 9)), max_size=60))
def test_the_bounds_hold(steps: list[tuple[str, int]]) -> None:
    """Whatever comes and goes: never more requests, bytes or waiting ones than the limits, and nothing stays of those gone."""
    limits = Limits(requests=3, size_bytes=6 * AHEAD_BYTES, waiting=2)

    async def main() -> None:
        turnstile = Turnstile(limits, ROOMY)
        inside: list[contextlib.ExitStack] = []
        visits: list[Any] = []
        coming: list[asyncio.Task[Any]] = []
        for step, which in steps:
            if step == "enter":
                coming.append(asyncio.ensure_future(turnstile.enter()))
            elif step == "leave" and inside:
                visits.pop(which % len(inside))
                inside.pop(which % len(inside)).close()
            elif step == "grow" and inside:
                with contextlib.suppress(Overloaded):
                    visits[which % len(inside)].resize(which * AHEAD_BYTES)
            elif step == "give up" and coming:
                coming[which % len(coming)].cancel()
            for _ in range(3):
                await asyncio.sleep(0)
            for task in [task for task in coming if task.done()]:
                coming.remove(task)
                if not task.cancelled() and task.exception() is None:
                    stack = contextlib.ExitStack()
                    visits.append(stack.enter_context(task.result()))
                    inside.append(stack)
            assert turnstile.requests == len(inside) <= limits.requests
            assert turnstile.waiting == len(coming) <= limits.waiting
            assert turnstile.size_bytes <= limits.size_bytes or len(inside) == 1
        for task in coming:
            task.cancel()
        await asyncio.gather(*coming, return_exceptions=True)
        for stack in inside:
            stack.close()
        assert (turnstile.requests, turnstile.size_bytes, turnstile.waiting) == (0, 0, 0)

    asyncio.run(main())


def test_memory_that_is_short(run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the limit nobody goes in; what the C library keeps is asked for first; once it has fallen, requests are taken."""
    monkeypatch.setattr(module, "LOOK_S", 0.0)
    used, given_back = [50], []

    def give_back() -> None:
        given_back.append(used[0])
        used[0] -= 10

    async def main() -> None:
        turnstile = Turnstile(Limits(), Memory(100, lambda: used[0], give_back))
        with await turnstile.enter():
            used[0] = 105
            with await turnstile.enter():
                assert (used, given_back) == ([95], [105])
            used[0] = 130
            with pytest.raises(Overloaded, match=r"\(ingress.memory_bytes\)") as caught:
                await turnstile.enter()
            assert caught.value.reason == "memory_limit"
            used[0] = 99
            with await turnstile.enter():
                pass
        assert given_back == [105]  # not each time: that takes a while

    run(main())


def test_memory_is_asked_for_seldom() -> None:
    """A look at the process is good for a moment; without a limit, or where nothing is known, memory is never short."""
    looks: list[int] = []
    memory = Memory(100, lambda: looks.append(1) or 50)
    assert not any(memory.is_short for _ in range(1000))
    assert len(looks) < 100
    assert not Memory(1, lambda: None).is_short
    assert not Memory(0, lambda: 10**12).is_short
