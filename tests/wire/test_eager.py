"""Work that begins at once: what is left of it for a task, and what a task is told."""

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest

from otel_bridge.wire.eager import begin

Run = Callable[..., Any]

SEEN: ContextVar[str] = ContextVar("seen", default="nobody")


def test_what_does_not_wait_is_done(run: Run) -> None:
    """Work that waits for nothing has its result, or raises, where it is begun; what it notes stays in its own context."""

    async def work(*, fails: bool) -> str:
        SEEN.set("the work")
        if fails:
            raise ValueError("no")
        return SEEN.get()

    async def main() -> None:
        assert begin(work(fails=False)) == "the work"
        with pytest.raises(ValueError, match="no"):
            begin(work(fails=True))
        assert SEEN.get() == "nobody"
        assert len(asyncio.all_tasks()) == 1

    run(main())


def test_what_waits_is_a_task(run: Run) -> None:
    """Work that waits, for a turn of the loop or for somebody, goes on in a task, in the context in which it began."""

    async def main() -> None:
        asked: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def work() -> tuple[str, str]:
            SEEN.set("the work")
            await asyncio.sleep(0)
            return await asked, SEEN.get()

        begun = begin(work())
        assert isinstance(begun, asyncio.Task)
        asked.set_result("somebody")
        assert await begun == ("somebody", "the work")
        assert SEEN.get() == "nobody"

    run(main())


@pytest.mark.parametrize("turns", [0, 1])
def test_who_is_cancelled_hears_it(turns: int, run: Run) -> None:
    """Cancelled before its task's first step, or after, work ends by the error where it waits, and may clean up."""

    async def main() -> None:
        heard = []

        async def work() -> None:
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                heard.append("end")
                raise

        begun = begin(work())
        assert begun is not None
        for _ in range(turns):
            await asyncio.sleep(0)
        begun.cancel()
        with pytest.raises(asyncio.CancelledError):
            await begun
        assert heard == ["end"]

    run(main())


def test_what_it_waits_for_may_fail(run: Run) -> None:
    """An error of what is waited for is raised where the work waits, and what the work makes of it is the task's end."""

    async def main() -> None:
        asked: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def work() -> str:
            try:
                return await asked
            except OSError as error:
                raise ValueError("made of it") from error

        begun = begin(work())
        asked.set_exception(OSError())
        assert isinstance(begun, asyncio.Task)
        with pytest.raises(ValueError, match="made of it"):
            await begun

    run(main())


def test_what_it_waits_for_is_cancelled_with_it(run: Run) -> None:
    """Who is cancelled cancels what it waits for, as any task does, also before its own task's first step."""

    async def main() -> None:
        inner = asyncio.ensure_future(asyncio.sleep(1000))

        async def work() -> None:
            await inner

        begun = begin(work())
        assert isinstance(begun, asyncio.Task)
        begun.cancel()
        with pytest.raises(asyncio.CancelledError):
            await begun
        assert inner.cancelled()

    run(main())
