"""Requests that a spool on disk has seen: what is remembered of them over several lives."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.spools import DAY_S, ROOMY, Watched, batch, outlet_of, positions

from otel_bridge.spool.opening import Clocks
from otel_bridge.spool.protocol import Seen
from otel_bridge.spool.room import Bounds
from otel_bridge.spool.sqlite import SqliteSpool

Run = Callable[[Any], Any]


def test_requests_that_were_seen_are_kept_with_their_batch(run: Run, tmp_path: Path) -> None:
    """Also where nobody waits for that any more; they get older over lives, and are forgotten."""
    time_s = 1000

    def reopened() -> SqliteSpool:
        clocks = Clocks(lambda: time_s * 10**9, lambda: 5)
        return SqliteSpool(tmp_path, Bounds(10**8, 10**8, DAY_S), ROOMY, Watched(), clocks=clocks)

    async def send(spool: SqliteSpool, digest: bytes) -> None:
        for position, key in enumerate((b"a", b"b")):
            await spool.append(batch(1, position), Seen(key, digest, b"taken"))
        left = asyncio.create_task(spool.append(batch(1, 9), Seen(b"c", digest, b"taken")))
        await asyncio.sleep(0)
        left.cancel()
        await asyncio.gather(left, return_exceptions=True)
        await spool.append(batch(1, 8))
        spool.close()
        await spool.finish()

    run(send(reopened(), b"1"))
    time_s += 60
    spool = reopened()
    assert list(spool.seen()) == [Seen(key, b"1", b"taken", 60 * 10**9) for key in (b"a", b"b", b"c")]
    run(send(spool, b"2"))
    time_s += 1
    spool = reopened()
    spool.forget_seen(59 * 10**9)
    spool.close()
    run(spool.finish())
    spool = reopened()
    assert list(spool.seen()) == [Seen(key, b"2", b"taken", 10**9) for key in (b"a", b"b", b"c")]
    spool.close()
    assert positions(run(outlet_of(spool).read(100))) == [0, 1, 9, 8, 0, 1, 9, 8]
    run(spool.finish())
