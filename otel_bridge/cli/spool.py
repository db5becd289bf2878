"""`otel-bridge spool`: what a bridge keeps on disk."""

import click

from otel_bridge.cli.dead_letters import dead_letters, replay


@click.group()
def spool() -> None:
    """Look at what a bridge keeps on disk, and send dead letters again."""


for command in (dead_letters, replay):
    spool.add_command(command)
