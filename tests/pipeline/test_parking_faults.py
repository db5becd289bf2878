"""What others do to events that wait: names that collide, a registry that goes away, another process."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.parking import Yard, parked_batch, toy_file

from otel_bridge.errors import Unavailable
from otel_bridge.mapping.memory import MemoryRegistry
from otel_bridge.mapping.sqlite import open_registry
from otel_bridge.pipeline import missing, parking

Run = Callable[[Any], Any]


class Away(MemoryRegistry):
    """A registry whose documents cannot be had a few times."""

    def __init__(self, times: int) -> None:
        """So many times."""
        super().__init__()
        self.times = times

    def document(self, tenant: str, build_id: str) -> tuple[str, bytes] | None:
        """See `Registry`."""
        if self.times:
            self.times -= 1
            raise Unavailable("away", retry_after_s=0.1)
        return super().document(tenant, build_id)


def test_a_build_and_an_alias_of_one_text_are_two_things(run: Run) -> None:
    """A device whose build id looks like an alias is never resolved with what the alias names, nor the other way round."""
    yard = Yard()

    async def go() -> None:
        await yard.spool.append(parked_batch(0, build="net@1"))
        await yard.drain()
        yard.registry.put("", toy_file("other", "net"))
        await yard.parking.review()
        assert yard.outlet.parked_events == 3
        yard.registry.put("", toy_file("net@2"))
        await yard.spool.append(parked_batch(1, build="net@2"))
        await yard.spool.append(parked_batch(2, alias="net@2"))
        await yard.drain()

    run(go())
    assert dict(yard.statuses) == {"exact": 1, "no_mapping": 1}  # no mapping can get an alias with @ in its name
    assert [str(each.awaited) for each in yard.parking.missing()] == ["net@1"]


def test_a_registry_that_is_away_costs_time_alone(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events are looked up again until it is back; reviews go on."""
    monkeypatch.setattr(parking, "TICK_S", 0.001)
    registry = Away(2)
    yard = Yard(registry=registry)
    registry.put("", toy_file("build"))

    async def go() -> None:
        await yard.spool.append(parked_batch(0, build="build"))
        await yard.drain()
        assert dict(yard.statuses) == {"exact": 1}
        await yard.spool.append(parked_batch(1, build="late"))
        await yard.drain()
        registry.put("", toy_file("late"))
        registry.times = 1
        with pytest.raises(Unavailable):
            await yard.parking.review()
        await yard.parking.review()
        await yard.drain()

    run(go())
    assert dict(yard.statuses) == {"exact": 2}


def test_a_registry_that_stays_away_keeps_nobody(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """After some attempts events go on, and the stages say how they end."""
    monkeypatch.setattr(parking, "TICK_S", 0.001)
    yard = Yard(registry=Away(100))

    async def go() -> int:
        await yard.spool.append(parked_batch(0, build="build"))
        return len(await yard.sift())

    assert run(go()) == 1


def test_an_upload_of_another_process_is_seen(run: Run, tmp_path: Path) -> None:
    """Two registries on one directory: what one gets releases what waits at the other."""
    ours, theirs = open_registry(tmp_path), open_registry(tmp_path)
    yard = Yard(registry=ours)

    async def go() -> None:
        await yard.spool.append(parked_batch(0, build="build"))
        await yard.spool.append(parked_batch(1, alias="net"))
        await yard.drain()
        await asyncio.to_thread(theirs.put, "", toy_file("build", "net"))
        await yard.parking.review()
        await yard.drain()

    run(go())
    ours.close()
    theirs.close()
    assert dict(yard.statuses) == {"exact": 2}


def test_what_has_got_its_mapping_is_not_missing(run: Run) -> None:
    """Also where nothing waited for it."""
    yard = Yard(policy="pass")

    async def go() -> None:
        await yard.spool.append(parked_batch(0, build="build"))
        await yard.drain()
        assert len(yard.parking.missing()) == 1
        yard.registry.put("", toy_file("build"))
        await yard.parking.review()

    run(go())
    assert yard.parking.missing() == []


def test_devices_do_not_choose_how_much_is_remembered(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Builds are forgotten oldest first, and devices are counted up to a bound over all builds, which forgetting frees.

    The bounds are of a tenant: what one makes up takes nothing from another.
    """
    monkeypatch.setattr(missing, "MAX_OF_TENANT", 2)
    monkeypatch.setattr(missing, "MAX_DEVICES_OF_TENANT", 3)
    yard = Yard(policy="pass")

    async def seen(build: str, devices: int, tenant: str = "") -> list[tuple[str, int]]:
        for device in range(devices):
            batch = parked_batch(0, build=build, device=device)
            await yard.spool.append(replace(batch, streams=(replace(batch.streams[0], tenant=tenant),)))
        await yard.drain()
        return [(str(each.awaited), len(each.streams)) for each in yard.parking.missing(tenant)]

    assert run(seen("theirs", 2, "acme")) == [("theirs", 2)]
    assert run(seen("a", 2)) == [("a", 2)]
    assert run(seen("b", 2)) == [("a", 2), ("b", 1)]
    run(seen("c", 1))
    assert run(seen("c", 3)) == [("b", 1), ("c", 2)]
    assert run(seen("theirs", 1, "acme")) == [("theirs", 2)]


def test_a_name_that_no_mapping_can_get_is_not_waited_for(run: Run) -> None:
    """A label over its limit, or a name with @: the events go on at once, and nobody is told to upload what cannot be."""
    yard = Yard()

    async def go() -> None:
        await yard.spool.append(parked_batch(0, alias="x" * 5000))
        await yard.spool.append(parked_batch(1, alias="a@b"))
        await yard.drain()

    run(go())
    assert (dict(yard.statuses), yard.parking.missing()) == ({"no_mapping": 2}, [])
