"""Events wait for their mapping, within bounds, and go on exactly once."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from support.parking import Yard, parked_batch, toy_file
from support.spools import ROOMY

from otel_bridge.spool.lot import LotLimits
from otel_bridge.spool.protocol import Awaited, Record

Run = Callable[[Any], Any]


def test_events_sent_before_their_mapping_resolve_when_it_arrives(run: Run) -> None:
    """10,000 events of three builds first, mappings in any order later: each emitted exactly once, all `exact`."""
    yard = Yard()

    async def go() -> None:
        for number in range(200):
            await yard.spool.append(parked_batch(number, build=f"build {number % 3}", events=48))
        await yard.drain()
        assert (yard.statuses.total(), yard.outlet.parked_events) == (0, 10_000)
        order = [0, 1, 2]
        random.shuffle(order)
        for number in order:
            yard.registry.put("", toy_file(f"build {number}"))
            await yard.parking.review()
            await yard.drain()

    run(go())
    assert dict(yard.statuses) == {"exact": 9600}
    assert list(range(200)) == sorted(yard.positions)
    assert (yard.books.waiting, dict(yard.books.gone), yard.outlet.parked_events) == (10_000, {"mapping": 10_000}, 0)


def test_an_unknown_alias_binds_to_the_first_mapping_that_it_gets(run: Run) -> None:
    """Events that were parked keep that build when the alias moves on."""
    yard = Yard()

    async def go() -> list[str | None]:
        await yard.spool.append(parked_batch(0, alias="net"))
        await yard.drain()
        yard.registry.put("", toy_file("first", "net"))
        await yard.parking.review()
        yard.registry.put("", toy_file("second", "net"))
        records = await yard.sift()
        return [record.batch.streams[0].build for record in records]

    assert run(go()) == ["first"]


def test_an_alias_that_got_its_mapping_between_admission_and_pass_is_bound_at_once(run: Run) -> None:
    """Nothing waits for what is there."""
    yard = Yard()

    async def go() -> None:
        await yard.spool.append(parked_batch(0, alias="net"))
        yard.registry.put("", toy_file("first", "net"))
        await yard.drain()

    run(go())
    assert (dict(yard.statuses), yard.books.waiting) == ({"exact": 1}, 0)


def test_an_upload_between_look_up_and_parking_is_not_missed(run: Run) -> None:
    """Whatever was parked before the registry changed is looked at again."""
    yard = Yard()
    park = yard.outlet.park

    async def park_late(record: Record, awaited: Awaited) -> str | None:
        yard.registry.put("", toy_file("build"))
        await yard.parking.review()
        return await park(record, awaited)

    async def go() -> None:
        await yard.spool.append(parked_batch(0, build="build"))
        yard.outlet.park = park_late  # type: ignore[method-assign]  # the upload comes at the worst moment
        await yard.drain()
        assert yard.outlet.parked_events == 3
        await yard.parking.review()
        await yard.drain()

    run(go())
    assert dict(yard.statuses) == {"exact": 1}


@pytest.mark.parametrize(
    ("limits", "bound", "waiting"),
    [
        (replace(ROOMY, max_events_per_build=7), "events_per_build", 2),
        (replace(ROOMY, max_events=7), "events", 2),
        (replace(ROOMY, max_bytes=1), "bytes", 0),
        (replace(ROOMY, max_bytes_per_build=1), "bytes_per_build", 0),
        (replace(ROOMY, max_builds=0), "builds", 0),
    ],
)
def test_over_a_bound_events_go_on_without_a_mapping_and_are_counted(
    run: Run, limits: LotLimits, bound: str, waiting: int
) -> None:
    """To the event: what waits and what went on add up."""
    yard = Yard(limits)

    async def go() -> None:
        for number in range(5):
            await yard.spool.append(parked_batch(number, build="build"))
        await yard.drain()

    run(go())
    assert (3 * waiting, {bound: 3 * (5 - waiting)}) == (yard.outlet.parked_events, dict(yard.books.gone))
    assert {"no_mapping": 5 - waiting} == dict(yard.statuses)


def test_who_has_waited_long_enough_goes_on_and_does_not_wait_again(run: Run) -> None:
    """`no_mapping` after `max_age_s`, once."""
    yard = Yard()

    async def go() -> None:
        await yard.spool.append(parked_batch(0, build="build"))
        await yard.drain()
        yard.time_s = 30
        await yard.spool.append(parked_batch(1, build="build"))
        await yard.drain()
        yard.time_s = 61
        await yard.parking.review()
        await yard.drain()

    run(go())
    assert (yard.positions, dict(yard.statuses), dict(yard.books.gone)) == ([0], {"no_mapping": 1}, {"age": 3})
    assert yard.outlet.parked_events == 3


def test_the_policy_pass_lets_nothing_wait(run: Run) -> None:
    """And the missing builds are listed all the same."""
    yard = Yard(policy="pass")

    async def go() -> None:
        for device in range(3):
            await yard.spool.append(parked_batch(device, build="build", device=device % 2))
        await yard.drain()

    run(go())
    (missing,) = yard.parking.missing()
    assert (dict(yard.statuses), yard.books.waiting) == ({"no_mapping": 3}, 0)
    assert (str(missing.awaited), len(missing.streams), missing.passed_events) == ("build", 2, 9)


def test_without_any_model_nothing_waits(run: Run) -> None:
    """There is nothing that could arrive."""
    yard = Yard()

    async def go() -> None:
        await yard.spool.append(parked_batch(0))
        await yard.drain()

    run(go())
    assert (dict(yard.statuses), yard.parking.missing()) == ({"no_mapping": 1}, [])


def test_missing_mappings_are_listed_until_they_arrive(run: Run) -> None:
    """Since when, from how many devices; builds and aliases alike."""
    yard = Yard()

    async def go() -> None:
        yard.time_s = 5
        await yard.spool.append(parked_batch(0, build="b", device=1))
        await yard.spool.append(parked_batch(1, build="b", device=2))
        await yard.spool.append(parked_batch(2, alias="a"))
        await yard.drain()

    run(go())
    seen = [(str(each.awaited), each.first_seen_ns, len(each.streams)) for each in yard.parking.missing()]
    assert seen == [("a@1", 5 * 10**9, 1), ("b", 5 * 10**9, 2)]
    yard.registry.put("", toy_file("b"))
    run(yard.parking.review())
    assert [str(each.awaited) for each in yard.parking.missing()] == ["a@1"]


def test_a_stop_lets_parked_events_go(run: Run) -> None:
    """They were acknowledged: what cannot wait any longer goes out without its mapping."""
    yard = Yard()

    async def go() -> None:
        await yard.spool.append(parked_batch(0, build="build"))
        await yard.drain()
        yard.parking.stop()
        await yard.drain()

    run(go())
    assert dict(yard.statuses) == {"no_mapping": 1}
    assert (yard.books.waiting, dict(yard.books.gone)) == (3, {"closed": 3})
