"""`otel-bridge replay`: ETDumps to spans without a server."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import click

from otel_bridge.app.offline import Offline
from otel_bridge.cli.mapping import load_source
from otel_bridge.cli.options import PairType, clock_options, split_model, upload_of
from otel_bridge.config.load import load
from otel_bridge.errors import Rejected
from otel_bridge.export.build import build_exporter
from otel_bridge.spans.assemble import Payload, assemble


@click.command()
@click.argument("dumps", metavar="RUN.etdp...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--mapping", "source", required=True, type=click.Path(path_type=Path), help="An .etrecord, maps JSON or built mapping."
)
@click.option(
    "--model", metavar="NAME@VERSION", help="What the spans call the model.  [default: the mapping's alias, or its file]"
)
@click.option("--method", metavar="M", help="Method that ran; without it, found from the events.")
@click.option(
    "--metadata-parser",
    "parsers",
    multiple=True,
    metavar="[BACKEND=]module:function",
    help="Decoder of delegate metadata, from PYTHONPATH or the current directory; repeatable.",
)
@click.option("--resource", "resources", multiple=True, type=PairType(), help="Resource attribute; repeatable.")
@clock_options
@click.option(
    "--otlp-endpoint", metavar="URL", help="Send the spans to this OTLP endpoint (gRPC, or OTEL_EXPORTER_OTLP_PROTOCOL)."
)
@click.option("--output", metavar="FILE|-", help="Write OTLP JSON instead, one TracesData a line; - is stdout.")
def replay(
    *,
    dumps: tuple[Path, ...],
    source: Path,
    model: str | None,
    method: str | None,
    parsers: tuple[str, ...],
    resources: tuple[tuple[str, str], ...],
    otlp_endpoint: str | None,
    output: str | None,
    **clock: Any,
) -> None:
    """
    Resolve ETDumps here and send or write their spans.

    A file that is no ETDump costs itself: the others are replayed, and the exit code is 1.
    """
    if (otlp_endpoint is None) == (output is None):
        raise click.UsageError("say where the spans go: --otlp-endpoint URL or --output FILE (one of them)")
    settings = load(
        None, {"export.endpoint": otlp_endpoint} if output is None else {"export.protocol": "file", "export.path": output}
    )
    file = load_source(source)
    name, version = split_model(model) if model else (file.name or source.name.partition(".")[0], file.version)
    sys.path.append(str(Path.cwd()))  # a decoder may lie beside the captures; last, so that it shadows nothing
    parsers = (*settings.metadata.parsers, *parsers)
    offline = Offline(file, parsers, settings.metadata.time_limit_s, settings.clock.converters)
    payloads: list[Payload] = []
    refused_files = 0
    try:
        for path in dumps:
            request = upload_of(path, method=method, **clock)
            request.stream.model.name, request.stream.model.version = name.encode(), version.encode()
            for key, value in resources:
                request.stream.resource.add(key=key.encode()).value.text = value.encode()
            try:
                replayed = offline.replay(request)
            except Rejected as error:
                refused_files += 1
                click.echo(f"Error: {path}: {error}", err=True)
                continue
            if replayed.admitted.first_rejection:
                click.echo(f"{path}: {replayed.admitted.first_rejection}", err=True)
            payloads += assemble(replayed.scene, settings.export.max_request_bytes)
    finally:
        offline.close()

    exporter = build_exporter(settings.export)

    async def deliver() -> int:
        try:
            return sum([(await exporter.send(payload.data)).rejected_spans for payload in payloads])
        finally:
            await exporter.close()

    refused = asyncio.run(deliver())
    spans = sum(payload.spans for payload in payloads)
    files = len(dumps) - refused_files
    if files:
        click.echo(f"{spans - refused} spans of {files} files {'written' if output else 'sent'}", err=True)
    if refused:
        raise click.ClickException(f"the back end refused {refused} of {spans} spans")
    if refused_files:
        click.get_current_context().exit(1)
