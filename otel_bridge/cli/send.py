"""`otel-bridge send`: ETDumps to a running bridge."""

import json
from pathlib import Path
from typing import Any

import click
import grpc

from otel_bridge.cli.options import PairType, clock_options, split_model, upload_of
from otel_bridge.cli.remote import CALL_TIMEOUT_S, channel_to, explain, profiling, sent_now, server_option

_OF_THE_FILE = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED)
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
    with channel_to(server) as channel:
        for path in dumps:
            request = upload_of(path, method=method, **clock)
            stream = request.stream
            stream.model.build_id = (build_id or "").encode()
            if model:
                name, version = split_model(model)
                stream.model.name, stream.model.version = name.encode(), version.encode()
            stream.runtime_version = (runtime_version or "").encode()
            for key, value in resources:
                stream.resource.add(key=key.encode()).value.text = value.encode()
            try:
                answer = profiling(channel).UploadETDump(request, timeout=CALL_TIMEOUT_S, metadata=sent_now())
            except grpc.RpcError as error:
                if error.code() not in _OF_THE_FILE:
                    raise
                failed = True
                fault = f"{path}: {explain(server, error)}"
                click.echo(f"Error: {fault}", err=True)
                if as_json:
                    click.echo(json.dumps({"file": str(path), "error": fault}))
                continue
            rejected = {rejection.reason: rejection.events for rejection in answer.rejected}
            if as_json:
                counts = {"file": str(path), "accepted": answer.accepted, "rejected": rejected, "blocks": answer.blocks}
                click.echo(json.dumps({**counts, "first_rejection": answer.first_rejection}))
            else:
                counted = "".join(f", {events} {reason}" for reason, events in rejected.items())
                click.echo(f"{path}: {answer.accepted} events accepted{counted}")
                if answer.first_rejection:
                    click.echo(f"  first: {answer.first_rejection}", err=True)
    if failed:
        click.get_current_context().exit(1)
