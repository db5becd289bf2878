"""The line between a supervisor and a worker."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from otel_bridge.app.line import Line, read_now

Run = Callable[[Any], Any]


async def answer(question: str, argument: Any) -> Any:
    """Whatever a test asks."""
    if question == "late":
        await asyncio.sleep(argument)
    if question == "broken":
        raise ValueError(argument)
    return question, argument


@asynccontextmanager
async def pair(answers: Callable[[str, Any], Awaitable[Any]] = answer) -> AsyncIterator[tuple[Line, Line]]:
    """Both ends, which read."""
    one, other = socket.socketpair()
    lines = await Line.over(one, answers), await Line.over(other, answers)
    running = [asyncio.create_task(line.run()) for line in lines]
    try:
        yield lines
    finally:
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def test_both_ends_ask_and_answers_come_in_any_order(run: Run) -> None:
    """A slow answer holds no other up, and a large one arrives whole."""

    async def talk() -> None:
        others_are_answered = asyncio.Event()

        async def in_its_time(question: str, argument: Any) -> Any:
            if question == "late":
                await others_are_answered.wait()
            return question, argument

        async with pair(in_its_time) as (one, other):
            late = asyncio.create_task(one.ask("late", 7))
            assert await one.ask("quick", b"x" * 1_000_000) == ("quick", b"x" * 1_000_000)
            assert await other.ask("back") == ("back", None)
            others_are_answered.set()
            assert await late == ("late", 7)

    run(talk())


def test_what_cannot_be_answered(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """An error there, patience that ends, and an end that is gone raise here, and the line goes on where it can."""

    async def talk() -> None:
        async with pair() as (one, other):
            with pytest.raises(ConnectionError, match="broken could not be answered: ValueError"):
                await one.ask("broken", "secret")
            with pytest.raises(TimeoutError):
                await one.ask("late", 60, patience_s=0.01)
            assert await one.ask("quick") == ("quick", None)
            waiting = asyncio.create_task(one.ask("late", 60))
            await asyncio.sleep(0)
            other._writer.close()
            with pytest.raises(ConnectionError, match="gone"):
                await waiting
            with pytest.raises(ConnectionError, match="gone"):
                await one.ask("quick")

    run(talk())
    assert "the question broken could not be answered" in caplog.text


def test_what_is_told_before_there_is_a_loop(run: Run) -> None:
    """It is read alone, and what follows it stays for the line; where nothing comes, that is told."""
    one, other = socket.socketpair()

    async def tell() -> None:
        line = await Line.over(one, answer)
        line.tell("begin", {"number": 1})
        line.tell("next", None)
        await line._writer.drain()
        line._writer.close()

    run(tell())
    with other:
        assert read_now(other) == {"number": 1}
        assert read_now(other) is None
        with pytest.raises(ConnectionError, match="gone"):
            read_now(other)
