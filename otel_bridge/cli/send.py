"""`otel-bridge send`: ETDumps to a running bridge."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import click

from otel_bridge.cli.options import PairType, add_resource, clock_options, name_model, upload_of
from otel_bridge.cli.remote import connection_to, explain, patiently, server_option
from otel_bridge.errors import BridgeRefused
from otel_bridge.v1 import profiling_pb2 as pb

_OF_THE_FILE = ("INVALID_ARGUMENT", "RESOURCE_EXHAUSTED")
"""Codes that say something of one request, not of the bridge."""


@click.command()
@click.argument("dumps", metavar="RUN.etdp...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--model", metavar="NAME@VERSION", help="Alias of the mapping.")
@click.option("--build-id", metavar="ID", help="Build of the model; wins over --model.")
@click.option("--method", metavar="M", help="Method that ran; without it, found from the events.")
@click.option(
    "--resource", "resources", multiple=True, type=PairType(), help="Resource attribute of app or device; repeatable."
)
@click.option("--runtime-version", metavar="V", help="Version of ExecuTorch on the device.")
@clock_options
@server_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a file.")
def send(
    *,
    dumps: tuple[Path, ...],
    model: str | None,
    build_id: str | None,
    method: str | None,
    resources: tuple[tuple[str, str], ...],
    runtime_version: str | None,
    server: str,
    as_json: bool,
    **clock: Any,
) -> None:
    """
    Send ETDumps to a running bridge.

    The same file sent again shows once: ids and times follow from its content and its modification time. A file that the bridge
    refuses costs itself: the others are sent, and the exit code is 1.
    """
    if not model and not build_id:
        raise click.UsageError("say which model ran: --model NAME@VERSION or --build-id ID")
    failed = False
    with connection_to(server) as connection:
        for path in dumps:
            try:
                request = upload_of(path, method=method, **clock)
                name_model(request, model, build_id)
                request.stream.runtime_version = (runtime_version or "").encode()
                add_resource(request, resources)
                answer = patiently(partial(connection.call, connection.profiling.UploadETDump, request))
            except BridgeRefused as error:
                if error.code not in _OF_THE_FILE:
                    raise
                failed = True
                _show_fault(path, f"{path}: {explain(server, error)}", as_json=as_json)
            except click.ClickException as error:  # the file cannot be read
                failed = True
                _show_fault(path, error.message, as_json=as_json)
            else:
                _show(path, answer, as_json=as_json)
    if failed:
        click.get_current_context().exit(1)


def _show(path: Path, answer: pb.UploadETDumpResponse, *, as_json: bool) -> None:
    rejected = {rejection.reason: rejection.events for rejection in answer.rejected}
    if as_json:
        counts = {"file": str(path), "accepted": answer.accepted, "rejected": rejected, "blocks": answer.blocks}
        click.echo(json.dumps({**counts, "first_rejection": answer.first_rejection}))
        return
    counted = "".join(f", {events} {reason}" for reason, events in rejected.items())
    click.echo(f"{path}: {answer.accepted} events accepted{counted}")
    if answer.first_rejection:
        click.echo(f"  first: {answer.first_rejection}", err=True)


def _show_fault(path: Path, fault: str, *, as_json: bool) -> None:
    click.echo(f"Error: {fault}", err=True)
    if as_json:
        click.echo(json.dumps({"file": str(path), "error": fault}))
