"""`otel-bridge spool inspect`: what a bridge keeps on disk, and whether its books balance."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from otel_bridge.app.crew import homes_in
from otel_bridge.cli.cells import cell, console
from otel_bridge.cli.data_dir import data_dir_options, directory_of
from otel_bridge.export.dead_letters import directory_of as letters_of
from otel_bridge.export.letter import letters_in
from otel_bridge.spool.inspection import Inspection, summed
from otel_bridge.spool.inspection import inspect as read
from otel_bridge.spool.opening import FILE_NAME

_MIB = 1 << 20
_UNITS_S = (("d", 86_400), ("h", 3600), ("min", 60))


@click.command()
@data_dir_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def inspect(config_file: Path | None, data_dir: str | None, *, as_json: bool) -> None:
    """
    Show what waits, what is parked, what was damaged, and the books of each destination; of several workers, added up.

    Reads only, also while a bridge runs. Exit code 1 where events are unaccounted for.
    """
    directory = directory_of(config_file, data_dir)
    homes = homes_in(directory)
    spools = [read(home) for home in homes if home == directory or (home / FILE_NAME).exists()]
    found = summed(spools)
    letters = {ledger.destination: _letters(homes, ledger.destination) for ledger in found.ledgers}
    if as_json:
        click.echo(json.dumps(_as_json(found, spools, letters), indent=2))
    else:
        for each in spools:
            _show_file(each)
        _show(found, letters)
    if any(ledger.unaccounted for each in spools for ledger in each.ledgers):
        raise click.ClickException("events are unaccounted for: see the ledger")


def _letters(homes: Sequence[Path], destination: str) -> dict[str, int]:
    letters = [letter for home in homes for letter in letters_in(letters_of(home, destination))]
    return {
        "letters": len(letters),
        "spans": sum(letter.spans for letter in letters),
        "size_bytes": sum(letter.size_bytes for letter in letters),
    }


def _as_json(found: Inspection, spools: Sequence[Inspection], letters: dict[str, dict[str, int]]) -> dict[str, Any]:
    ledgers = [
        {**asdict(ledger), "unaccounted": ledger.unaccounted, "dead_letters": letters[ledger.destination]}
        for ledger in found.ledgers
    ]
    paths = [str(each.path) for each in spools]
    return {**asdict(found), "path": paths[0], "paths": paths, "ledgers": ledgers}


def _show_file(found: Inspection) -> None:
    click.echo(
        f"{found.path}: format {found.format}, {found.file_bytes / _MIB:.1f} MiB with {found.log_bytes / _MIB:.1f} MiB of log, "
        f"last written {_time(found.noted_ns)}; {found.seen} requests are remembered"
    )


def _show(found: Inspection, letters: dict[str, dict[str, int]]) -> None:
    click.echo(f"{found.waiting.events} events in {found.waiting.records} records wait for their turn{_since(found)}")
    out = console()
    ledger = Table(
        "destination", "accepted", "emitted", "dropped", "waiting", "parked", "unaccounted", "dead letters", box=None
    )
    for each in found.ledgers:
        dropped = ", ".join(f"{count} {reason}" for reason, count in sorted(each.dropped.items())) or "0"
        numbers = (each.accepted, each.emitted, dropped, each.waiting, each.parked, each.unaccounted)
        kept = letters[each.destination]
        ledger.add_row(*map(cell, (each.destination, *map(str, numbers), f"{kept['letters']} ({kept['spans']} spans)")))
    out.print(ledger)
    if found.parked:
        lot = Table("parked for", "tenant", "events", "records", "bytes", "waits for", "goes on in", box=None)
        for one in found.parked:
            amount = one.amount
            counts = map(str, (amount.events, amount.records, amount.size_bytes))
            lot.add_row(*map(cell, (one.awaited, one.tenant, *counts, _span(amount.oldest_s), _span(max(0.0, one.goes_s)))))
        out.print(lot)
    for reason, amount in found.quarantine.items():
        click.echo(f"quarantine: {amount.events} events in {amount.records} records, by {reason}")


def _since(found: Inspection) -> str:
    return f", the oldest for {_span(found.waiting.oldest_s)}" if found.waiting.records else ""


def _time(noted_ns: int) -> str:
    return f"{datetime.fromtimestamp(noted_ns / 1e9, UTC):%Y-%m-%dT%H:%M:%SZ}" if noted_ns else "never"


def _span(seconds: float) -> str:
    """A time for people: its two largest units."""
    left, words = int(seconds), []
    for unit, size in _UNITS_S:
        count, left = divmod(left, size)
        if count:
            words.append(f"{count} {unit}")
    return " ".join([*words, f"{left} s"][:2])
