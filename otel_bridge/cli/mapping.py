"""`otel-bridge mapping`: make, upload and look at mappings."""

import json
from datetime import UTC, datetime
from pathlib import Path

import click
from google.protobuf.json_format import MessageToDict
from rich.table import Table

from otel_bridge.cli.cells import cell, console
from otel_bridge.cli.formats import declare, metadata_options
from otel_bridge.cli.lazy import LazyGroup
from otel_bridge.cli.options import split_model
from otel_bridge.cli.remote import Remote, connection_to, remote_options
from otel_bridge.mapping.disclosure import disclose
from otel_bridge.mapping.document import default_build_id, digest, encode, to_json
from otel_bridge.mapping.merge import merge
from otel_bridge.mapping.pte import read_program
from otel_bridge.mapping.source import read_source, write_file
from otel_bridge.v1 import mapping_pb2 as pb

_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_SOURCE_HELP = "SOURCE is an .etrecord, a JSON with debug_handle_map and delegate_map, a .pte, or a built mapping."


@click.group(cls=LazyGroup, modules={name: f"otel_bridge.cli.{name}" for name in ("check", "diff")})
def mapping() -> None:
    """Make, upload and look at mappings.

    A mapping says which operators each delegate debug identifier of a model build stands for.
    """


def _describe_options(command: click.decorators.FC) -> click.decorators.FC:
    for option in (
        click.option("--without-source", is_flag=True, help="Leave out source files and lines."),
        click.option(
            "--strip-prefix",
            multiple=True,
            metavar="DIR",
            help="Take this folder off source paths, the longest that fits; repeatable.",
        ),
        click.option(
            "--pte",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="The program: its kernels and XNNPACK nodes join the mapping, and the build id is its own.",
        ),
        click.option(
            "--build-id",
            metavar="ID",
            help="Build id, as devices send it.  [default: that of --pte, else digest of the mapping]",
        ),
        click.option("--version", "model_version", default="", metavar="V", help="Version in the alias; needs --model."),
        click.option(
            "--model",
            "model_name",
            default="",
            metavar="NAME",
            help="Alias NAME@VERSION, as devices send it.",
        ),
    ):
        command = option(command)
    return command


@mapping.command(help=f"Build a mapping file from SOURCE. {_SOURCE_HELP}")
@click.argument("source", type=click.Path(path_type=Path))
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="File to write; JSON if it ends in .json.")
@_describe_options
@metadata_options
def build(
    *,
    source: Path,
    output: Path,
    model_name: str,
    model_version: str,
    build_id: str | None,
    pte: Path | None,
    strip_prefix: tuple[str, ...],
    without_source: bool,
    metadata_struct: tuple[str, ...],
    metadata_schema: tuple[str, ...],
) -> None:
    """See the help above."""
    file = load_source(source, name=model_name, version=model_version, build_id=build_id, pte=pte)
    file.mapping.CopyFrom(disclose(file.mapping, strip_prefix=strip_prefix, with_source=not without_source))
    file.mapping.CopyFrom(declare(file.mapping, metadata_struct, metadata_schema))
    try:
        output.write_bytes(write_file(file, output.name))
    except OSError as error:
        raise click.ClickException(f"{output}: cannot be written: {error.strerror}") from error
    click.echo(f"{output}: {_summary(file)}")


@mapping.command(help=f"Upload SOURCE to a running bridge. {_SOURCE_HELP} Weights in an ETRecord stay here.")
@click.argument("source", type=click.Path(path_type=Path))
@_describe_options
@click.option("--replace", is_flag=True, help="Replace a mapping of the same build that resolves differently.")
@remote_options
@_json_option
def upload(
    *,
    source: Path,
    model_name: str,
    model_version: str,
    build_id: str | None,
    pte: Path | None,
    strip_prefix: tuple[str, ...],
    without_source: bool,
    replace: bool,
    remote: Remote,
    as_json: bool,
) -> None:
    """See the help above."""
    file = load_source(source, name=model_name, version=model_version, build_id=build_id, pte=pte)
    file.mapping.CopyFrom(disclose(file.mapping, strip_prefix=strip_prefix, with_source=not without_source))
    with connection_to(remote) as bridge:
        done = bridge.call(bridge.mappings.PutMapping, pb.PutMappingRequest(file=file, replace=replace))
    if as_json:
        click.echo(json.dumps({"digest": done.digest, "build_id": done.build_id, "created": done.created}))
    else:
        click.echo(f"{'stored' if done.created else 'already there'}: build {done.build_id}, mapping sha256:{done.digest[:16]}")


@mapping.command("list")
@remote_options
@_json_option
def list_(remote: Remote, *, as_json: bool) -> None:
    """List the mappings of a running bridge."""
    found: list[pb.MappingInfo] = []
    with connection_to(remote) as bridge:
        token = ""
        while True:
            page = bridge.call(bridge.mappings.ListMappings, pb.ListMappingsRequest(page_token=token))
            found += page.mappings
            token = page.next_page_token
            if not token:
                break
    if as_json:
        click.echo(json.dumps([MessageToDict(info, preserving_proto_field_name=True) for info in found], indent=2))
        return
    table = Table("build", "aliases", "mapping", "methods", "delegate calls", "identifiers", box=None)
    for info in found:
        row = (info.build_id, ", ".join(info.aliases), f"sha256:{info.digest[:16]}", info.methods, info.delegates, info.entries)
        table.add_row(*(cell(str(value)) for value in row))
    console().print(table)


@mapping.command()
@click.argument("ref")
@remote_options
@_json_option
def show(ref: str, remote: Remote, *, as_json: bool) -> None:
    """Show one mapping. REF is a build id, sha256:DIGEST or NAME@VERSION."""
    with connection_to(remote) as bridge:
        found = bridge.call(bridge.mappings.GetMapping, pb.GetMappingRequest(ref=ref))
    if as_json:
        click.echo(to_json(pb.MappingFile(mapping=found.mapping, build_id=found.info.build_id)))
        return
    info = found.info
    click.echo(f"build {info.build_id}, mapping sha256:{info.digest}")
    click.echo(f"aliases: {', '.join(info.aliases) or 'none'}")
    table = Table("method", "instruction", "delegate", "identifier", "handles", "operators", box=None)
    for method in found.mapping.methods:
        for instruction in method.instructions:
            for row in _rows(instruction):
                shown = (method.name, str(instruction.id), instruction.delegate or "-", *row)
                table.add_row(*map(cell, shown))
    console().print(table)


@mapping.command()
@click.argument("ref")
@remote_options
def delete(ref: str, remote: Remote) -> None:
    """Forget a mapping of a running bridge, with its aliases. REF is a build id, sha256:DIGEST or NAME@VERSION."""
    with connection_to(remote) as bridge:
        done = bridge.call(bridge.mappings.DeleteMapping, pb.DeleteMappingRequest(ref=ref))
    click.echo(f"deleted: build {done.build_id}")


@mapping.command()
@remote_options
@_json_option
def missing(remote: Remote, *, as_json: bool) -> None:
    """List builds and aliases that devices named and that have no mapping."""
    found: list[pb.MissingMapping] = []
    with connection_to(remote) as bridge:
        token = ""
        while True:
            page = bridge.call(bridge.mappings.ListMissing, pb.ListMissingRequest(page_token=token))
            found += page.missing
            token = page.next_page_token
            if not token:
                break
    if as_json:
        click.echo(json.dumps([MessageToDict(each, preserving_proto_field_name=True) for each in found], indent=2))
        return
    table = Table("build or alias", "devices", "since (UTC)", "parked events", "gone without", box=None)
    for each in found:
        since = datetime.fromtimestamp(each.first_seen_unix_ns // 10**9, UTC).strftime("%Y-%m-%d %H:%M:%S")
        row = (cell(each.ref), str(each.devices), since, str(each.parked_events), str(each.passed_events))
        table.add_row(*row)
    console().print(table)


@mapping.command()
@click.argument("alias_name", metavar="NAME@VERSION")
@click.argument("ref")
@remote_options
def alias(alias_name: str, ref: str, remote: Remote) -> None:
    """Let NAME@VERSION name the build of REF from now on."""
    name, version = split_model(alias_name)
    with connection_to(remote) as bridge:
        request = pb.SetAliasRequest(name=name, version=version, ref=ref)
        done = bridge.call(bridge.mappings.SetAlias, request)
    before = f", before {done.previous_build_id}" if done.previous_build_id else ""
    click.echo(f"{name}@{version}: build {done.build_id}{before}")


def load_source(
    source: Path, *, name: str = "", version: str = "", build_id: str | None = None, pte: Path | None = None
) -> pb.MappingFile:
    """
    The mapping in a file, with what the options say of it.

    The build id is that of the option, else that of the program `pte`, else that of the file.

    Raises `MalformedMapping`, `click.ClickException` where a file cannot be read.
    """
    try:
        with source.open("rb") as stream:
            file = read_source(stream)
        if pte is not None:
            with pte.open("rb") as stream:
                program = read_program(stream)
            file.mapping.CopyFrom(merge(file.mapping, program))
            file.build_id = program.build_id
    except OSError as error:
        raise click.ClickException(f"{error.filename}: cannot be read: {error.strerror}") from error
    file.build_id = build_id or file.build_id
    file.name, file.version = name or file.name, version or file.version
    return file


def _summary(file: pb.MappingFile) -> str:
    name = digest(encode(file.mapping))
    calls = [call for method in file.mapping.methods for call in method.instructions if call.delegate]
    nodes = sum(len(call.nodes) for call in calls)
    return (
        f"build {file.build_id or default_build_id(name)}, mapping sha256:{name[:16]}, {len(file.mapping.methods)} methods, "
        f"{len(calls)} delegate calls, {sum(len(call.entries) for call in calls)} identifiers{f', {nodes} nodes' * bool(nodes)}"
    )


def _rows(instruction: pb.Instruction) -> list[tuple[str, str, str]]:
    names = {known.handle: [operator.name for operator in known.operators] for known in instruction.operators}

    def row(identifier: str, handles: list[int]) -> tuple[str, str, str]:
        operators = ", ".join(name for handle in handles for name in names.get(handle, []))
        return identifier, ", ".join(map(str, handles)), operators or instruction.kernel

    rows = []
    for entry in instruction.entries:
        which = entry.WhichOneof("identifier") or "text"
        shown = (
            str(entry.number) if which == "number" else json.dumps(getattr(entry, which)) if which == "text" else entry.untyped
        )
        rows.append(row(shown, list(entry.handles)))
    rows += [row(f"node {node.kind}", [node.handle] if node.handle else []) for node in instruction.nodes]
    return rows or [row("-", list(instruction.handles))]
