"""
`otel-bridge spool dead-letters` and `otel-bridge spool replay`: what the back end refused for good.

Both work on the data directory, beside a bridge that runs or without one. A letter is taken out only when the back end has
taken its spans, so a replay that is interrupted may be run again.
"""

import asyncio
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.table import Table

from otel_bridge.app.crew import homes_in
from otel_bridge.cli.cells import cell, console
from otel_bridge.cli.data_dir import data_dir_options
from otel_bridge.config.bridge import BridgeConfig, section_of
from otel_bridge.config.load import load
from otel_bridge.errors import BackEndUnavailable, ExportRejected
from otel_bridge.export.build import build_exporter
from otel_bridge.export.dead_letters import directory_of
from otel_bridge.export.isolate import Refused
from otel_bridge.export.letter import Letter, letters_in
from otel_bridge.export.protocol import Exporter
from otel_bridge.model.destination import DEFAULT

_PATIENCE_S = 60.0

Command = TypeVar("Command", bound=Callable[..., Any])


def _options(command: Command) -> Command:
    destination = click.option("--destination", default=DEFAULT, help="Destination that refused them.", show_default=True)
    return data_dir_options(destination(command))


@click.command("dead-letters")
@_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def dead_letters(config_file: Path | None, data_dir: str | None, destination: str, *, as_json: bool) -> None:
    """List the requests that the back end refused for good, the oldest first."""
    letters = _letters(load(config_file, {"server.data_dir": data_dir}), destination)
    if as_json:
        click.echo(json.dumps([{**asdict(letter), "path": str(letter.path)} for letter in letters], indent=2))
        return
    table = Table("letter", "time", "tenant", "reason", "spans", "bytes", "message", box=None)
    for letter in letters:
        shown = (letter.path.stem, letter.time, letter.tenant, letter.reason, letter.spans, letter.size_bytes, letter.message)
        table.add_row(*map(cell, map(str, shown)))
    console().print(table)


@click.command()
@_options
@click.option("--otlp-endpoint", metavar="URL", help="Send to this endpoint.  [default: that of the destination]")
def replay(config_file: Path | None, data_dir: str | None, destination: str, otlp_endpoint: str | None) -> None:
    """
    Send the dead letters again, and take out those that the back end takes.

    What it refuses again stays, and the exit code is 1.
    """
    section = section_of(destination)
    settings = load(config_file, {"server.data_dir": data_dir, f"{section}.endpoint": otlp_endpoint})
    letters = _letters(settings, destination)
    refused: list[Refused] = []

    async def keep(part: Refused) -> None:
        refused.append(part)

    exporter = build_exporter(settings.exports[destination], section=section, keep=keep, patience_s=_PATIENCE_S)
    sent, left = asyncio.run(_replay(letters, exporter, refused))
    click.echo(f"{sent} spans of {len(letters)} dead letters sent", err=True)
    if left:
        raise click.ClickException(f"the back end refused {left} spans again")


def _letters(settings: BridgeConfig, destination: str) -> list[Letter]:
    """Those of all workers, the oldest first."""
    if destination not in settings.exports:
        raise click.UsageError(f"there is no such destination; there are {', '.join(settings.exports)}")
    if settings.server.data_dir is None:
        raise click.ClickException('there are no dead letters with server.data_dir ":memory:"')
    homes = homes_in(settings.server.data_dir)
    letters = [letter for home in homes for letter in letters_in(directory_of(home, destination))]
    return sorted(letters, key=lambda letter: letter.path.name)


async def _replay(letters: Iterable[Letter], exporter: Exporter, refused: list[Refused]) -> tuple[int, int]:
    """Send letter by letter; the spans that were taken, and those that were not. `refused` is filled by `exporter`."""
    taken = left = 0
    try:
        for letter in letters:
            refused.clear()
            try:
                payload = letter.read()
                rejected = (await exporter.send(payload, letter.tenant)).rejected_spans
                if refused:
                    letter.keep_only(refused, time.time_ns())
                else:
                    letter.remove()
            except FileNotFoundError:
                continue  # it made room for another
            except OSError as error:
                raise click.ClickException(f"{letter.path}: {error.strerror}") from error
            except BackEndUnavailable as error:
                raise click.ClickException(f"{error}; {letter.path.name} and later letters were not sent") from error
            except ExportRejected as error:
                click.echo(f"{letter.path.name}: {error}", err=True)
                left += letter.spans
                continue
            taken += letter.spans - rejected
            left += rejected
    finally:
        await exporter.close()
    return taken, left
