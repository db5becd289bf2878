"""When a connection is made anew, and when the old one is closed."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from otel_bridge.config.reload import Reloaded
from otel_bridge.export.renewal import Renewal

Run = Callable[[Coroutine[Any, Any, Any]], Any]


class Line:
    """A connection that remembers whether it is open."""

    def __init__(self, secrets: str | None) -> None:
        self.secrets = secrets
        self.is_open = True

    async def close(self) -> None:
        """Close it, once."""
        assert self.is_open
        self.is_open = False


class Clock:
    """A clock that a test sets."""

    time_s = 0.0

    def now(self) -> float:
        """Seconds."""
        return self.time_s


def renewal(clock: Clock, tls: Reloaded[str] | None = None, max_age_s: float = 10.0) -> "Renewal[Line, str]":
    return Renewal(Line, Line.close, tls=tls, max_age_s=max_age_s, now=clock.now)


def test_one_connection_for_all(run: Run) -> None:
    """Requests at the same time and one after the other share a connection; closing ends it."""

    async def scene() -> None:
        lines = renewal(Clock())
        async with lines.lend() as first, lines.lend() as second:
            assert first is second
        async with lines.lend() as third:
            assert third is first
        await lines.close()
        assert not first.is_open

    run(scene())


def test_an_old_connection_is_closed_by_its_last_request(run: Run) -> None:
    """At its age a connection is lent no more, and stays open until all requests that have it are done."""

    async def scene() -> None:
        clock = Clock()
        lines = renewal(clock)
        async with lines.lend() as old:
            clock.time_s = 9.9
            async with lines.lend() as same:
                assert same is old
            clock.time_s = 10.0
            async with lines.lend() as new:
                assert new is not old
                assert old.is_open
            assert old.is_open
        assert not old.is_open
        assert new.is_open
        await lines.close()

    run(scene())


def test_a_useless_connection_is_lent_no_more(run: Run) -> None:
    """A retired connection is replaced by the next request; retiring it again does not touch the new one."""

    async def scene() -> None:
        lines = renewal(Clock())
        async with lines.lend() as old:
            lines.retire(old)
            async with lines.lend() as new:
                lines.retire(old)
            async with lines.lend() as same:
                assert same is new is not old
        assert not old.is_open
        await lines.close()

    run(scene())


def test_new_secrets_mean_a_new_connection(run: Run, tmp_path: Path) -> None:
    """When the files of TLS change, the next request gets a connection that was made with them."""
    path = tmp_path / "secret"
    path.write_text("one")

    lines = renewal(Clock(), Reloaded([path], path.read_text))

    async def scene() -> None:
        async with lines.lend() as old:
            await asyncio.to_thread(path.write_text, "second")
            async with lines.lend() as new:
                assert (old.secrets, new.secrets) == ("one", "second")
                assert old.is_open
        assert not old.is_open
        await lines.close()

    run(scene())


def test_closing_ends_all(run: Run) -> None:
    """Closing does not wait for requests, and closes each connection once."""

    async def scene() -> None:
        clock = Clock()
        lines = renewal(clock)
        async with lines.lend() as old:
            clock.time_s = 10.0
            async with lines.lend() as new:
                await lines.close()
                assert not old.is_open
                assert not new.is_open

    run(scene())
