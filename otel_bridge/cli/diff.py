"""`otel-bridge mapping diff`: what changed between two builds of a model, operator by operator."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from otel_bridge.cli.cells import cell
from otel_bridge.cli.mapping import load_source
from otel_bridge.errors import MalformedMapping
from otel_bridge.mapping.diff import Diff, Group, MethodDiff, compare
from otel_bridge.mapping.document import canonical
from otel_bridge.v1 import mapping_pb2 as pb

_Row = tuple[str, str, str, str, str]
_SHOWN_OPERATORS = 6


@click.command()
@click.argument("before", metavar="A", type=click.Path(path_type=Path))
@click.argument("after", metavar="B", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def diff(before: Path, after: Path, *, as_json: bool) -> None:
    """
    List what changed from mapping A to B: operators added, removed, moved between delegates, fused differently.

    A and B are .etrecords, maps JSON, .pte files or built mappings. Operators are told by `executorch.operator.id`, which stays
    the same from build to build; handles, instructions and identifiers do not, and are not compared. The exit code is 0 where
    nothing changed, 1 where something did, 2 where a source cannot be read.
    """
    found = compare(_load(before), _load(after))
    if as_json:
        click.echo(json.dumps({"equal": found.is_equal} | asdict(found), indent=2))
    else:
        _print(found)
    if not found.is_equal:
        click.get_current_context().exit(1)


def _load(source: Path) -> pb.Mapping:
    """The mapping of a source; exit code 1 would say that two mappings differ."""
    try:
        return canonical(load_source(source).mapping)
    except MalformedMapping as error:
        raise click.UsageError(f"{source}: {error}") from error
    except click.ClickException as error:
        raise click.UsageError(error.message) from error


def _print(found: Diff) -> None:
    table = Table("change", "method", "operator", "before", "after", box=None, pad_edge=False)
    for row in _rows(found):
        table.add_row(*map(cell, row))
    for method in found.methods:
        if method.by_handle:
            note = "no operators are known on one side, so handles are compared; they shift with every layer: give ETRecords"
            click.echo(f"{method.name}: {note}", err=True)
    if found.is_equal:
        click.echo("equal: the same operators run at the same places, fused alike")
        return
    console = Console()
    console.print(table) if console.is_terminal else Console(width=200).print(table)
    click.echo(_summary(found))


def _rows(found: Diff) -> Iterator[_Row]:
    yield from (("added", name, "(the method)", "-", "-") for name in found.added)
    yield from (("removed", name, "(the method)", "-", "-") for name in found.removed)
    for method in found.methods:
        yield from (("added", method.name, method.labels[each], "-", _places(method, each)) for each in method.added)
        yield from (("removed", method.name, method.labels[each], _places(method, each), "-") for each in method.removed)
        yield from (
            ("moved", method.name, method.labels[each.id], " ".join(each.before), " ".join(each.after)) for each in method.moved
        )
        for each in method.fused:
            operators = dict.fromkeys(operator for group in (*each.before, *each.after) for operator in group.operators)
            shown = _labels(method, list(operators))
            yield "fused", method.name, shown, _groups(method, each.before), _groups(method, each.after)


def _places(method: MethodDiff, operator: str) -> str:
    return " ".join(method.places[operator])


def _groups(method: MethodDiff, groups: Sequence[Group]) -> str:
    return "; ".join(f"{group.instruction}: {group.identifier} = {_labels(method, group.operators)}" for group in groups) or "-"


def _labels(method: MethodDiff, operators: Sequence[str]) -> str:
    rest = len(operators) - _SHOWN_OPERATORS
    return ", ".join(method.labels[each] for each in operators[:_SHOWN_OPERATORS]) + (f" +{rest}" if rest > 0 else "")


def _summary(found: Diff) -> str:
    """The counts on one line: words for people, and for grep."""
    counts: dict[str, Any] = {
        "methods_added": len(found.added),
        "methods_removed": len(found.removed),
        **{
            what: sum(len(getattr(method, what)) for method in found.methods) for what in ("added", "removed", "moved", "fused")
        },
    }
    return " ".join(["different", *(f"{key}={count}" for key, count in counts.items())])
