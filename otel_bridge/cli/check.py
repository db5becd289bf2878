"""`otel-bridge mapping check`: whether a mapping covers what devices log, before a release."""

import json
import math
import re
from pathlib import Path
from typing import Any

import click

from otel_bridge.app.offline import Offline
from otel_bridge.cli.mapping import load_source
from otel_bridge.cli.options import clock_options, upload_of
from otel_bridge.errors import Rejected
from otel_bridge.mapping.faults import quoted
from otel_bridge.model.resolution import Status
from otel_bridge.report.coverage import COVERED, EXACT, Amount, Coverage, Place, measure, together

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}", re.ASCII)
_SHOWN_MISSING = 50
_DIGITS = 4
_ROUNDING = 1e-9
"""What binary fractions may lack: 0.29 times 100 is 28.999999999999996."""


def _bound(_context: click.Context, _parameter: click.Parameter, value: float) -> float:
    """The share asked for. `FloatRange` lets NaN through: it is neither below 0 nor above 1, and no share is below it."""
    if math.isnan(value):
        raise click.BadParameter("nan is no share: give a number from 0 to 1")
    return value


@click.command()
@click.argument("dumps", metavar="RUN.etdp...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--mapping",
    "source",
    required=True,
    type=click.Path(path_type=Path),
    help="An .etrecord, maps JSON, .pte or built mapping.",
)
@click.option("--method", metavar="M", help="Method that ran; without it, found from the events.")
@click.option(
    "--min-coverage",
    "bound",
    type=click.FloatRange(0, 1),
    callback=_bound,
    default=0.95,
    show_default=True,
    help="Least share that is covered, of events and of their time.",
)
@click.option("--require-exact", is_flag=True, help="Do not count events that only their delegate call stands for.")
@clock_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check(
    *,
    dumps: tuple[Path, ...],
    source: Path,
    method: str | None,
    bound: float,
    require_exact: bool,
    as_json: bool,
    **clock: Any,
) -> None:
    """
    Tell how much of what delegates logged a mapping covers; the exit code is 1 below the bound.

    Covered are the statuses exact, derived and delegate. Phases of a delegate (copies, initialisation) are not counted. Both
    the share of events and the share of their time must reach the bound, over all files together; a file without delegate
    events is a failure.
    """
    offline = Offline(load_source(source))
    parts: list[Coverage] = []
    failed = False
    try:
        for path in dumps:
            try:
                part = measure(offline.replay(upload_of(path, method=method, **clock)).scene)
            except Rejected as error:
                failed = True
                click.echo(f"Error: {path}: {error}", err=True)
                continue
            if not part.counted.events:
                failed = True
                click.echo(f"Error: {path}: {_nothing_in(part)}", err=True)
            parts.append(part)
    finally:
        offline.close()
    covered = EXACT if require_exact else COVERED
    coverage = together(parts)
    shares = coverage.shares(covered) if coverage.counted.events else None
    failed |= shares is None or not all(share is None or share >= bound for share in shares)
    report = _report(coverage, covered, shares, offline.build or "") | {"min_coverage": bound, "passed": not failed}
    if as_json:
        click.echo(json.dumps(report, indent=2))
    else:
        _print(report)
    if failed:
        click.get_current_context().exit(1)


def _nothing_in(part: Coverage) -> str:
    way_out = "run the model with a delegate and profiling built in (EXECUTORCH_ENABLE_EVENT_TRACER)"
    phases = part.of({Status.PHASE}).events
    return f"no delegate events{f' but {phases} of phases' if phases else ''}, so there is nothing to cover: {way_out}"


def _report(
    coverage: Coverage, covered: frozenset[Status], shares: tuple[float, float | None] | None, build: str
) -> dict[str, Any]:
    amounts = {status: coverage.of({status}) for status in Status}
    events, time = shares or (None, None)
    return {
        "build": build,
        "statuses": [_status(status, amount, coverage.counted) for status, amount in amounts.items() if amount.events],
        "missing": [_missing(place, amount) for place, amount in coverage.missing(covered)],
        "coverage_events": events,
        "coverage_time": time,
    }


def _status(status: Status, amount: Amount, whole: Amount) -> dict[str, Any]:
    counts = status is not Status.PHASE
    return {
        "status": status.value,
        "events": amount.events,
        "share": amount.events / whole.events if counts else None,
        "time_ns": amount.time_ns,
        "time_share": amount.time_ns / whole.time_ns if counts and whole.time_ns else None,
    }


def _missing(place: Place, amount: Amount) -> dict[str, Any]:
    return {
        "method": place.method,
        "instruction": place.instruction,
        "backend": place.delegate,
        "identifier": place.identifier,
        "status": place.status.value,
        "events": amount.events,
        "time_ns": amount.time_ns,
    }


def _print(report: dict[str, Any]) -> None:
    """A line a status, a line a missing identifier, a line with the verdict, all of key=value."""
    for status in report["statuses"]:
        click.echo(_line(status))
    for missing in report["missing"][:_SHOWN_MISSING]:
        click.echo(f"missing {_line({'build': report['build']} | missing)}")
    if len(report["missing"]) > _SHOWN_MISSING:
        click.echo(f"missing {len(report['missing']) - _SHOWN_MISSING} more identifiers: --json lists them all")
    verdict = {key: report[key] for key in ("coverage_events", "coverage_time", "min_coverage")}
    click.echo(f"{'passed' if report['passed'] else 'failed'} {_line(verdict)}")


def _line(values: dict[str, Any]) -> str:
    return " ".join(f"{key}={_text(value)}" for key, value in values.items())


def _text(value: Any) -> str:
    """Plain words and numbers as they are, other text quoted on one line; a share never looks larger than it is."""
    if isinstance(value, float):
        return f"{math.floor(value * 10**_DIGITS + _ROUNDING) / 10**_DIGITS:.{_DIGITS}f}"
    if isinstance(value, str):
        return value if _PLAIN.fullmatch(value) else quoted(value, limit=240)
    return "-" if value is None else str(value)
