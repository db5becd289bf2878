"""`otel-bridge spool`: what a bridge keeps on disk."""

import click

from otel_bridge.cli.dead_letters import dead_letters, replay
from otel_bridge.cli.spool_inspect import inspect


@click.group()
def spool() -> None:
    """Look at what a bridge keeps on disk, and send dead letters again."""


for command in (inspect, dead_letters, replay):
    spool.add_command(command)
