"""When a bridge says that it is ready, by a clock that the test sets."""

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from support.spools import spool_of

from otel_bridge.app.readiness import LASTS_S, OK, REST_S, ROOM_SHARE, SILENT, Lasting, Readiness
from otel_bridge.errors import Unavailable
from otel_bridge.mapping.memory import MemoryRegistry
from otel_bridge.spool.memory import MemorySpool
from otel_bridge.wire.health import Condition

MAX_BYTES = 1000


@dataclass
class Seen:
    """What the test says is so. Time is in seconds."""

    now: float = 1000.0
    full_at_s: float = float("-inf")
    is_cut_off: bool = False
    is_broken: bool = False
    held_bytes: int = 0
    told: list[bool] = field(default_factory=list)
    was_told: asyncio.Event = field(default_factory=asyncio.Event)

    async def tell(self, *, is_ready: bool) -> None:
        """What gRPC health is told."""
        self.told.append(is_ready)
        self.was_told.set()


class Spool(MemorySpool):
    """A spool that holds as much as the test says."""

    seen: Seen

    @property
    def size_bytes(self) -> int:
        """As the test says."""
        return self.seen.held_bytes


def a_readiness(
    seen: Seen,
    registry: MemoryRegistry | None = None,
    *,
    needs_egress: bool = False,
    others: Callable[[], Awaitable[list[Condition]]] | None = None,
) -> Readiness:
    """One that has started."""
    spool = spool_of(MAX_BYTES)
    spool.__class__ = Spool
    spool.seen = seen
    made = Readiness(
        registry or MemoryRegistry(),
        spool,
        seen,
        max_bytes=MAX_BYTES,
        needs_egress=needs_egress,
        broken=lambda: seen.is_broken,
        others=others,
        now=lambda: seen.now,
    )
    made.stage = OK
    return made


def looked(readiness: Readiness, seen: Seen, seconds: float) -> Condition:
    """What is told after looking twice a second for so long."""
    for _ in range(int(seconds * 2)):
        seen.now += 0.5
        readiness.look()
    return readiness.condition()


async def told(seen: Seen) -> None:
    """Let time pass, faster than it does, until health is told something."""
    seen.was_told.clear()
    while not seen.was_told.is_set():
        seen.now += LASTS_S / 10
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(seen.was_told.wait(), 0.05)


def test_stages_are_told_at_once() -> None:
    """Neither before the start nor from the first step of a stop on is a bridge ready; nor is one whose pipeline has ended."""
    seen = Seen()
    readiness = a_readiness(seen)
    assert readiness.condition().lines() == ["ready", "bridge: ok", "registry: ok", "spool: ok", "egress: ok"]
    for stage in ("starting", "stopping"):
        readiness.stage = stage
        assert readiness.condition().lines()[:2] == ["not ready", f"bridge: {stage}"]
    readiness.stage = OK
    seen.is_broken = True
    assert readiness.condition().lines()[:2] == ["not ready", "bridge: broken: the pipeline has ended"]


@pytest.mark.parametrize("needs_egress", [True, False])
def test_a_back_end_that_is_away(needs_egress: bool) -> None:  # noqa: FBT001 - pytest gives it by name
    """An outage that lasts is told; it makes the bridge not ready only where the settings say so; so does its end."""
    seen = Seen()
    readiness = a_readiness(seen, needs_egress=needs_egress)
    seen.is_cut_off = True
    assert looked(readiness, seen, LASTS_S - 1).parts["egress"] == OK
    found = looked(readiness, seen, 2)
    assert found.parts["egress"].startswith("a back end is away")
    assert found.is_ready is not needs_egress
    seen.is_cut_off = False
    assert looked(readiness, seen, LASTS_S - 1).parts["egress"] != OK
    assert looked(readiness, seen, 2) == Condition(is_ready=True, parts=dict.fromkeys(found.parts, OK))


def test_blinking_changes_nothing() -> None:
    """Whatever comes and goes faster than `LASTS_S` is not followed, in either direction."""
    seen = Seen()
    readiness = a_readiness(seen, needs_egress=True)
    found = []
    for is_cut_off in (True, False) * 20:
        seen.is_cut_off = is_cut_off
        found.append(looked(readiness, seen, LASTS_S - 1).is_ready)
    assert all(found)
    seen.is_cut_off = True
    found = [looked(readiness, seen, LASTS_S + 1).is_ready]
    for is_cut_off in (False, True) * 20:
        seen.is_cut_off = is_cut_off
        found.append(looked(readiness, seen, LASTS_S - 1).is_ready)
    assert not any(found)


def test_a_full_spool_is_told_until_there_is_much_room() -> None:
    """At the first refusal the bridge is not ready, and again not before time has passed and a fifth of the spool is free."""
    seen = Seen(held_bytes=990)
    readiness = a_readiness(seen)
    assert looked(readiness, seen, 60).is_ready
    seen.full_at_s = seen.now
    assert readiness.condition().parts["spool"] == "full"
    assert not looked(readiness, seen, 60).is_ready
    seen.held_bytes = int(MAX_BYTES * ROOM_SHARE) + 1
    assert not looked(readiness, seen, 60).is_ready
    seen.held_bytes -= 1
    assert looked(readiness, seen, 1).is_ready
    seen.held_bytes = MAX_BYTES
    assert looked(readiness, seen, 60).is_ready


def test_a_disk_without_room_is_tried_now_and_then() -> None:
    """A spool that is nearly empty and refuses is not ready for a while after each refusal."""
    seen = Seen(held_bytes=10)
    readiness = a_readiness(seen)
    seen.full_at_s = seen.now
    assert not looked(readiness, seen, REST_S - 1).is_ready
    assert looked(readiness, seen, 1).is_ready


def test_a_registry_that_does_not_answer(run: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    """Once the registry has failed for long, health is told, and told again when it answers; the log has why."""

    class Registry(MemoryRegistry):
        is_gone = False

        def refresh(self) -> None:
            """Fail where the test says so."""
            if self.is_gone:
                raise Unavailable("its disk is gone", reason="registry_unavailable")

    seen, registry = Seen(), Registry()
    readiness = a_readiness(seen, registry)

    async def main() -> None:
        running = asyncio.create_task(readiness.run(seen.tell))
        for is_gone in (True, False):
            registry.is_gone = is_gone
            await told(seen)
        running.cancel()

    run(main())
    assert seen.told == [False, True]
    assert "its disk is gone" in caplog.text
    assert "not ready, bridge: ok, registry: cannot be read" in caplog.text


def test_a_registry_that_hangs(run: Callable[..., Any]) -> None:
    """One whose answer does not come, as on a disk that hangs, is as wrong as one that fails, until it comes."""
    answers = threading.Event()

    class Registry(MemoryRegistry):
        def refresh(self) -> None:
            """Wait for the test."""
            answers.wait(30)

    seen = Seen()
    readiness = a_readiness(seen, Registry())

    async def main() -> None:
        running = asyncio.create_task(readiness.run(seen.tell))
        await told(seen)
        answers.set()
        await told(seen)
        running.cancel()

    run(main())
    assert seen.told == [False, True]


def test_workers_are_ready_together(run: Callable[..., Any]) -> None:
    """While one is not, or does not answer, none is, and each says what is wrong; what is wrong here goes before."""
    full = Condition(is_ready=False, parts={"bridge": OK, "registry": OK, "spool": "full", "egress": OK})
    seen, said = Seen(), [full]

    async def others() -> list[Condition]:
        if not said:
            raise Unavailable("worker 1 does not answer", reason="worker_away")
        return list(said)

    readiness = a_readiness(seen, others=others)

    async def main() -> None:
        running = asyncio.create_task(readiness.run(seen.tell))
        await told(seen)
        assert readiness.condition() == full
        said.clear()
        while readiness.condition() == full:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.01)
        assert readiness.condition().lines()[:2] == ["not ready", f"bridge: {SILENT.parts['bridge']}"]
        readiness.stage = "stopping"
        assert readiness.condition().lines()[:2] == ["not ready", "bridge: stopping"]
        readiness.stage = OK
        said.append(readiness.own_condition())
        await told(seen)
        running.cancel()

    run(main())
    assert seen.told == [False, True]


def test_a_worker_that_says_nothing_holds_no_other_up(run: Callable[..., Any]) -> None:
    """While it is being asked, this one is still told of itself."""

    async def others() -> list[Condition]:
        await asyncio.Event().wait()
        return []

    seen = Seen()
    readiness = a_readiness(seen, needs_egress=True, others=others)

    async def main() -> None:
        running = asyncio.create_task(readiness.run(seen.tell))
        seen.is_cut_off = True
        await asyncio.wait_for(told(seen), 20)
        running.cancel()

    run(main())
    assert seen.told == [False]


def test_lasting_counts_from_the_last_time_it_was_otherwise() -> None:
    """A break begins the time anew."""
    now = [0.0]
    lasting = Lasting(10, lambda: now[0])
    for at, is_wrong, believed in ((9, True, False), (9.5, False, False), (19, True, False), (19.5, True, True)):
        now[0] = at
        assert lasting.see(is_wrong=is_wrong) is believed
