"""Options by which the metadata of delegates are declared with a mapping."""

from collections.abc import Sequence
from pathlib import Path

import click

from otel_bridge.mapping.document import canonical
from otel_bridge.mapping.formats import check_schema, read_layout
from otel_bridge.metadata.flatbuffer import Unreadable
from otel_bridge.metadata.schema import Schema
from otel_bridge.v1 import mapping_pb2 as pb

_NAMES = ("--metadata-struct", "--metadata-schema")


def metadata_options(command: click.decorators.FC) -> click.decorators.FC:
    """Options `metadata_struct` and `metadata_schema`, for `declare`."""
    for option in (
        click.option(
            "--metadata-schema",
            multiple=True,
            metavar="BACKEND=FILE.bfbs[#TABLE]",
            help="FlatBuffers schema of a delegate's metadata (`flatc --schema --binary`); TABLE: another root than its own.",
        ),
        click.option(
            "--metadata-struct",
            multiple=True,
            metavar="BACKEND=FILE.json",
            help='Layout of a delegate\'s metadata: {"fields": [{"name": "cycles", "type": "u32", "unit": "{cycle}"}, ...]}.',
        ),
    ):
        command = option(command)
    return command


def declare(mapping: pb.Mapping, structs: Sequence[str], schemas: Sequence[str]) -> pb.Mapping:
    """
    The mapping with what the options declare; an option replaces what the mapping declared for its backend.

    Raises `MalformedMapping`, `click.UsageError` where an option cannot be obeyed, `click.ClickException` where a file cannot
    be read.
    """
    declared = {each.delegate: each for each in mapping.metadata}
    given: set[str] = set()
    for name, options in zip(_NAMES, (structs, schemas), strict=True):
        for option in options:
            delegate, equals, path = option.partition("=")
            if not (delegate and equals and path):
                raise click.UsageError(f"{name} {option!r} must look like BACKEND=FILE")
            if delegate in given:
                raise click.UsageError(f"{name} {option!r}: the metadata of {delegate} are declared for a second time")
            given.add(delegate)
            read = _layout if name == _NAMES[0] else _schema
            declared[delegate] = read(delegate, path)
    result = pb.Mapping(format=mapping.format, methods=mapping.methods, metadata=declared.values())
    return canonical(result)


def _layout(delegate: str, path: str) -> pb.MetadataFormat:
    return pb.MetadataFormat(delegate=delegate, layout=read_layout(_bytes_of(path), path))


def _schema(delegate: str, path: str) -> pb.MetadataFormat:
    file, _, root_table = path.partition("#")
    bfbs = _bytes_of(file)
    check_schema(bfbs, file)
    try:
        Schema(bfbs, root_table)
    except Unreadable as error:
        raise click.UsageError(f"{path}: {error}") from error
    return pb.MetadataFormat(delegate=delegate, flatbuffer=pb.FlatbufferSchema(bfbs=bfbs, root_table=root_table))


def _bytes_of(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise click.ClickException(f"{path}: cannot be read: {error.strerror}") from error
