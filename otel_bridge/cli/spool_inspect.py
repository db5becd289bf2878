"""`otel-bridge spool inspect`: what a bridge keeps on disk, and whether its books balance."""

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from otel_bridge.cli.cells import cell, console
from otel_bridge.cli.data_dir import data_dir_options, directory_of
from otel_bridge.export.dead_letters import directory_of as letters_of
from otel_bridge.export.letter import letters_in
from otel_bridge.spool.inspection import Inspection
from otel_bridge.spool.inspection import inspect as read

_MIB = 1 << 20
_UNITS_S = (("d", 86_400), ("h", 3600), ("min", 60))


@click.command()
@data_dir_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def inspect(config_file: Path | None, data_dir: str | None, *, as_json: bool) -> None:
    """
    Show what waits, what is parked, what was damaged, and the books of each destination.

    Reads only, also while a bridge runs. Exit code 1 where events are unaccounted for.
    """
    directory = directory_of(config_file, data_dir)
    found = read(directory)
    letters = {ledger.destination: _letters(directory, ledger.destination) for ledger in found.ledgers}
    if as_json:
        click.echo(json.dumps(_as_json(found, letters), indent=2))
    else:
        _show(found, letters)
    if any(ledger.unaccounted for ledger in found.ledgers):
        raise click.ClickException("events are unaccounted for: see the ledger")


def _letters(directory: Path, destination: str) -> dict[str, int]:
    letters = list(letters_in(letters_of(directory, destination)))
    return {
        "letters": len(letters),
        "spans": sum(letter.spans for letter in letters),
        "size_bytes": sum(letter.size_bytes for letter in letters),
    }


def _as_json(found: Inspection, letters: dict[str, dict[str, int]]) -> dict[str, Any]:
    ledgers = [
        {**asdict(ledger), "unaccounted": ledger.unaccounted, "dead_letters": letters[ledger.destination]}
        for ledger in found.ledgers
    ]
    return {**asdict(found), "path": str(found.path), "ledgers": ledgers}


def _show(found: Inspection, letters: dict[str, dict[str, int]]) -> None:
    click.echo(
        f"{found.path}: format {found.format}, {found.file_bytes / _MIB:.1f} MiB with {found.log_bytes / _MIB:.1f} MiB of log, "
        f"last written {_time(found.noted_ns)}; {found.seen} requests are remembered"
    )
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
