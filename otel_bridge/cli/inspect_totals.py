"""How `otel-bridge inspect --by` prints totals."""

import csv
import json
import sys
from dataclasses import asdict
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from otel_bridge.cli.cells import cell
from otel_bridge.report.keys import By
from otel_bridge.report.totals import Totals

COLUMNS = ("method", "key", "count", "total_ns", "share", "mean_ns", "p50_ns", "p90_ns", "p99_ns", "is_scaled")


def print_totals(totals: Totals, by: By, form: str) -> None:
    """Totals on stdout as "json", "csv" or "table"; what is in no row, on stderr."""
    records = [asdict(row) for row in totals.rows]
    if form == "json":
        click.echo(json.dumps(records, indent=2))
    elif form == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows([[record[column] for column in COLUMNS] for record in records])
    else:
        _print_table(records, by)
    if totals.left_out:
        click.echo(f"{totals.left_out} inferences are in no row: no event encloses them, so they did not end", err=True)


def _print_table(records: list[dict[str, Any]], by: By) -> None:
    table = Table(box=None, pad_edge=False)
    for name in ("method", by.value):
        table.add_column(name, no_wrap=True)
    for name in ("count", "total us", "share", "mean us", "p50", "p90", "p99"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column()
    for record in records:
        times = (f"{record[name] / 1000:.1f}" for name in ("mean_ns", "p50_ns", "p90_ns", "p99_ns"))
        table.add_row(
            cell(record["method"]),
            cell(record["key"]),
            str(record["count"]),
            f"{record['total_ns'] / 1000:.1f}",
            "" if record["share"] is None else f"{record['share']:.1%}",
            *times,
            "scaled" if record["is_scaled"] else "",
        )
    console = Console()
    console.print(table) if console.is_terminal else Console(width=200).print(table)
