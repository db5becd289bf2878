"""A pipeline that fails ends the bridge, whenever that is: one that only takes events in would fill its spool and look well."""

import asyncio
from pathlib import Path

import pytest
from support.pipelines import BackEnd

from otel_bridge.app.bridge import Bridge
from otel_bridge.config.load import load
from otel_bridge.errors import Unavailable
from otel_bridge.spool.outlet import SqliteOutlet
from otel_bridge.spool.sqlite import SqliteSpool

DAMAGE = Unavailable("the spool's file is damaged", reason="spool_damaged")


@pytest.fixture
def bridge(tmp_path: Path) -> Bridge:
    """A bridge in this process, on any free ports."""
    settings = {"server.grpc_address": "127.0.0.1:0", "server.http_address": "127.0.0.1:0", "server.data_dir": str(tmp_path)}
    return Bridge(load(None, {**settings, "server.turn_away_s": 0.0}), exporter=BackEnd())


def test_before_the_doors_are_open(bridge: Bridge, monkeypatch: pytest.MonkeyPatch) -> None:
    """A spool whose first record cannot be read ends the pipeline while the doors are still being opened."""

    async def damaged(*_: object) -> None:
        raise DAMAGE

    monkeypatch.setattr(SqliteOutlet, "read", damaged)

    async def started() -> None:
        await bridge.start()
        try:
            async with asyncio.timeout(30):
                await bridge.wait_broken()
        finally:
            await bridge.stop()

    asyncio.run(started())


def test_while_it_stops(bridge: Bridge, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """What could not be read during the drain is told: an exit code of 0 would say that all is well."""
    closed = asyncio.Event()

    async def damaged(*_: object) -> None:
        await closed.wait()
        raise DAMAGE

    monkeypatch.setattr(SqliteOutlet, "read", damaged)
    monkeypatch.setattr(SqliteSpool, "close", lambda _: closed.set() or {})

    async def stopped() -> None:
        await bridge.start()
        await bridge.stop()
        async with asyncio.timeout(30):
            await bridge.wait_broken()

    asyncio.run(stopped())
    assert "the pipeline has ended, nothing leaves for default any more" in caplog.text


def test_a_stop_is_no_fault(bridge: Bridge, caplog: pytest.LogCaptureFixture) -> None:
    """A pipeline that ends because it was asked to says nothing."""

    async def stopped() -> None:
        await bridge.start()
        await bridge.stop()

    asyncio.run(stopped())
    assert "the pipeline has ended" not in caplog.text
