"""`otel-bridge inspect`: what is in an ETDump, as a table."""

import csv
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from otel_bridge.app.offline import Offline
from otel_bridge.cli.cells import cell, console
from otel_bridge.cli.inspect_totals import print_totals
from otel_bridge.cli.mapping import load_source
from otel_bridge.cli.options import clock_options, upload_of
from otel_bridge.report.keys import By
from otel_bridge.report.table import Row, tabulate
from otel_bridge.report.totals import add_up_by

_COLUMNS = (
    "subject", "instruction", "event", "count", "min_ns", "p50_ns", "p90_ns", "p99_ns", "max_ns", "mean_ns", "share",
    "status", "time_quality", "delegate", "handles", "operators", "module_path",
)  # fmt: skip


@click.command()
@click.argument("dump", metavar="RUN.etdp", type=click.Path(path_type=Path))
@click.option("--mapping", "source", type=click.Path(path_type=Path), help="An .etrecord, .pte, maps JSON or built mapping.")
@click.option("--method", metavar="M", help="Method that ran; without it, found from the events.")
@click.option(
    "--by", type=click.Choice([by.value for by in By]), help="Add up where the time went, by this; no time counts twice."
)
@click.option(
    "--format", "form", type=click.Choice(["table", "csv", "json"]), default="table", show_default=True, help="What to print."
)
@clock_options
def inspect(*, dump: Path, source: Path | None, method: str | None, by: str | None, form: str, **clock: Any) -> None:
    """
    Show what an ETDump holds, as a table.

    Per method, instruction and identifier: how often, how long, and which operators. Durations are in nanoseconds (csv, json)
    or microseconds (table). Percentiles are over all events of a row.

    With --by, the rows of a method add up to its inferences: an event that stands for several operators is split (equally, or
    by the mapping's weights), a delegate has what its events leave of its call, and (framework) is time in no instruction.
    Percentiles are then over inferences.
    """
    offline = Offline(load_source(source) if source else None)
    try:
        replayed = offline.replay(upload_of(dump, method=method, **clock))
    finally:
        offline.close()
    if by is not None:
        print_totals(add_up_by(replayed.scene, By(by)), By(by), form)
    else:
        _print_rows(tabulate(replayed.scene), form)
    for reason, events in replayed.admitted.rejected.items():
        click.echo(f"{events} events are not shown: {reason}", err=True)


def _print_rows(rows: list[Row], form: str) -> None:
    if form == "json":
        click.echo(json.dumps([_record(row) for row in rows], indent=2))
    elif form == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(_COLUMNS)
        writer.writerows([_cell(value) for value in _record(row).values()] for row in rows)
    else:
        _print_table(rows)


def _record(row: Row) -> dict[str, Any]:
    resolution = row.resolution
    operators = resolution.operators
    values = (
        row.subject, row.instruction, row.name, row.count,
        row.min_ns, row.p50_ns, row.p90_ns, row.p99_ns, row.max_ns, row.mean_ns, row.share,
        resolution.status, row.time_quality, resolution.delegate, list(resolution.handles),
        [operator.name for operator in operators], operators[0].module_path if operators else None,
    )  # fmt: skip
    return dict(zip(_COLUMNS, values, strict=True))


def _cell(value: Any) -> Any:
    return " ".join(map(str, value)) if isinstance(value, list) else value


def _print_table(rows: Iterable[Row]) -> None:
    table = Table(box=None, pad_edge=False)
    for name in ("method or block", "instr", "event"):
        table.add_column(name, no_wrap=True)
    for name in ("count", "min us", "p50", "p90", "p99", "max", "mean", "share"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("status", "time", "handles", "operators", "module"):
        table.add_column(name)
    for row in rows:
        resolution = row.resolution
        times = (row.min_ns, row.p50_ns, row.p90_ns, row.p99_ns, row.max_ns, row.mean_ns)
        table.add_row(
            cell(row.subject),
            "" if row.instruction is None else str(row.instruction),
            cell(("  " if row.is_delegated else "") + str(row.name)),
            str(row.count),
            *(f"{time / 1000:.1f}" for time in times),
            "" if row.share is None else f"{row.share:.1%}",
            resolution.status or "",
            row.time_quality or "",
            " ".join(map(str, resolution.handles)),
            cell(", ".join(operator.name for operator in resolution.operators)),
            cell(resolution.operators[0].module_path if resolution.operators else ""),
        )
    console().print(table)
