"""Options that several commands share, and what they mean in the protocol."""

import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import click

from otel_bridge.v1 import profiling_pb2 as pb

Command = TypeVar("Command", bound=Callable[..., Any])
Request: TypeAlias = pb.UploadETDumpRequest | pb.ExportEventsRequest

MAX_UNIX_NS = 2**63 - 1
"""The latest time that int64 nanoseconds since 1970 can hold."""
_TIME = re.compile(r"(.+?[T ]\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)?")
_NO_TIME = "must be a time by RFC 3339, such as 2026-01-02T03:04:05.678Z"


class RatioType(click.ParamType[Any]):
    """N/D or N: nanoseconds a tick, as two positive integers."""

    name = "N/D"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """A pair (numerator, denominator)."""
        if isinstance(value, tuple):
            return value
        match = re.fullmatch(r"(\d{1,19})(?:/(\d{1,19}))?", value)
        if match is None or not int(match[1]) or not int(match[2] or 1):
            self.fail(f"{value!r} must be N or N/D, nanoseconds a tick as positive integers (24 MHz: 125/3)", param, ctx)
        return int(match[1]), int(match[2] or 1)


class AnchorType(click.ParamType[Any]):
    """TICKS=TIME: two readings of one moment."""

    name = "TICKS=TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """A pair (ticks, nanoseconds since 1970)."""
        if isinstance(value, tuple):
            return value
        ticks, equals, time = value.partition("=")
        if not equals or not re.fullmatch(r"[0-9]{1,20}", ticks) or int(ticks) >= 2**64:
            self.fail(f"{value!r} must look like TICKS=TIME, with TIME by RFC 3339 (12345=2026-01-02T03:04:05Z)", param, ctx)
        try:
            return int(ticks), parse_time(time)
        except ValueError as error:
            self.fail(f"{value!r}: {error}", param, ctx)


class EndedAtType(click.ParamType[Any]):
    """A time by RFC 3339, or `mtime`."""

    name = "time or mtime"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Nanoseconds since 1970, or the text "mtime"."""
        if isinstance(value, int) or value == "mtime":
            return value
        try:
            return parse_time(value)
        except ValueError as error:
            self.fail(f"{value!r}: {error}, or mtime", param, ctx)


class PairType(click.ParamType[Any]):
    """KEY=VALUE."""

    name = "KEY=VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """A pair of texts."""
        if isinstance(value, tuple):
            return value
        key, equals, text = value.partition("=")
        if not key or not equals:
            self.fail(f"{value!r} must look like KEY=VALUE", param, ctx)
        return key, text


def parse_time(text: str) -> int:
    """Nanoseconds since 1970 of a time by RFC 3339, to the nanosecond; without a zone it is UTC. Raises `ValueError`."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(_NO_TIME)
    try:
        whole = datetime.fromisoformat(match[1] + (match[3] or "Z").replace("Z", "+00:00"))
    except ValueError:
        raise ValueError(_NO_TIME) from None
    seconds = int((whole - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds())
    if seconds < 0:
        raise ValueError("must not be before 1970")
    time_ns = seconds * 10**9 + int((match[2] or "0").ljust(9, "0"))
    if time_ns > MAX_UNIX_NS:
        raise ValueError("must not be after 2262-04-11")
    return time_ns


def clock_options(command: Command) -> Command:
    """What an ETDump does not say of its ticks."""
    for option in (
        click.option(
            "--ended-at", type=EndedAtType(), help="When the last event of the runtime ended. Default: mtime of the file."
        ),
        click.option("--anchor", type=AnchorType(), help="Two readings of one moment: tick counter and wall clock (RFC 3339)."),
        click.option(
            "--counter-bits", type=click.IntRange(1, 64), default=64, show_default=True, help="Width of the tick counter."
        ),
        click.option(
            "--tick-ratio",
            type=RatioType(),
            default="1/1",
            show_default=True,
            help="Nanoseconds a tick; for 24 MHz: 125/3.",
        ),
    ):
        command = option(command)
    return command


def upload_of(
    path: Path,
    *,
    tick_ratio: tuple[int, int],
    counter_bits: int,
    anchor: tuple[int, int] | None,
    ended_at: int | str | None,
    method: str | None = None,
) -> pb.UploadETDumpRequest:
    """
    A file and what the options say of it as a request; the model is for the caller to fill in.

    Raises `click.ClickException` where the file cannot be read.
    """
    try:
        etdump = path.read_bytes()
        modified_ns = path.stat().st_mtime_ns
    except OSError as error:
        raise click.ClickException(f"{path}: cannot be read: {error.strerror}") from error
    return upload_from(
        etdump,
        modified_ns,
        tick_ratio=tick_ratio,
        counter_bits=counter_bits,
        anchor=anchor,
        ended_at=ended_at,
        method=method,
    )


def upload_from(
    etdump: bytes,
    modified_ns: int | None,
    *,
    tick_ratio: tuple[int, int],
    counter_bits: int,
    anchor: tuple[int, int] | None,
    ended_at: int | str | None,
    method: str | None = None,
) -> pb.UploadETDumpRequest:
    """The same, for bytes that were last changed at `modified_ns`, nanoseconds since 1970; None: nobody knows."""
    request = pb.UploadETDumpRequest(etdump=etdump, method=(method or "").encode())
    clock = request.stream.clocks.add(numerator=tick_ratio[0], denominator=tick_ratio[1], counter_bits=counter_bits)
    if anchor is not None:
        clock.anchor_ticks, clock.anchor_unix_ns = anchor
    if isinstance(ended_at, int):
        request.ended_at_unix_ns = ended_at
    elif anchor is None and modified_ns is not None:  # else it would say nothing but when the file was copied
        request.ended_at_unix_ns = min(max(modified_ns, 0), MAX_UNIX_NS)
    return request


def split_model(text: str) -> tuple[str, str]:
    """Name and version of NAME@VERSION; without @ the version is ""."""
    name, _, version = text.partition("@")
    return name, version


def name_model(request: Request, model: str | None, build_id: str | None = None) -> None:
    """Say which model ran: an alias NAME@VERSION, a build id, or both."""
    request.stream.model.build_id = (build_id or "").encode()
    if model:
        name, version = split_model(model)
        request.stream.model.name, request.stream.model.version = name.encode(), version.encode()


def add_resource(request: Request, pairs: Iterable[tuple[str, str]]) -> None:
    """Add resource attributes."""
    for key, value in pairs:
        request.stream.resource.add(key=key.encode()).value.text = value.encode()
