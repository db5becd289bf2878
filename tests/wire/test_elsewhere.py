"""Requests among several workers: one of them has each, and what the others are told of it."""

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_bridge.errors import SpoolFull, Unavailable
from otel_bridge.wire.elsewhere import Elsewhere, Owners, table_bytes
from otel_bridge.wire.repeats import Name, Repeats, name_of

Run = Callable[[Any], Any]


class Disk:
    """Remembers nothing."""

    def seen(self) -> list[Any]:
        """Nothing."""
        return []

    def forget_seen(self, age_ns: int) -> None:
        """There is nothing."""


class Told:
    """Counts."""

    duplicates = reused = 0

    def duplicate(self) -> None:
        """One more."""
        self.duplicates += 1

    def sequence_reused(self) -> None:
        """One more."""
        self.reused += 1


@contextmanager
def table(requests: int = 1000) -> Iterator[int]:
    """The descriptor of an empty one."""
    file = os.memfd_create("table")
    os.ftruncate(file, table_bytes(requests))
    try:
        yield file
    finally:
        os.close(file)


def crew(file: int, count: int, away: set[int] | None = None) -> list[tuple[Repeats, Told]]:
    """Workers who ask each other; those that are `away` do not answer."""
    workers: list[tuple[Repeats, Told]] = []

    async def ask(worker: int, name: Name) -> bytes | None:
        if worker in (away or set()):
            raise ConnectionError("the other end is gone")
        await asyncio.sleep(0)
        return await workers[worker][0].answer_to(name)

    for me in range(count):
        told = Told()
        elsewhere = Elsewhere(Owners(file, me), me, ask)
        workers.append((Repeats(1000, 3600.0, Disk(), told, elsewhere=elsewhere), told))
    return workers


def name(number: int, body: bytes = b"x") -> Name:
    """The name of a request."""
    return name_of(body, "", b"s" * 16, number)


def keeper(repeats: Repeats, named: Name, kept: list[Name], answer: bytes = b"yes") -> Callable[[], Any]:
    """Keeps a request in a while, and notes it."""

    async def keep() -> bytes:
        await asyncio.sleep(0.001)
        kept.append(named)
        repeats.remember(named, answer)
        return answer

    return keep


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5)), max_size=40))
def test_each_request_is_kept_once(order: list[tuple[int, int]]) -> None:
    """Whichever workers its copies reach, one after the other or at once, it is kept once, and all are answered alike."""

    async def send(at_once: bool) -> list[Name]:  # noqa: FBT001 - local
        kept: list[Name] = []
        with table() as file:
            workers = crew(file, 3)
            calls = [workers[who][0].once(name(number), keeper(workers[who][0], name(number), kept)) for who, number in order]
            answers = await asyncio.gather(*calls) if at_once else [await call for call in calls]
            assert set(answers) <= {b"yes"}
            assert sum(told.duplicates for _, told in workers) == len(order) - len(kept)
        return kept

    for at_once in (False, True):
        kept = asyncio.run(send(at_once))
        assert sorted(kept, key=str) == sorted({name(number) for _, number in order}, key=str)


def test_what_was_refused_is_taken_by_whoever_is_next(run: Run) -> None:
    """A worker that had no room does not know the request; the next attempt, at another, is the first."""

    async def refuse() -> bytes:
        await asyncio.sleep(0)
        raise SpoolFull("no room")

    async def send() -> None:
        kept: list[Name] = []
        with table() as file:
            (one, _), (two, told) = crew(file, 2)
            with pytest.raises(SpoolFull):
                await one.once(name(1), refuse)
            assert await two.once(name(1), keeper(two, name(1), kept)) == b"yes"
            assert await one.once(name(1), refuse) == b"yes"
            assert (kept, told.duplicates) == ([name(1)], 0)

    run(send())


def test_an_attempt_that_begins_while_another_worker_is_told_of_none(run: Run) -> None:
    """Whoever was named may begin anew before it is heard that it has nothing: it is the first then, and is waited for."""

    async def refuse() -> bytes:
        raise SpoolFull("no room")

    async def send() -> None:
        kept: list[Name] = []
        begun: list[asyncio.Task[bytes]] = []
        with table() as file:
            (one, _) = crew(file, 1)[0]

            async def ask(_worker: int, asked: Name) -> bytes | None:
                answer = await one.answer_to(asked)
                if not begun:
                    begun.append(asyncio.create_task(one.once(asked, keeper(one, asked, kept))))
                    await asyncio.sleep(0)
                return answer

            told = Told()
            two = Repeats(1000, 3600.0, Disk(), told, elsewhere=Elsewhere(Owners(file, 1), 1, ask))
            with pytest.raises(SpoolFull):
                await one.once(name(1), refuse)
            assert await two.once(name(1), keeper(two, name(1), kept)) == b"yes"
            assert await begun[0] == b"yes"
            assert (kept, told.duplicates) == ([name(1)], 1)

    run(send())


def test_a_worker_that_is_away_may_have_kept_it(run: Run) -> None:
    """Until it is back, senders are told to come again: to keep the request here might be to keep it twice."""

    async def send() -> None:
        away: set[int] = set()
        kept: list[Name] = []
        with table() as file:
            (one, _), (two, _) = crew(file, 2, away)
            await one.once(name(1), keeper(one, name(1), kept))
            away.add(0)
            with pytest.raises(Unavailable, match="does not answer now") as told:
                await two.once(name(1), keeper(two, name(1), kept))
            assert (told.value.reason, told.value.retry_after_s) == ("worker_away", 1.0)
            away.clear()
            assert await two.once(name(1), keeper(two, name(1), kept)) == b"yes"
            assert kept == [name(1)]

    run(send())


def test_another_body_under_the_same_number(run: Run) -> None:
    """It is taken, and told, whichever worker had the first."""

    async def send() -> None:
        kept: list[Name] = []
        with table() as file:
            (one, _), (two, told) = crew(file, 2)
            await one.once(name(1), keeper(one, name(1), kept))
            await two.once(name(1, b"other"), keeper(two, name(1, b"other"), kept))
            assert await two.once(name(1, b"other"), keeper(two, name(1, b"other"), kept)) == b"yes"
            assert (len(kept), told.reused, told.duplicates) == (2, 1, 1)

    run(send())


def test_a_full_row_forgets_its_oldest() -> None:
    """The table does not grow; what is taken anew is not the oldest any more."""
    with table(5) as file:
        now = iter(range(1, 1000))
        ours, theirs = Owners(file, 0, lambda: next(now)), Owners(file, 1, lambda: next(now))
        for number in range(16):
            assert ours.take(name(number)) == (0, number + 1, False)
        assert [theirs.take(name(number)) for number in range(16)] == [(0, number + 1, False) for number in range(16)]
        assert ours.take(name(0)) == (0, 17, False)
        assert theirs.take(name(16)) == (1, 18, False)
        assert theirs.take(name(0)) == (0, 17, False)
        assert theirs.take(name(1)) == (1, 19, False)
        assert theirs.take(name(3)) == (0, 4, False)
        assert ours.take(name(3, b"other")) == (0, 20, True)
        assert ours.take(name(3, b"other")) == (0, 21, False)


def test_an_entry_is_taken_over_as_it_was_seen() -> None:
    """Not once its owner has taken it again; and then from whoever is told."""
    with table() as file:
        now = iter(range(1, 1000))
        ours, theirs = Owners(file, 0, lambda: next(now)), Owners(file, 1, lambda: next(now))
        first = ours.take(name(1))
        again = ours.take(name(1))
        assert theirs.take(name(1), instead_of=first) == again
        assert theirs.take(name(1), instead_of=again) == (1, 3, False)
        assert ours.take(name(1), instead_of=again) == (1, 3, False)
