"""
What is sent: a request, under the name by which its sender knows it, completed with what the options and a sidecar say.

A sidecar is a JSON file `NAME.json` beside the ETDump `NAME`, such as `run.etdp.json`: an object with the parameters of
`POST /v1/etdump`, and the resource as an object of its own.

    {"model": "camera@1.0", "method": "forward", "resource": {"service.name": "camera"}, "ended_at": 1767323045000000000}

Invariants
* What lies nearest to the run wins: the block of a device, then the sidecar, then the options.
* The same file with the same words about it makes the same bytes, so that sent again it shows once.
"""

import contextlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import click

from otel_bridge.cli.options import (
    PairType,
    Request,
    add_resource,
    clock_options,
    name_model,
    upload_from,
    upload_of,
)
from otel_bridge.cli.request_file import MAX_REQUEST_BYTES, RequestInFile
from otel_bridge.cli.serial_log import SerialBlock
from otel_bridge.errors import MalformedRequest
from otel_bridge.telemetry.logs import escape
from otel_bridge.v1 import profiling_pb2 as pb
from otel_bridge.wire.intake import parse
from otel_bridge.wire.query import upload_request

_MAX_SIDECAR_BYTES = 1 << 20
NO_MODEL = "say which model ran: --model NAME@VERSION or --build-id ID, or `model` in a sidecar"


@dataclass(frozen=True, slots=True)
class Parcel:
    """A request and its name: a path, or a place in a log."""

    name: str
    request: Request


@dataclass(frozen=True, slots=True)
class Described:
    """What the options say of every run."""

    model: str | None
    build_id: str | None
    method: str | None
    resources: tuple[tuple[str, str], ...]
    runtime_version: str | None
    clock: Mapping[str, Any]

    @property
    def names_model(self) -> bool:
        """Whether they say which model ran."""
        return bool(self.model or self.build_id)

    def file(self, path: Path) -> Parcel:
        """
        An ETDump, with its sidecar if there is one.

        Raises `click.ClickException` where the file or its sidecar cannot be used, or nothing says which model ran.
        """
        said = read_sidecar(path)
        _check_size(path)
        request = upload_of(path, method=self.method, **self.clock)
        self._complete(request)
        if said is not None:
            _overrule(request, said)
        if not _names_model(request.stream):
            raise click.ClickException(f"{path}: {NO_MODEL}")
        return Parcel(str(path), request)

    def block(self, source: Path | None, block: SerialBlock | RequestInFile) -> Parcel:
        """
        What stands in a file among others; None: on standard input. An ETDump ended when the file was last changed.

        Raises `click.ClickException`.
        """
        name = f"{source or '-'}: {block.place}"
        request: Request
        if block.is_events:
            try:
                request = parse(pb.ExportEventsRequest, block.data)
            except MalformedRequest as error:
                raise click.ClickException(f"{name}: {error}") from error
            self._anchor(request.stream)
        else:
            request = upload_from(block.data, _modified_ns(source), method=self.method, **self.clock)
        self._complete(request)
        if not _names_model(request.stream):
            raise click.ClickException(f"{name}: {NO_MODEL}")
        return Parcel(name, request)

    def _complete(self, request: Request) -> None:
        """Say of a stream what it does not say itself; of two resource attributes with one key the first counts."""
        if not _names_model(request.stream):
            name_model(request, self.model, self.build_id)
        request.stream.runtime_version = request.stream.runtime_version or (self.runtime_version or "").encode()
        add_resource(request, self.resources)

    def _anchor(self, stream: pb.Stream) -> None:
        anchor = self.clock["anchor"]
        if anchor is not None:
            clock = stream.clocks[0] if stream.clocks else stream.clocks.add()
            if not clock.anchor_unix_ns:
                clock.anchor_ticks, clock.anchor_unix_ns = anchor


def describe_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of `Described`."""
    for option in (
        clock_options,
        click.option("--runtime-version", metavar="V", help="Version of ExecuTorch on the device."),
        click.option(
            "--resource", "resources", multiple=True, type=PairType(), help="Resource attribute of app or device; repeatable."
        ),
        click.option("--method", metavar="M", help="Method that ran; without it, found from the events."),
        click.option("--build-id", metavar="ID", help="Build of the model; wins over --model."),
        click.option("--model", metavar="NAME@VERSION", help="Alias of the mapping."),
    ):
        command = option(command)
    return command


def sidecar_of(path: Path) -> Path:
    """Where the sidecar of a file lies, if it has one."""
    return path.with_name(f"{path.name}.json")


def has_sidecar(path: Path) -> bool:
    """Whether a file has a sidecar; one whose sidecar would have too long a name has none."""
    return os.path.exists(sidecar_of(path))  # noqa: PTH110 - that of Path raises where a name is too long


def read_sidecar(path: Path) -> pb.UploadETDumpRequest | None:
    """What the sidecar of a file says; None: there is none. Raises `click.ClickException`."""
    sidecar = sidecar_of(path)
    try:
        with sidecar.open("rb") as stream:
            data = stream.read(_MAX_SIDECAR_BYTES + 1)
    except OSError as error:
        if not has_sidecar(path):
            return None
        raise click.ClickException(f"{sidecar}: cannot be read: {error.strerror}") from error
    if len(data) > _MAX_SIDECAR_BYTES:
        raise click.ClickException(f"{sidecar}: has more than {_MAX_SIDECAR_BYTES} bytes; that is no sidecar")
    try:
        return upload_request(urlencode(_parameters(json.loads(data))).encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise click.ClickException(f"{sidecar}: is no JSON sidecar: {escape(str(error), 200)}") from error
    except MalformedRequest as error:
        raise click.ClickException(f"{sidecar}: {str(error).removeprefix('query ')}") from error


def _parameters(value: Any) -> dict[str, str]:
    """A sidecar as the parameters of an upload. Raises `TypeError`."""
    if not isinstance(value, dict):
        raise TypeError("must be an object with the parameters of POST /v1/etdump")
    resource = value.pop("resource", {})
    if not isinstance(resource, dict):
        raise TypeError("resource must be an object")
    every = {**value, **{f"resource.{key}": each for key, each in resource.items()}}
    for key, each in every.items():
        if isinstance(each, bool) or not isinstance(each, str | int):
            raise TypeError(f"{key[:64]!a} must be text or a whole number")
    return {key: str(each) for key, each in every.items()}


def _overrule(request: pb.UploadETDumpRequest, said: pb.UploadETDumpRequest) -> None:
    """Let a sidecar's words take the place of the options'."""
    clocks, resource = list(said.stream.clocks), list(said.stream.resource)
    del said.stream.clocks[:], said.stream.resource[:]
    if _names_model(said.stream):
        request.stream.ClearField("model")
    request.MergeFrom(said)
    for clock in clocks:  # one at most
        request.stream.clocks[0].MergeFrom(clock)
        if clock.anchor_unix_ns and not said.ended_at_unix_ns:
            request.ClearField("ended_at_unix_ns")  # with an anchor, the time of the file says nothing
    kept = list(request.stream.resource)
    del request.stream.resource[:]
    request.stream.resource.extend([*resource, *kept])  # of two with one key the first counts


def _names_model(stream: pb.Stream) -> bool:
    return bool(stream.model.name or stream.model.build_id)


def _modified_ns(path: Path | None) -> int | None:
    with contextlib.suppress(OSError):
        return path.stat().st_mtime_ns if path else None
    return None


def _check_size(path: Path) -> None:
    try:
        size = path.stat().st_size
    except OSError:
        return  # whoever reads it says why
    if size > MAX_REQUEST_BYTES:
        raise click.ClickException(f"{path}: has {size} bytes; one request holds at most {MAX_REQUEST_BYTES}")
