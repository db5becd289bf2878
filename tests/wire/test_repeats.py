"""Requests that are sent again, one by one and at once, and what is remembered of them."""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_bridge.errors import SpoolFull
from otel_bridge.spool.protocol import Seen
from otel_bridge.wire.repeats import MAX_OF_ONE_NAME, Name, Repeats, name_of

HOUR_S = 3600.0


class Disk:
    """What remembers; `oldest_s` is the age beyond which it was told to forget."""

    def __init__(self, rows: Sequence[Seen] = ()) -> None:
        self.rows = rows
        self.oldest_s: list[float] = []

    def seen(self) -> Sequence[Seen]:
        """The rows, in any order."""
        return self.rows

    def forget_seen(self, age_ns: int) -> None:
        """Note it."""
        self.oldest_s.append(age_ns / 1e9)


class Told(Counter[str]):
    """A `Watch`."""

    def duplicate(self) -> None:
        """Add one."""
        self["duplicate"] += 1

    def sequence_reused(self) -> None:
        """Add one."""
        self["reused"] += 1


class Clock:
    """A clock that is set."""

    now_s = 1000.0

    def __call__(self) -> float:
        """The time."""
        return self.now_s


def name(number: int, body: bytes = b"x", stream: bytes = b"s" * 16) -> Name:
    """The name of a request."""
    return name_of(body, "", stream, number)


def remembers(entries: int = 10**6, disk: Disk | None = None, clock: Callable[[], float] | None = None) -> Repeats:
    """For an hour."""
    return Repeats(entries, HOUR_S, disk or Disk(), Told(), clock or Clock())


@given(st.lists(st.tuples(st.text(max_size=3), st.binary(min_size=1, max_size=3), st.integers(0, 2)), max_size=20, unique=True))
def test_names_do_not_collide(said: list[tuple[str, bytes, int]]) -> None:
    """Tenant, stream and number are the key, whatever they are made of; the body is the digest."""
    assert len({name_of(b"", *one).key for one in said}) == len(said)
    assert {name_of(b"", *one).digest for one in said} <= {name_of(b"", "", b"", 0).digest}


@pytest.mark.parametrize("size", [0, 2046, 2047, 2048, 4094, 4095, 65_535, 65_536, 65_537])
def test_a_digest_is_of_the_whole_body(size: int) -> None:
    """However it is taken: requests that were kept by another version are known by it."""
    body = bytes(at % 251 for at in range(size))
    assert name(1, body).digest == hashlib.blake2b(body, digest_size=16).digest()


def test_without_a_stream_the_body_stands_for_it() -> None:
    """Requests without a stream differ by their bodies in the key too; so do files, whose content is their number."""
    assert name_of(b"a", "", b"", 0).key != name_of(b"b", "", b"", 0).key
    assert name_of(b"a", "", b"s", None).key != name_of(b"b", "", b"s", None).key
    assert name_of(b"a", "", b"s", 0).key == name_of(b"b", "", b"s", 0).key


@given(
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from([b"x", b"y"]), st.floats(0, 2000)), max_size=60), st.integers(1, 6)
)
def test_what_is_remembered(steps: list[tuple[int, bytes, float]], entries: int) -> None:
    """As a plain list would: of the last so many requests those of the last hour are known, with their answers."""
    clock = Clock()
    repeats = remembers(entries, clock=clock)
    model: list[tuple[Name, bytes, float]] = []
    for number, (sequence, body, pause_s) in enumerate(steps):
        clock.now_s += pause_s
        this = name(sequence, body)
        known = [answer for one, answer, at_s in model[-entries:] if one == this and at_s >= clock.now_s - HOUR_S]
        assert repeats.find(this) == (known[0] if known else None)
        if not known:
            answer = b"%d" % number
            repeats.remember(this, answer)
            model.append((this, answer, clock.now_s))
        assert len(repeats) <= entries


def test_one_name_has_few_bodies() -> None:
    """A sender that uses one number for everything is remembered for its last requests, and does not crowd out others."""
    repeats = remembers()
    repeats.remember(name(7), b"other")
    for body in range(100):
        repeats.remember(name(1, b"%d" % body), b"%d" % body)
    found = [repeats.find(name(1, b"%d" % body)) for body in range(100)]
    assert found == [None] * (100 - MAX_OF_ONE_NAME) + [b"%d" % body for body in range(100 - MAX_OF_ONE_NAME, 100)]
    assert repeats.find(name(7)) == b"other"


def test_a_restart_remembers() -> None:
    """What was on disk is known again, with its age; the oldest of more than may be are not."""
    rows = [Seen(name(n).key, name(n).digest, b"%d" % n, int(n * 1000e9)) for n in (3, 0, 2, 1, 5)]
    repeats = remembers(3, Disk(rows))
    assert [repeats.find(name(n)) for n in range(6)] == [b"0", b"1", b"2", None, None, None]


def test_the_disk_forgets_too() -> None:
    """What is forgotten goes from the disk, many at a time: all that is older than what is still known."""
    disk, clock = Disk(), Clock()
    repeats = remembers(100, disk, clock)
    for number in range(3000):
        clock.now_s += 0.5
        repeats.remember(name(number), b"")
    assert len(disk.oldest_s) == 2
    assert set(disk.oldest_s) == {99 * 0.5}


def test_nothing_is_remembered() -> None:
    """Where nothing is to be remembered nothing is written, and what was on disk is forgotten."""
    disk = Disk([Seen(name(1).key, name(1).digest, b"1", 0)])
    for entries, age_s, rows in ((0, HOUR_S, None), (10, 0.0, None), (10, HOUR_S, Seen(name(2).key, name(2).digest, b"2"))):
        repeats = Repeats(entries, age_s, disk, Told(), Clock())
        repeats.remember(name(2), b"2")
        assert repeats.row_of(name(2), b"2") == rows
        assert (repeats.find(name(1)) is None) == (repeats.find(name(2)) is None) == (rows is None)
    assert disk.oldest_s == [0, 0]


def test_attempts_at_once(run: Callable[..., Any]) -> None:
    """Of many attempts at once one is kept; all are answered as it is, when it is, and one that went away changes nothing."""

    async def main() -> None:
        told, gate, kept = Told(), asyncio.Event(), []
        repeats = Repeats(10, HOUR_S, Disk(), told)

        async def keep() -> bytes:
            kept.append(1)
            await gate.wait()
            repeats.remember(name(1), b"answer")
            return b"answer"

        attempts = [asyncio.ensure_future(repeats.once(name(1), keep)) for _ in range(5)]
        await asyncio.sleep(0)
        attempts[0].cancel()
        attempts[3].cancel()
        gate.set()
        answers = await asyncio.gather(*attempts, return_exceptions=True)
        assert [answer for answer in answers if not isinstance(answer, BaseException)] == [b"answer"] * 3
        assert await repeats.once(name(1), keep) == b"answer"
        assert (kept, told) == ([1], {"duplicate": 4})

    run(main())


def test_after_a_failure_the_next_is_the_first(run: Callable[..., Any]) -> None:
    """An attempt that fails is told so alone; the next, which waited for it, is tried as the first."""

    async def main() -> None:
        told, tries = Told(), []
        repeats = Repeats(10, HOUR_S, Disk(), told)

        async def keep() -> bytes:
            tries.append(1)
            await asyncio.sleep(0)
            if len(tries) < 3:
                raise SpoolFull("no room")
            return b"answer"

        answers = await asyncio.gather(*(repeats.once(name(1), keep) for _ in range(4)), return_exceptions=True)
        assert [type(answer) for answer in answers] == [SpoolFull, SpoolFull, bytes, bytes]
        assert (len(tries), told) == (3, {"duplicate": 1})

    run(main())


def test_an_attempt_at_the_moment_of_failure(run: Callable[..., Any]) -> None:
    """An attempt that comes when another has just failed, and before anybody was told, is the first."""

    async def main() -> None:
        repeats, second = Repeats(10, HOUR_S, Disk(), Told()), []

        async def kept() -> bytes:
            return b"answer"

        async def fail() -> bytes:
            await asyncio.sleep(0)
            second.append(asyncio.ensure_future(repeats.once(name(1), kept)))  # begins before the callbacks of this task
            raise SpoolFull("no room")

        with pytest.raises(SpoolFull):
            await repeats.once(name(1), fail)
        assert await second[0] == b"answer"

    run(main())


def test_an_attempt_at_the_moment_of_success(run: Callable[..., Any]) -> None:
    """An attempt that comes when another has just been kept, and before anybody was told, is a duplicate: no other body."""

    async def main() -> None:
        told = Told()
        repeats, second = Repeats(0, HOUR_S, Disk(), told), []  # which remembers nothing

        async def keep() -> bytes:
            await asyncio.sleep(0)
            second.append(asyncio.ensure_future(repeats.once(name(1), keep)))  # begins before the callbacks of this task
            return b"answer"

        assert await repeats.once(name(1), keep) == b"answer"
        assert await second[0] == b"answer"
        assert told == {"duplicate": 1}

    run(main())


def test_who_goes_away_is_there_until_it_is_kept(run: Callable[..., Any]) -> None:
    """A request whose sender went away holds its place as long as it is being kept: nothing is in the bridge uncounted."""

    async def main() -> None:
        repeats, gate = Repeats(10, HOUR_S, Disk(), Told()), asyncio.Event()

        async def keep() -> bytes:
            await gate.wait()
            return b"answer"

        attempt = asyncio.ensure_future(repeats.once(name(1), keep))
        await asyncio.sleep(0)
        attempt.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
        assert not attempt.done()
        gate.set()
        with pytest.raises(asyncio.CancelledError):
            await attempt

    run(main())


@pytest.mark.parametrize("at_once", ["at once", ""])
def test_a_number_that_is_used_twice(at_once: str, run: Callable[..., Any]) -> None:
    """The same stream and number with another body is taken, and told; both are remembered."""

    async def main() -> None:
        told = Told()
        repeats = Repeats(10, HOUR_S, Disk(), told)

        async def take(body: bytes) -> bytes:
            async def keep() -> bytes:
                await asyncio.sleep(0)
                repeats.remember(name(1, body), body)
                return body

            return await repeats.once(name(1, body), keep)

        if at_once:
            assert await asyncio.gather(take(b"x"), take(b"y")) == [b"x", b"y"]
        else:
            assert [await take(b"x"), await take(b"y")] == [b"x", b"y"]
        assert [await take(b"x"), await take(b"y")] == [b"x", b"y"]
        assert told == {"reused": 1, "duplicate": 2}

    run(main())
