"""`otel-bridge config`: look at the settings."""

from pathlib import Path

import click

from otel_bridge.config.load import load
from otel_bridge.config.render import render

_file_option = click.option("--config", "config_file", type=click.Path(path_type=Path), help="Settings (TOML).")


@click.group()
def config() -> None:
    """Look at the settings.

    They come from the file, the environment and the defaults.
    """


@config.command()
@_file_option
def show(config_file: Path | None) -> None:
    """Print the effective settings as a file.

    Each stands with its meaning; secrets are masked.
    """
    click.echo(render(load(config_file)), nl=False)


@config.command()
@_file_option
def check(config_file: Path | None) -> None:
    """Check the settings.

    Exit code 1 and one line a fault where they cannot be obeyed.
    """
    load(config_file)
    click.echo("the settings are in order")
