"""`otel-bridge demo`: a first look without a device."""

import logging
import tempfile
from pathlib import Path

import click
import grpc
from rich.console import Console

from otel_bridge.app.demo import DEVICES, play
from otel_bridge.report.tree import trees
from otel_bridge.telemetry.logs import configure

_WIDTH = 170


@click.command()
@click.option("--otlp-endpoint", metavar="URL", help="Send the spans to this OTLP/gRPC endpoint instead of printing them.")
def demo(otlp_endpoint: str | None) -> None:
    """
    Play real captures of a few devices through a bridge and print what comes out.

    Each inference is a tree: the delegate's identifiers, how they resolved, where the time went, operators and metadata.
    """
    configure(level="WARNING")
    logging.getLogger("otel_bridge").setLevel(logging.WARNING)
    with tempfile.TemporaryDirectory() as directory:
        try:
            events, payloads = play(Path(directory), otlp_endpoint)
        except grpc.RpcError as error:
            raise click.ClickException(f"the bridge answered {error.code().name}: {error.details()}") from error
    if otlp_endpoint:
        click.echo(f"{events} events of {len(DEVICES)} devices went to {otlp_endpoint}")
        return
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDTH)
    for tree in trees(payloads):
        console.print(tree)
    console.print(
        f"{events} events of {len(DEVICES)} devices, resolved. Next: `otel-bridge demo --otlp-endpoint http://localhost:4317`"
    )
