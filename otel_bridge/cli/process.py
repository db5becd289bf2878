"""What a process needs in which a bridge lives, whether it is alone or one of several workers."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

import click

from otel_bridge.cli.open_files import OTHER_FILES, raise_open_files
from otel_bridge.cli.scheduling import let_the_loop_run_on
from otel_bridge.config.bridge import BridgeConfig
from otel_bridge.pipeline.memory import keep_freed_memory, look_for_cycles_less
from otel_bridge.telemetry.logs import configure

if TYPE_CHECKING:
    from otel_bridge.app.bridge import Bridge

_log = logging.getLogger(__name__)


def log_as(settings: BridgeConfig) -> None:
    """Log in the way that the settings say."""
    own = settings.telemetry
    configure(level=own.log_level.upper(), form=own.log_format, burst=own.log_burst, period_s=own.log_period_s)


def prepare(settings: BridgeConfig) -> None:
    """Make the process fit for a bridge, before there is one."""
    keep_freed_memory()
    log_as(settings)
    raise_open_files(2 * settings.ingress.max_connections + OTHER_FILES)


async def live(bridge: "Bridge", stopping: asyncio.Event) -> None:
    """Let a bridge work that has started, until it is to stop, and stop it. Raises `ClickException` where it broke."""
    look_for_cycles_less()
    let_the_loop_run_on()
    ends = [asyncio.create_task(stopping.wait()), asyncio.create_task(bridge.wait_broken())]
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    finally:
        _log.info("stopping")
        await bridge.stop()
    broken = ends[1].done()
    for task in ends:
        task.cancel()
    if broken:
        raise click.ClickException(
            "the pipeline has ended, see the log; what was not sent is in the spool, or counted as dropped"
        )


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run on uvloop where it exists: it spends less of each request on the loop itself."""
    try:
        import uvloop  # noqa: PLC0415 - not on every platform
    except ImportError:
        asyncio.run(main)
    else:
        uvloop.run(main)
