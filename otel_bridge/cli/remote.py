"""Calls of a running bridge, with its errors as one clear line."""

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TypeVar

import click

from otel_bridge.client.connection import UNREACHABLE, Connection
from otel_bridge.errors import BridgeRefused, BridgeUnavailable

_PATIENCE = 5
_LONGEST_WAIT_S = 60.0  # a bridge that asks for years is asked again

T = TypeVar("T")

server_option = click.option(
    "--server", default="127.0.0.1:4417", show_default=True, metavar="ADDR", help="gRPC address of the bridge."
)


@contextmanager
def connection_to(server: str) -> Generator[Connection, None, None]:
    """A connection to a bridge; an error of a call inside the block ends the command with its message."""
    with Connection(server) as connection:
        try:
            yield connection
        except (BridgeRefused, BridgeUnavailable) as error:
            raise click.ClickException(explain(server, error)) from error


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
        return f"no bridge answers at {server}: start one with `otel-bridge serve`, or name another with --server"
    return str(error)
