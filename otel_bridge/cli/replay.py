"""`otel-bridge replay`: ETDumps to spans without a server."""

import asyncio
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from otel_bridge.app.offline import Offline
from otel_bridge.cli.mapping import load_source
from otel_bridge.cli.options import PairType, add_resource, clock_options, name_model, upload_of
from otel_bridge.config.load import load
from otel_bridge.errors import Rejected
from otel_bridge.export.build import build_exporter
from otel_bridge.export.protocol import Exporter
from otel_bridge.spans.assemble import assemble
from otel_bridge.spans.fit import fit
from otel_bridge.v1 import profiling_pb2 as pb

_PATIENCE_S = 300.0
"""How long the back end may be away: somebody waits for the command."""


@click.command()
@click.argument("dumps", metavar="RUN.etdp...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--mapping", "source", required=True, type=click.Path(path_type=Path), help="An .etrecord, .pte, maps JSON or mapping."
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
    alias = f"{file.name}@{file.version}" if file.name else source.name.partition(".")[0]
    sys.path.append(str(Path.cwd()))  # a decoder may lie beside the captures; last, so that it shadows nothing
    parsers = (*settings.metadata.parsers, *parsers)
    offline = Offline(file, parsers, settings.metadata.time_limit_s, settings.clock.converters)

    def requests() -> Iterator[tuple[Path, pb.UploadETDumpRequest]]:
        for path in dumps:
            request = upload_of(path, method=method, **clock)
            name_model(request, model or alias)
            add_resource(request, resources)
            yield path, request

    try:
        if output not in {None, "-"}:
            _empty(Path(output or ""))  # only now that nothing else can be found wrong
        exporter = build_exporter(settings.export, patience_s=_PATIENCE_S)
        done = asyncio.run(_deliver(requests(), offline, exporter, settings.export.max_request_bytes))
    finally:
        offline.close()
    if done.files:
        click.echo(f"{done.spans - done.refused} spans of {done.files} files {'written' if output else 'sent'}", err=True)
    if done.refused:
        raise click.ClickException(f"the back end refused {done.refused} of {done.spans} spans")
    if done.files < len(dumps):
        click.get_current_context().exit(1)


@dataclass(slots=True)
class _Done:
    """Files that were replayed, their spans, and how many of these the back end refused."""

    files: int = 0
    spans: int = 0
    refused: int = 0


async def _deliver(
    requests: Iterator[tuple[Path, pb.UploadETDumpRequest]], offline: Offline, exporter: Exporter, limit_bytes: int
) -> _Done:
    """Replay and send file by file, so that no more than one is held."""
    done = _Done()
    try:
        for path, request in requests:
            try:
                replayed = offline.replay(request)
            except Rejected as error:
                click.echo(f"Error: {path}: {error}", err=True)
                continue
            if replayed.admitted.first_rejection:
                click.echo(f"{path}: {replayed.admitted.first_rejection}", err=True)
            done.files += 1
            for payload in assemble(fit(replayed.scene), limit_bytes):
                done.spans += payload.spans
                done.refused += (await exporter.send(payload.data)).rejected_spans
    finally:
        await exporter.close()
    return done


def _empty(path: Path) -> None:
    """Start a file anew: spans of an earlier replay in it would look like this one's."""
    try:
        path.write_bytes(b"")
    except OSError as error:
        raise click.ClickException(f"{path}: cannot be written: {error.strerror}") from error
