"""`otel-bridge registry`: copies of the mappings that a bridge has, and the way back."""

from pathlib import Path

import click

from otel_bridge.app.data_dir import Claim
from otel_bridge.cli.data_dir import data_dir_options, directory_of
from otel_bridge.mapping.backup import back_up
from otel_bridge.mapping.backup import restore as put_back


@click.group()
def registry() -> None:
    """Back up and restore the mappings of a bridge.

    Both work on the data directory.
    """


@registry.command()
@click.argument("file", type=click.Path(path_type=Path))
@data_dir_options
def backup(file: Path, config_file: Path | None, data_dir: str | None) -> None:
    """Copy the mappings to the new FILE.

    A bridge may run meanwhile. The copy is one moment of all tenants' mappings and aliases, and is checked.
    """
    click.echo(f"{file}: {back_up(directory_of(config_file, data_dir), file)}")


@registry.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--replace", is_flag=True, help="Even where there are mappings, which are lost.")
@data_dir_options
def restore(file: Path, config_file: Path | None, data_dir: str | None, *, replace: bool) -> None:
    """Make FILE the mappings of a bridge that does not run.

    Every mapping in it is checked first.
    """
    directory = directory_of(config_file, data_dir)
    claim = Claim(directory)
    try:
        click.echo(f"{directory}: {put_back(directory, file, replace=replace)}")
    finally:
        claim.release()
