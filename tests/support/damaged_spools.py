"""A spool on disk that is filled and closed, to be damaged, and what comes out of it afterwards."""

from pathlib import Path

from support.spools import DAY_S, ROOMY, Watched, batch, emitted, outlet_of, positions

from otel_bridge.spool.protocol import Awaited
from otel_bridge.spool.room import Bounds
from otel_bridge.spool.sqlite import SqliteSpool

BATCHES, EVENTS = 40, 30
BOUNDS = Bounds(10**8, 10**8, DAY_S)


def opened(folder: Path, watched: Watched | None = None, bounds: Bounds = BOUNDS) -> SqliteSpool:
    """The spool in a folder."""
    return SqliteSpool(folder, bounds, ROOMY, watched or Watched())


async def filled(spool: SqliteSpool, *, parked: int = 0) -> None:
    """Batches of which the first ones are parked; then it is closed in good order."""
    for position in range(BATCHES):
        await spool.append(batch(EVENTS, position))
    if parked:
        outlet = outlet_of(spool)
        for record in (await outlet.read(parked * EVENTS))[:parked]:
            assert await outlet.park(record, Awaited("b")) is None
    await closed(spool)


async def closed(spool: SqliteSpool) -> None:
    """The end of a process."""
    spool.close()
    await spool.finish()


async def drained(spool: SqliteSpool) -> list[int]:
    """Which batches come out until there are no more."""
    found: list[int] = []
    outlet = outlet_of(spool)
    await spool.release(Awaited("b"), "build")
    spool.close()
    while records := await outlet.read(1000):
        found += positions(records)
        await outlet.done(records, emitted(records))
    assert (outlet.events, spool.size_bytes, outlet.parked_events, outlet.unaccounted_events) == (0, 0, 0, 0)
    await spool.finish()
    return found
