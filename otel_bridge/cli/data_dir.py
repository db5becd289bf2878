"""Options of commands that work on a bridge's data directory."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from otel_bridge.config.load import load

Command = TypeVar("Command", bound=Callable[..., Any])


def data_dir_options(command: Command) -> Command:
    """Add `--data-dir` and `--config`, as `data_dir` and `config_file`."""
    for option in (
        click.option("--data-dir", metavar="DIR", help="Data directory of the bridge.  [default: server.data_dir]"),
        click.option("--config", "config_file", type=click.Path(path_type=Path), help="Settings (TOML) of the bridge."),
    ):
        command = option(command)
    return command


def directory_of(config_file: Path | None, data_dir: str | None) -> Path:
    """The data directory that is meant. Raises `ClickException` where the bridge keeps nothing."""
    directory = load(config_file, {"server.data_dir": data_dir}).server.data_dir
    if directory is None:
        raise click.ClickException('nothing is kept with server.data_dir ":memory:"')
    return directory
