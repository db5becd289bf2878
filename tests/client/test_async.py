"""The client of an event loop. BlockBuster fails each of these tests if the loop is blocked (tests/conftest.py)."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.certificates import make_certificates
from support.faulty_bridge import FaultyBridge
from support.inferences import QUICK, infer, positions_of

from otel_bridge.client import AsyncBridgeClient, BridgeClient, ClientStats, EventTracer
from otel_bridge.errors import BridgeError, ConfigError

Run = Callable[[Any], Any]


def test_it_sends(bridge: FaultyBridge, run: Run, tmp_path: Path) -> None:
    """Tracers record on the loop, a flush is awaited, and the end of the block is the end of the client."""

    async def app() -> ClientStats:
        settings = replace(QUICK, buffer=tmp_path / "buffer")
        async with AsyncBridgeClient(bridge.address, settings=settings) as client:
            tracer = EventTracer(client)
            for _ in range(10):
                infer(tracer)
                await asyncio.sleep(0)
            assert await client.flush(30)
            assert client.stats.accepted == 40
            infer(tracer)
        return client.stats

    assert run(app()) == ClientStats(recorded=44, accepted=44)
    assert [position for _, position in positions_of(bridge.taken)] == list(range(11))


def test_nobody_answers(bridge: FaultyBridge, run: Run) -> None:
    """A flush ends with its time, a cancelled one at once, and the loop runs on."""
    bridge.go_away()

    async def app() -> ClientStats:
        async with AsyncBridgeClient(bridge.address, settings=replace(QUICK, close_timeout_s=0.05)) as client:
            infer(EventTracer(client))
            assert not await client.flush(0.05)
            waiting = asyncio.create_task(client.flush())
            await asyncio.sleep(0.05)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            abandoned = asyncio.wrap_future(client.sync.begin_flush())
            other = asyncio.create_task(client.flush())
            await asyncio.sleep(0)
            abandoned.cancel()  # costs nobody else who waits for the same
        assert await other is False
        return client.stats

    assert run(app()) == ClientStats(recorded=4, dropped={"closed": 4})


def test_files_are_read_off_the_loop(run: Run, tmp_path: Path) -> None:
    """Certificates and token are read when the block is entered, where what is wrong with them is raised."""
    certificates = make_certificates(tmp_path)

    async def app(bridge: FaultyBridge) -> None:
        token = tmp_path / "token"
        token.write_text("t0ken")
        async with AsyncBridgeClient(bridge.address, ca=certificates.authority, token=token, settings=QUICK) as client:
            infer(EventTracer(client))
            assert await client.flush(30)
        with pytest.raises(ConfigError):
            await AsyncBridgeClient(bridge.address, ca=token).__aenter__()

    with FaultyBridge(tls=certificates) as bridge:
        run(app(bridge))
    assert bridge.received[0].metadata["authorization"] == "Bearer t0ken"


def test_outside_of_its_block() -> None:
    """A client that is not open says so."""
    with pytest.raises(BridgeError, match="async with"):
        EventTracer(AsyncBridgeClient("localhost:1"))


def test_the_same_arguments() -> None:
    """What `BridgeClient` does not take, the asynchronous one does not take either."""
    with pytest.raises(TypeError):
        asyncio.run(AsyncBridgeClient("localhost:1", colour="red").__aenter__())
    BridgeClient("localhost:1").close(0)
