"""Events wait for their mapping, within bounds, and go on exactly once."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from support.mappings import mapping_of
from support.scenes import STREAM, batch_of, call, delegated, execute, runtime
from support.spools import ROOMY

from otel_bridge.mapping.cache import CompiledMappings
from otel_bridge.mapping.memory import MemoryRegistry
from otel_bridge.metadata.table import Decoders
from otel_bridge.model.events import EventBatch
from otel_bridge.model.stream import ModelRef
from otel_bridge.pipeline.parking import Parking, Policy
from otel_bridge.pipeline.stages import Stages, count_by_status
from otel_bridge.spool.lot import LotLimits
from otel_bridge.spool.memory import MemorySpool
from otel_bridge.spool.protocol import Record
from otel_bridge.v1 import mapping_pb2 as pb

Run = Callable[[Any], Any]


class Books:
    """A ledger that remembers."""

    def __init__(self) -> None:
        """Nothing has happened."""
        self.waiting = 0
        self.gone: Counter[str] = Counter()

    def parked(self, events: int) -> None:
        """Events began to wait."""
        self.waiting += events

    def unparked(self, events: int, reason: str) -> None:
        """Events go on."""
        self.gone[reason] += events


class Yard:
    """A spool with its lot, a registry, and what came through, with a clock that the test moves."""

    def __init__(self, limits: LotLimits = ROOMY, policy: Policy = "park") -> None:
        """Empty."""
        self.time_s = 0.0
        self.books = Books()
        self.registry = MemoryRegistry()
        mappings = CompiledMappings(self.registry, 1 << 20)
        self.spool = MemorySpool(10**9, limits, now_s=lambda: self.time_s)
        self.parking = Parking(
            self.spool, self.registry, mappings, self.books, policy=policy, now_ns=lambda: int(self.time_s * 1e9)
        )
        self.stages = Stages(mappings, Decoders(), 1 << 20)
        self.statuses: Counter[str] = Counter()
        self.positions: list[int] = []

    def now_ns(self) -> int:
        """The same clock, as a wall clock."""
        return int(self.time_s * 1e9)

    async def drain(self) -> None:
        """Take everything that waits in line as far as it goes."""
        while self.spool.events:
            records = await self.spool.read(1000)
            going = await self.parking.sift(records)
            for record in going:
                self._resolve(record)
            await self.spool.done(going)

    def _resolve(self, record: Record) -> None:
        self.positions += [block.position for block in record.batch.blocks]
        for (status, _), events in count_by_status(self.stages.run(record.batch)).items():
            self.statuses[status] += events


def batch(position: int, *, build: str | None = None, alias: str = "", events: int = 1, device: int = 0) -> EventBatch:
    """An inference of a build, or of what an alias will name, with so many delegate events."""
    stream = replace(STREAM, stream_id=bytes([device + 1]) * 16, build=build, model=ModelRef(alias or None, "1"))
    inside = [delegated(1, 0, n, n + 1) for n in range(events)]
    return batch_of(
        (execute(position), [*inside, call("DELEGATE_CALL", 0, 0, 99), runtime("Method::execute", 0, 100)]), stream=stream
    )


def file(build: str, name: str = "") -> pb.MappingFile:
    """A mapping that knows identifier 1."""
    return pb.MappingFile(mapping=mapping_of({1: [1]}), build_id=build, name=name, version="1" if name else "")


def test_events_sent_before_their_mapping_resolve_when_it_arrives(run: Run) -> None:
    """10,000 events of three builds first, mappings in any order later: each emitted exactly once, all `exact`."""
    yard = Yard()

    async def go() -> None:
        for number in range(200):
            await yard.spool.append(batch(number, build=f"build {number % 3}", events=48))
        await yard.drain()
        assert (yard.statuses.total(), yard.spool.parked_events) == (0, 10_000)
        order = [0, 1, 2]
        random.shuffle(order)
        for number in order:
            yard.registry.put("", file(f"build {number}"))
            await yard.parking.review()
            await yard.drain()

    run(go())
    assert dict(yard.statuses) == {"exact": 9600}
    assert list(range(200)) == sorted(yard.positions)
    assert (yard.books.waiting, dict(yard.books.gone), yard.spool.parked_events) == (10_000, {"mapping": 10_000}, 0)


def test_an_unknown_alias_binds_to_the_first_mapping_that_it_gets(run: Run) -> None:
    """Events that were parked keep that build when the alias moves on."""
    yard = Yard()

    async def go() -> list[str | None]:
        await yard.spool.append(batch(0, alias="net"))
        await yard.drain()
        yard.registry.put("", file("first", "net"))
        await yard.parking.review()
        yard.registry.put("", file("second", "net"))
        records = await yard.parking.sift(await yard.spool.read(10))
        return [record.batch.streams[0].build for record in records]

    assert run(go()) == ["first"]


def test_an_alias_that_got_its_mapping_between_admission_and_pass_is_bound_at_once(run: Run) -> None:
    """Nothing waits for what is there."""
    yard = Yard()

    async def go() -> None:
        await yard.spool.append(batch(0, alias="net"))
        yard.registry.put("", file("first", "net"))
        await yard.drain()

    run(go())
    assert (dict(yard.statuses), yard.books.waiting) == ({"exact": 1}, 0)


def test_an_upload_between_look_up_and_parking_is_not_missed(run: Run) -> None:
    """Whatever was parked before the registry changed is looked at again."""
    yard = Yard()
    park = yard.spool.park

    async def park_late(record: Record, ref: str) -> str | None:
        yard.registry.put("", file("build"))
        await yard.parking.review()
        return await park(record, ref)

    async def go() -> None:
        await yard.spool.append(batch(0, build="build"))
        yard.spool.park = park_late  # type: ignore[method-assign]  # the upload comes at the worst moment
        await yard.drain()
        assert yard.spool.parked_events == 3
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
            await yard.spool.append(batch(number, build="build"))
        await yard.drain()

    run(go())
    assert (3 * waiting, {bound: 3 * (5 - waiting)}) == (yard.spool.parked_events, dict(yard.books.gone))
    assert {"no_mapping": 5 - waiting} == dict(yard.statuses)


def test_who_has_waited_long_enough_goes_on_and_does_not_wait_again(run: Run) -> None:
    """`no_mapping` after `max_age_s`, once."""
    yard = Yard()

    async def go() -> None:
        await yard.spool.append(batch(0, build="build"))
        await yard.drain()
        yard.time_s = 30
        await yard.spool.append(batch(1, build="build"))
        await yard.drain()
        yard.time_s = 61
        await yard.parking.review()
        await yard.drain()

    run(go())
    assert (yard.positions, dict(yard.statuses), dict(yard.books.gone)) == ([0], {"no_mapping": 1}, {"age": 3})
    assert yard.spool.parked_events == 3


def test_the_policy_pass_lets_nothing_wait(run: Run) -> None:
    """And the missing builds are listed all the same."""
    yard = Yard(policy="pass")

    async def go() -> None:
        for device in range(3):
            await yard.spool.append(batch(device, build="build", device=device % 2))
        await yard.drain()

    run(go())
    (missing,) = yard.parking.missing()
    assert (dict(yard.statuses), yard.books.waiting) == ({"no_mapping": 3}, 0)
    assert (missing.ref, len(missing.streams), missing.passed_events) == ("build", 2, 9)


def test_without_any_model_nothing_waits(run: Run) -> None:
    """There is nothing that could arrive."""
    yard = Yard()

    async def go() -> None:
        await yard.spool.append(batch(0))
        await yard.drain()

    run(go())
    assert (dict(yard.statuses), yard.parking.missing()) == ({"no_mapping": 1}, [])


def test_missing_mappings_are_listed_until_they_arrive(run: Run) -> None:
    """Since when, from how many devices; builds and aliases alike."""
    yard = Yard()

    async def go() -> None:
        yard.time_s = 5
        await yard.spool.append(batch(0, build="b", device=1))
        await yard.spool.append(batch(1, build="b", device=2))
        await yard.spool.append(batch(2, alias="a"))
        await yard.drain()

    run(go())
    seen = [(each.ref, each.first_seen_ns, len(each.streams)) for each in yard.parking.missing()]
    assert seen == [("a@1", 5 * 10**9, 1), ("b", 5 * 10**9, 2)]
    yard.registry.put("", file("b"))
    run(yard.parking.review())
    assert [each.ref for each in yard.parking.missing()] == ["a@1"]


def test_a_stop_lets_parked_events_go(run: Run) -> None:
    """They were acknowledged: what cannot wait any longer goes out without its mapping."""
    yard = Yard()

    async def go() -> None:
        await yard.spool.append(batch(0, build="build"))
        await yard.drain()
        yard.parking.stop()
        await yard.drain()

    run(go())
    assert dict(yard.statuses) == {"no_mapping": 1}
    assert (yard.books.waiting, dict(yard.books.gone)) == (3, {"closed": 3})
