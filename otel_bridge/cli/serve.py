"""`otel-bridge serve`: run the bridge until it is told to stop."""

import asyncio
import logging
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from otel_bridge.cli.process import live, log_as, prepare, run
from otel_bridge.config.bridge import BridgeConfig
from otel_bridge.config.load import load

if TYPE_CHECKING:
    from otel_bridge.app.bridge import Bridge

_log = logging.getLogger(__name__)

_WORKER = (sys.executable, "-P", "-m", "otel_bridge.cli.main", "worker")
"""Starts a worker. Without -P the directory where the bridge was started would be searched for modules first."""


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
@click.option("--workers", type=int, metavar="N", help="So many processes share the doors: one a core.  [default: 1]")
def serve(
    *,
    config_file: Path | None,
    grpc_address: str | None,
    http_address: str | None,
    otlp_endpoint: str | None,
    data_dir: str | None,
    workers: int | None,
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
            "server.workers": workers,
            "export.endpoint": otlp_endpoint,
        },
    )
    if settings.server.workers == 1:
        prepare(settings)
        _serve(settings)
    else:
        log_as(settings)
        run(_supervise(settings))


def _serve(settings: BridgeConfig) -> None:
    from otel_bridge.app.bridge import Bridge  # noqa: PLC0415 - nor does a supervisor need a whole bridge

    run(_live(Bridge(settings)))


async def _live(bridge: "Bridge") -> None:
    stopping = _stopping()
    await bridge.start()
    _log.info("otel-bridge listens for gRPC on %s and for HTTP on %s", bridge.grpc_address, bridge.http_address)
    await live(bridge, stopping)


async def _supervise(settings: BridgeConfig) -> None:
    from otel_bridge.app.supervise import Supervisor  # noqa: PLC0415 - a bridge that is alone needs none

    await Supervisor(settings, _WORKER).run(_stopping())


def _stopping() -> asyncio.Event:
    """Set when the process is asked to end."""
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    return stopping
