"""`otel-bridge demo`: a first look without a device."""

import logging
import tempfile
from pathlib import Path

import click
import grpc

from otel_bridge.app.demo import DEVICES, play
from otel_bridge.cli.cells import console
from otel_bridge.report.tree import trees
from otel_bridge.telemetry.logs import configure


@click.command()
@click.option("--otlp-endpoint", metavar="URL", help="Send the spans to this OTLP/gRPC endpoint instead of printing them.")
def demo(otlp_endpoint: str | None) -> None:
    """
    Play real captures through a bridge and print its spans.

    A few devices play them, as they would in production. Each inference is a tree: the delegate's identifiers, how they
    resolved, where the time went, operators and metadata.
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
    screen = console()
    for tree in trees(payloads):
        screen.print(tree)
    screen.print(
        f"{events} events of {len(DEVICES)} devices, resolved. Next: `otel-bridge demo --otlp-endpoint http://localhost:4317`"
    )
