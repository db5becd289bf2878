"""`otel-bridge serve`: run the bridge until it is told to stop."""

import asyncio
import logging
import signal
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import click

from otel_bridge.app.bridge import Bridge
from otel_bridge.cli.open_files import OTHER_FILES, raise_open_files
from otel_bridge.config.load import load
from otel_bridge.pipeline.memory import keep_freed_memory
from otel_bridge.telemetry.logs import configure

_log = logging.getLogger(__name__)


@click.command()
@click.option(
    "--config", "config_file", type=click.Path(path_type=Path), help="Settings (TOML); see `otel-bridge config show`."
)
@click.option("--grpc", "grpc_address", metavar="ADDR", help="Listen for gRPC here.  [default: 127.0.0.1:4417]")
@click.option("--http", "http_address", metavar="ADDR", help="Listen for HTTP here.  [default: 127.0.0.1:4418]")
@click.option(
    "--otlp-endpoint",
    metavar="URL",
    help="Send spans here, over export.protocol.  [default: http://localhost:4317]",
)
@click.option(
    "--data-dir",
    metavar="DIR",
    help='Keep mappings and accepted events here; ":memory:" keeps nothing.  [default: otel-bridge-data]',
)
def serve(
    config_file: Path | None,
    grpc_address: str | None,
    http_address: str | None,
    otlp_endpoint: str | None,
    data_dir: str | None,
) -> None:
    """
    Take events and mappings, send spans.

    Stops on SIGTERM or SIGINT: no new requests, then what was accepted leaves, for at most server.drain_s. What does not stays
    for the next start, unless spool.durability is memory.
    """
    settings = load(
        config_file,
        {
            "server.grpc_address": grpc_address,
            "server.http_address": http_address,
            "server.data_dir": data_dir,
            "export.endpoint": otlp_endpoint,
        },
    )
    keep_freed_memory()
    own = settings.telemetry
    configure(level=own.log_level.upper(), form=own.log_format, burst=own.log_burst, period_s=own.log_period_s)
    raise_open_files(2 * settings.ingress.max_connections + OTHER_FILES)
    run(_serve(Bridge(settings)))


async def _serve(bridge: Bridge) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    await bridge.start()
    _log.info("otel-bridge listens for gRPC on %s and for HTTP on %s", bridge.grpc_address, bridge.http_address)
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
