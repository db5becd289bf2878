"""Calls of a running bridge: the options of every command that makes them, and its errors as one clear line."""

import functools
import os
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from otel_bridge.client.connection import UNREACHABLE, Connection
from otel_bridge.errors import BridgeRefused, BridgeUnavailable, Unauthenticated

TOKEN_VARIABLE = "OTEL_BRIDGE_TOKEN"  # noqa: S105 - its name, not a token
_PATIENCE = 5
_LONGEST_WAIT_S = 60.0  # a bridge that asks for years is asked again
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)

T = TypeVar("T")
Command = Callable[..., None]


@dataclass(frozen=True, slots=True)
class Remote:
    """A bridge as the options name it; see `otel_bridge.client.connection.Connection`."""

    server: str
    token: str | Path | None = None
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    plain_token: bool = False


_SIGNS_OF_TLS = (
    (
        "CERTIFICATE_VERIFY_FAILED",
        "TLS with {server}: no authority that is trusted vouches for its certificate; name one with --ca",
    ),
    ("WRONG_VERSION_NUMBER", "TLS with {server}: it speaks plain text; write http://HOST:PORT, without --ca, --cert and --key"),
    (
        "handshake failed",
        "TLS with {server}: it did not agree; where it asks for a certificate of yours, give --cert and --key",
    ),
    (
        "closed",
        "{server} hangs up; where it speaks TLS, write https://HOST:PORT or name its authority with --ca",
    ),
)
"""What gRPC says of a connection that failed -> what it means."""

_OPTIONS = (
    click.option(
        "--server",
        default="127.0.0.1:4417",
        show_default=True,
        metavar="ADDR",
        help="gRPC address of the bridge; https://HOST:PORT for TLS.",
    ),
    click.option("--token-file", type=_FILE, help=f"File that holds the token.  [default: the token in {TOKEN_VARIABLE}]"),
    click.option("--ca", type=_FILE, help="Authorities to trust (PEM), in place of the system's; implies TLS."),
    click.option("--cert", type=_FILE, help="Own certificate (PEM), where the bridge asks for one; implies TLS."),
    click.option("--key", type=_FILE, help="Its private key (PEM)."),
    click.option("--plain-token", is_flag=True, help="Send the token without TLS to another machine, too."),
)


def remote_options(command: Callable[..., None]) -> Command:
    """The options that say which bridge, and how one gets in; the command gets them as `remote`, a `Remote`."""

    @functools.wraps(command)
    def with_remote(
        *given: Any,
        server: str,
        token_file: Path | None,
        ca: Path | None,
        cert: Path | None,
        key: Path | None,
        plain_token: bool,
        **others: Any,
    ) -> None:
        token = token_file or os.environ.get(TOKEN_VARIABLE) or None
        command(*given, remote=Remote(server, token, ca, cert, key, plain_token), **others)

    wrapped: Command = with_remote
    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped


@contextmanager
def connection_to(remote: Remote) -> Generator[Connection, None, None]:
    """
    A connection to a bridge; an error of a call inside the block ends the command with its message.

    Raises `ConfigError` where the options cannot be obeyed.
    """
    with open_connection(remote) as connection:
        try:
            yield connection
        except (BridgeRefused, BridgeUnavailable) as error:
            raise click.ClickException(explain(remote.server, error)) from error


def open_connection(remote: Remote, *, alone: bool = False) -> Connection:
    """A connection as the options say; `alone`: with a TCP connection of its own. Raises `ConfigError`."""
    return Connection(
        remote.server,
        token=remote.token,
        ca=remote.ca,
        cert=remote.cert,
        key=remote.key,
        plain_token=remote.plain_token,
        alone=alone,
    )


def patiently(call: Callable[[], T], sleep: Callable[[float], None] = time.sleep) -> T:
    """The call's answer; where the bridge asks for patience (its spool is full), the call is made again, up to five times."""
    for _ in range(_PATIENCE):
        try:
            return call()
        except BridgeUnavailable as error:
            if error.retry_after_s is None:
                raise
            sleep(min(error.retry_after_s, _LONGEST_WAIT_S))
    return call()


def explain(server: str, error: BridgeRefused | BridgeUnavailable) -> str:
    """An error of a call, on one line."""
    if error.reason == UNREACHABLE:
        for sign, meaning in _SIGNS_OF_TLS:
            if sign in str(error):
                return meaning.format(server=server)
        return f"no bridge answers at {server}: start one with `otel-bridge serve`, or name another with --server"
    if error.reason == Unauthenticated.reason:
        return f"{error} (--token-file FILE, or {TOKEN_VARIABLE})"
    return str(error)
