"""`otel-bridge token`: who may come in, in the data directory of a bridge that may run meanwhile."""

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from otel_bridge.auth.book import FILE_NAME, Tokens, change_tokens, read_tokens
from otel_bridge.auth.token import NAME, State, Token, draw
from otel_bridge.cli.cells import cell, console
from otel_bridge.config.load import load
from otel_bridge.model.identity import TENANT, Scope

_UNITS = {"m": "minutes", "h": "hours", "d": "days"}


class _DurationType(click.ParamType[Any]):
    """90d, 12h or 30m."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """A `timedelta`."""
        if isinstance(value, timedelta):
            return value
        match = re.fullmatch(r"(\d{1,6})([mhd])", value)
        if match is None:
            self.fail(f"{value!r} must be a number of minutes, hours or days: 30m, 12h, 90d", param, ctx)
        return timedelta(**{_UNITS[match[2]]: int(match[1])})


class _NameType(click.ParamType[Any]):
    """The name of a token."""

    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The text."""
        if NAME.fullmatch(value) is None:
            self.fail(f"{value!r} must be 1 to 64 letters, digits and . _ @ / - between them", param, ctx)
        return value


class _TenantType(click.ParamType[Any]):
    """The name of a tenant."""

    name = "tenant"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The text."""
        if value and TENANT.fullmatch(value) is None:
            self.fail(f"{value!r} must be 1 to 64 letters, digits and . _ -, beginning with a letter or digit", param, ctx)
        return value


@click.group()
def token() -> None:
    """Make, list and revoke tokens.

    They are kept in the data directory, as hashes. A bridge that runs notices within two seconds.
    """


def _file_options(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option("--file", "file", type=click.Path(path_type=Path), help="Use this file, for auth.tokens_file."),
        click.option("--data-dir", metavar="DIR", help="Data directory of the bridge.  [default: that of the settings]"),
        click.option("--config", "config_file", type=click.Path(path_type=Path), help="Settings (TOML) of the bridge."),
    ):
        command = option(command)
    return command


@token.command()
@click.argument("name", type=_NameType())
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    required=True,
    type=click.Choice([each.value for each in Scope]),
    help="What it allows; repeatable, none implies another.",
)
@click.option(
    "--tenant", type=_TenantType(), default="", metavar="TENANT", help="Whose it is.  [default: the tenant without name]"
)
@click.option("--expires", type=_DurationType(), metavar="90d", help="How long it is good.  [default: until revoked]")
@click.option(
    "--overlap",
    type=_DurationType(),
    metavar="7d",
    help="Rotate: earlier tokens of this name are good for so long from now, 0m for not at all.",
)
@click.option("--output", type=click.Path(path_type=Path), help="Write the token to this new file, not to the terminal.")
@_file_options
def create(
    *,
    name: str,
    scopes: tuple[str, ...],
    tenant: str,
    expires: timedelta | None,
    overlap: timedelta | None,
    output: Path | None,
    config_file: Path | None,
    data_dir: str | None,
    file: Path | None,
) -> None:
    """Make a token and print it, this once. NAME says who gets it."""
    path, now = _path(config_file, data_dir, file), _now()
    kept, whole = draw(name, map(Scope, scopes), now, expires, tenant=tenant)

    def add(tokens: Tokens) -> list[Token]:
        namesakes = {each.id for each in tokens if _is_called(each, name, tenant) and each.state(now) is State.ACTIVE}
        if namesakes and overlap is None:
            raise click.ClickException(
                f"there is a token {name}{_of(tenant)} ({', '.join(sorted(namesakes))}); name this one otherwise, or rotate "
                "with --overlap: how long the earlier one is still good"
            )
        ending = now + (overlap or timedelta())
        return [*(_ending(each, ending) if each.id in namesakes else each for each in tokens), kept]

    with _taken(output) as write:
        change_tokens(path, add, now)
        write(whole)
    end = f"until {_shown(kept.expires)}" if kept.expires else "until it is revoked"
    click.echo(f"token {kept.id} of {name}{_of(tenant)}, for {', '.join(kept.scopes)}, {end}", err=True)


@token.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@_file_options
def list_(*, as_json: bool, config_file: Path | None, data_dir: str | None, file: Path | None) -> None:
    """List tokens: names, tenants, scopes and times, never what they are."""
    tokens, now = read_tokens(_path(config_file, data_dir, file)), _now()
    if as_json:
        rows = [each.model_dump(mode="json", exclude={"sha256"}) | {"state": each.state(now).value} for each in tokens]
        click.echo(json.dumps(rows, indent=2))
        return
    table = Table("id", "name", "tenant", "scopes", "created (UTC)", "expires (UTC)", "state", box=None)
    for each in tokens:
        end = _shown(each.expires) if each.expires else "never"
        row = (each.id, each.name, each.tenant, ", ".join(each.scopes), _shown(each.created), end, each.state(now).value)
        table.add_row(*map(cell, row))
    console().print(table)


@token.command()
@click.argument("names", metavar="NAME_OR_ID...", nargs=-1, required=True)
@click.option(
    "--tenant",
    type=_TenantType(),
    default="",
    metavar="TENANT",
    help="Whose names these are.  [default: the tenant without name]",
)
@_file_options
def revoke(*, names: tuple[str, ...], tenant: str, config_file: Path | None, data_dir: str | None, file: Path | None) -> None:
    """Revoke tokens, by their id or all of a name."""
    path, now = _path(config_file, data_dir, file), _now()
    revoked: list[Token] = []

    def end(tokens: Tokens) -> list[Token]:
        live = [each for each in tokens if each.state(now) is not State.REVOKED]
        named = {name: [each for each in live if each.id == name or _is_called(each, name, tenant)] for name in names}
        unknown = [name for name, found in named.items() if not found]
        if unknown:
            raise click.ClickException(f"there is no token {', '.join(map(ascii, unknown))}{_of(tenant)}; nothing was revoked")
        revoked.extend(each for each in live if any(each in found for found in named.values()))
        ids = {each.id for each in revoked}
        return [each.model_copy(update={"revoked": now}) if each.id in ids else each for each in tokens]

    change_tokens(path, end, now)
    for each in revoked:
        click.echo(f"revoked: token {each.id} of {each.name}{_of(each.tenant)}")


def _path(config_file: Path | None, data_dir: str | None, file: Path | None) -> Path:
    if file is not None:
        return file
    directory = load(config_file, {"server.data_dir": data_dir}).server.data_dir
    if directory is None:
        raise click.ClickException('server.data_dir is ":memory:", which keeps no tokens; name a file with --file')
    return directory / FILE_NAME


def _is_called(token: Token, name: str, tenant: str) -> bool:
    return (token.name, token.tenant) == (name, tenant)


def _of(tenant: str) -> str:
    return f" of tenant {tenant}" if tenant else ""


def _ending(earlier: Token, end: datetime) -> Token:
    """The token, good until then at most."""
    return earlier.model_copy(update={"expires": min(end, earlier.expires or end)})


@contextmanager
def _taken(output: Path | None) -> Iterator[Callable[[str], object]]:
    """Writes a line to a new file of the owner's alone, which goes again where the block fails; None: standard output."""
    if output is None:
        yield click.echo
        return
    try:
        handle = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise click.ClickException(f"{output}: cannot be written: {error.strerror}; no token was made") from error
    try:
        with os.fdopen(handle, "w") as file:
            yield lambda line: file.write(f"{line}\n")
    except BaseException:
        output.unlink(missing_ok=True)
        raise


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def _shown(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
