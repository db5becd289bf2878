"""
What the bridge keeps, as the settings describe it: the spool, and the dead letters.

Invariants
* Without a data directory nothing is kept but in memory.
* Each worker of a bridge has a home of its own (crew.py). What workers have left that are not any more, the first takes over.
* Whoever turns to a spool in memory is told what is left in the file.
"""

import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from otel_bridge.app.watch import Recorder
from otel_bridge.config.bridge import BridgeConfig
from otel_bridge.errors import ConfigError
from otel_bridge.export.dead_letters import DeadLetters, Watch, directory_of, move_letters
from otel_bridge.spool.adoption import adopt
from otel_bridge.spool.inspection import inspect
from otel_bridge.spool.lot import LotLimits
from otel_bridge.spool.memory import MemorySpool
from otel_bridge.spool.opening import FILE_NAME
from otel_bridge.spool.protocol import Spool
from otel_bridge.spool.room import Bounds
from otel_bridge.spool.sqlite import SqliteSpool
from otel_bridge.spool.writer import RESERVE_BYTES

_log = logging.getLogger(__name__)


def open_spool(config: BridgeConfig, recorder: Recorder, directory: Path | None) -> Spool:
    """The spool in a worker's home. Raises `ConfigError` where its file cannot be used."""
    given = config.spool
    lot, destinations = _lot_limits(config), list(config.exports)
    if directory is None or given.durability == "memory":
        if directory is not None and (directory / FILE_NAME).exists():
            _tell_left(directory)
        return MemorySpool(given.max_bytes, lot, destinations=destinations)
    bounds = Bounds(given.max_bytes, given.memory_bytes, given.max_age_s)
    return SqliteSpool(
        directory,
        bounds,
        lot,
        recorder,
        destinations=destinations,
        synchronous="FULL" if given.durability == "full" else "NORMAL",
    )


def open_dead_letters(config: BridgeConfig, home: Path | None, destination: str, watch: Watch) -> DeadLetters | None:
    """Where spans are kept that this destination refused; None where they are not."""
    max_bytes = config.exports[destination].dead_letter_bytes
    if home is None or not max_bytes:
        return None
    return DeadLetters(directory_of(home, destination), max_bytes, watch, reserve_bytes=RESERVE_BYTES)


def take_over(config: BridgeConfig, homes: Sequence[Path], recorder: Recorder) -> None:
    """
    Move what workers have left that are not any more, spools and dead letters, to the first one's.

    With a spool in memory their spools stay, and are told. Raises `ConfigError` where a file cannot be used.
    """
    data_dir = config.server.data_dir
    if data_dir is None:
        return
    for home in homes:
        move_letters(home, data_dir)
        if config.spool.durability != "memory":
            adopt(data_dir, home, list(config.exports), recorder)
        elif (home / FILE_NAME).exists():
            _tell_left(home)
        with suppress(OSError):  # what nobody here knows, such as a damaged spool that was set aside, is for people
            home.rmdir()


def _tell_left(directory: Path) -> None:
    try:
        left = {each.destination: each.waiting + each.parked for each in inspect(directory).ledgers}
    except ConfigError as error:
        _log.warning("spool.durability is memory, and what an earlier bridge has left is not sent: %s", error)
        return
    for destination, events in left.items():
        if events:
            _log.warning(
                "%d events for %s stay in %s: spool.durability is memory; a start with full or normal sends them",
                events,
                destination,
                directory / FILE_NAME,
            )


def _lot_limits(config: BridgeConfig) -> LotLimits:
    parking = config.parking
    return LotLimits(
        max_age_s=parking.max_age_s,
        max_bytes=parking.max_bytes,
        max_events=parking.max_events,
        max_bytes_per_build=parking.max_bytes_per_build,
        max_events_per_build=parking.max_events_per_build,
        bytes_per_tenant=lambda tenant: config.tenants.of(tenant).parked_bytes,
    )
