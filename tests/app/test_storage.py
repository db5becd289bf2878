"""What the settings make of the spool."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.spools import batch

from otel_bridge.app.storage import open_spool
from otel_bridge.app.watch import Recorder
from otel_bridge.config.load import load
from otel_bridge.spool.protocol import Spool
from otel_bridge.telemetry.recorder import Telemetry

Run = Callable[[Any], Any]


def opened(folder: Path, durability: str) -> Spool:
    """The spool of a bridge on this data directory."""
    return open_spool(load(None, {"server.data_dir": folder, "spool.durability": durability}), Recorder(Telemetry()), folder)


async def closed(spool: Spool, *, events: int = 0) -> None:
    """The end of a bridge, which may have taken some events."""
    if events:
        await spool.append(batch(events))
    spool.close()
    await spool.finish()


def test_events_that_a_spool_in_memory_leaves_on_disk_are_told(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They were acknowledged, and nobody sends them: the log says how many, and the way out, which works."""
    run(closed(opened(tmp_path, "normal")))
    run(closed(opened(tmp_path, "memory")))
    assert caplog.messages == []
    run(closed(opened(tmp_path, "normal"), events=7))
    run(closed(opened(tmp_path, "memory"), events=3))
    (told,) = caplog.messages
    assert told.startswith("7 events for default stay in ")
    assert told.endswith("spool.durability is memory; a start with full or normal sends them")
    again = opened(tmp_path, "full")
    assert again.outlets["default"].events == 7
    run(closed(again))


def test_a_file_that_cannot_be_read_is_told_too(run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It keeps nobody from starting who does not use it."""
    (tmp_path / "spool.db").write_bytes(b"something else")
    run(closed(opened(tmp_path, "memory")))
    assert "what an earlier bridge has left is not sent: the spool" in caplog.text
