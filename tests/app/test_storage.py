"""What the settings make of the spool."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.spools import batch

from otel_bridge.app.crew import home_of, homes_in
from otel_bridge.app.storage import open_spool, take_over
from otel_bridge.app.watch import Recorder
from otel_bridge.config.load import load
from otel_bridge.export.dead_letters import directory_of
from otel_bridge.export.isolate import Refused
from otel_bridge.export.letter import letters_in, write_letter
from otel_bridge.spool.inspection import inspect
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


def test_what_workers_have_left_is_taken_over(run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Spools and dead letters of all destinations become the first worker's; what nobody here knows stays where it is."""
    caplog.set_level("INFO")
    config = load(None, {"server.data_dir": tmp_path, "destinations.archive.endpoint": "http://127.0.0.1:1"})
    homes = [home_of(tmp_path, number) for number in (1, 2)]
    for number, home in enumerate(homes):
        run(closed(opened(home, "normal"), events=5))
        for destination in config.exports:
            (directory := directory_of(home, destination)).mkdir(parents=True)
            write_letter(directory, Refused(b"x", number + 1, "export_invalid", "no"), number)
    (homes[1] / "spool.db.damaged").touch()
    (note := directory_of(homes[1], "archive") / "note.txt").touch()
    take_over(config, homes, Recorder(Telemetry()))
    assert homes_in(tmp_path) == [tmp_path, homes[1]]
    assert [path for path in homes[1].rglob("*") if path.is_file()] == [homes[1] / "spool.db.damaged", note]
    assert [[letter.spans for letter in letters_in(directory_of(tmp_path, name))] for name in config.exports] == [[1, 2]] * 2
    assert caplog.text.count("was taken over, with 5 events") == 2
    (ledger, _) = inspect(tmp_path).ledgers
    assert (ledger.destination, ledger.accepted, ledger.waiting) == ("default", 10, 10)


def test_spools_of_workers_stay_where_events_are_kept_in_memory(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They are told, as the bridge's own is."""
    run(closed(opened(home_of(tmp_path, 1), "normal"), events=5))
    config = load(None, {"server.data_dir": tmp_path, "spool.durability": "memory"})
    take_over(config, homes_in(tmp_path)[1:], Recorder(Telemetry()))
    assert caplog.messages[0].startswith("5 events for default stay in ")
    assert homes_in(tmp_path) == [tmp_path, home_of(tmp_path, 1)]
