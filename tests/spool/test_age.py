"""Time that goes on over restarts, and does not follow a wall clock that is set."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.spools import DAY_S, ROOMY, Watched, batch, outlet_of

from otel_bridge.model.destination import DEFAULT
from otel_bridge.spool.opening import Clocks
from otel_bridge.spool.protocol import Awaited
from otel_bridge.spool.room import Bounds
from otel_bridge.spool.sqlite import SqliteSpool

Run = Callable[[Any], Any]
NOON_S = 1_800_000_000


def opened(folder: Path, wall_s: float, watched: Watched | None = None) -> SqliteSpool:
    """The spool of a process that starts when the wall clock says `wall_s`, and whose own clock stands still."""
    clocks = Clocks(lambda: int(wall_s * 1e9), lambda: 5)
    return SqliteSpool(folder, Bounds(10**8, 10**8, DAY_S), ROOMY, watched or Watched(), clocks=clocks)


async def parked(spool: SqliteSpool) -> None:
    """One record that may wait for a minute; then the process ends."""
    await spool.append(batch(1))
    (record,) = await outlet_of(spool).read(1)
    assert await outlet_of(spool).park(record, Awaited("b")) is None
    await ended(spool)


async def ended(spool: SqliteSpool) -> None:
    """The end of a process."""
    spool.close()
    await spool.finish()


@pytest.mark.parametrize(
    ("starts_s", "expired"),
    [
        ([59], [0]),
        ([61], [1]),
        ([40, 80], [0, 1]),
        ([-3600, -3541, -3539], [0, 0, 1]),  # set back by an hour: none has passed then; later, what passes
        ([30 * DAY_S, 30 * DAY_S + 61], [0, 1]),  # set forward by a month: is not believed
    ],
)
def test_what_waits_gets_older_while_nothing_runs(starts_s: list[float], expired: list[int], run: Run, tmp_path: Path) -> None:
    """By what the wall clock says has passed, unless it was set."""
    run(parked(opened(tmp_path, NOON_S)))
    for start_s, events in zip(starts_s, expired, strict=True):
        spool = opened(tmp_path, NOON_S + start_s)
        assert outlet_of(spool).parked_events == 1
        assert run(spool.expire()) == ({DEFAULT: events} if events else {})
        run(ended(spool))


def test_a_clock_that_was_set_is_told(run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Once, at the start."""
    run(parked(opened(tmp_path, NOON_S)))
    run(ended(opened(tmp_path, NOON_S - 10)))
    assert (
        caplog.messages.count("the wall clock was set since the spool was last written; the time between counts as none") == 1
    )


def test_what_has_waited_for_its_turn_too_long_is_dropped(run: Run, tmp_path: Path) -> None:
    """To the event, and the others go on."""
    for start_s, events in ((0, 7), (DAY_S - 1, 5)):
        spool = opened(tmp_path, NOON_S + start_s)
        run(spool.append(batch(events)))
        run(ended(spool))
    watched = Watched()
    spool = opened(tmp_path, NOON_S + DAY_S + 1, watched)
    (record,) = run(outlet_of(spool).read(100))
    assert (len(record.batch), outlet_of(spool).events, watched.found) == (5, 5, 12)
    assert watched.drops == {"spool_age": 7}
    run(ended(spool))


def test_what_waited_for_its_mapping_has_not_waited_for_its_turn(run: Run, tmp_path: Path) -> None:
    """The lot has a bound of its own: what it lets go of, after whatever time, is not too old when it is read."""
    run(parked(opened(tmp_path, NOON_S)))
    watched = Watched()
    spool = opened(tmp_path, NOON_S + DAY_S + 1, watched)
    assert run(spool.expire()) == {DEFAULT: 1}
    (record,) = run(outlet_of(spool).read(100))
    assert (record.has_waited, watched.drops) == (True, {})
    run(ended(spool))
