"""
`otel-bridge watch`: each ETDump that comes into a folder, to a running bridge.

Invariant: a file leaves the folder only after the bridge has answered for it. A bridge that is away costs time, nothing else.
"""

import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from otel_bridge.cli.account import Account, printable
from otel_bridge.cli.folder import REFUSED, SENT, Folder
from otel_bridge.cli.parcel import Described, Parcel, describe_options, has_sidecar, sidecar_of
from otel_bridge.cli.remote import Remote, connection_to, explain, remote_options
from otel_bridge.cli.send import deliver
from otel_bridge.client.connection import Connection
from otel_bridge.errors import BridgeRefused, BridgeUnavailable

_LONGEST_WAIT_S = 60.0


@click.command()
@click.argument("directory", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--once", is_flag=True, help="Send what is there, once it is whole, and end.")
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(0.05, 3600),
    default=2.0,
    show_default=True,
    metavar="S",
    help="Seconds between two looks; a file that two of them see unchanged is sent.",
)
@click.option(
    "--pattern",
    "patterns",
    multiple=True,
    default=("*.etdp", "*.etdump"),
    show_default=True,
    metavar="GLOB",
    callback=lambda _context, _option, patterns: _checked(patterns),
    help="Names of ETDumps; repeatable.",
)
@describe_options
@remote_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a file, and a summary.")
def watch(
    *,
    directory: Path,
    once: bool,
    interval_s: float,
    patterns: tuple[str, ...],
    model: str | None,
    build_id: str | None,
    method: str | None,
    resources: tuple[tuple[str, str], ...],
    runtime_version: str | None,
    remote: Remote,
    as_json: bool,
    **clock: Any,
) -> None:
    """
    Send each ETDump that comes into DIR, such as those that are pulled from phones, to a running bridge.

    A file that the bridge took is moved to DIR/sent, one that it refused to DIR/refused. While the bridge is away files stay.
    A sidecar NAME.json beside the file NAME says what the file does not, and wins over the options; put it there first. A
    file of which nothing says which model ran waits for its sidecar.

    Ends on SIGTERM or SIGINT, after the file that is being sent. The exit code is 0, or 1 where a file was refused or, with
    --once, could not be sent.
    """
    said = Described(model, build_id, method, resources, runtime_version, clock)
    folder, account = Folder(directory, patterns), Account(as_json)
    with folder.owned(), _told_to_stop() as stopping, connection_to(remote) as connection:
        if not once:
            click.echo(f"{directory}: watched, every {interval_s:g} s", err=True)
        try:
            left = _Watcher(folder, said, account, connection, stopping).run(interval_s, once=once)
        finally:
            account.show_summary()
    if account.refused or (once and left):
        click.get_current_context().exit(1)


def _checked(patterns: tuple[str, ...]) -> tuple[str, ...]:
    for pattern in patterns:
        if not pattern or "/" in pattern:
            raise click.BadParameter(f"{pattern!r} matches no name; it is for names in DIR, such as *.etdp")
    return patterns


@dataclass(slots=True)
class _Watcher:
    """
    The walk through the folder, again and again.

    told       what was said of files that stay, so that it is not said at each look
    failures   looks in a row at which the bridge took nothing
    delayed    how often each file met a bridge that could not take it; the others go first, so that none holds them up
    """

    folder: Folder
    said: Described
    account: Account
    connection: Connection
    stopping: threading.Event
    told: set[str] = field(default_factory=set)
    failures: int = 0
    delayed: Counter[Path] = field(default_factory=Counter)

    def run(self, interval_s: float, *, once: bool) -> int:
        """Look until told to stop, or until every file is whole; how many files stay after the last look."""
        while True:
            whole, unfinished = self.folder.look()
            left = self._send(whole)
            if once and not unfinished:
                return left
            if self.stopping.wait(min(interval_s * 2**self.failures, max(interval_s, _LONGEST_WAIT_S))):
                return left

    def _send(self, whole: list[Path]) -> int:
        """Send files; how many stay."""
        left = 0
        for index, path in enumerate(sorted(whole, key=lambda path: self.delayed[path])):
            waiting = len(whole) - index
            if self.stopping.is_set():
                return left + waiting
            try:
                left += not self._try(path)
            except (BridgeUnavailable, BridgeRefused) as error:  # it would say the same of the next file
                if not self.failures:
                    waits = "1 file waits" if waiting == 1 else f"{waiting} files wait"
                    click.echo(f"{explain(self.connection.server, error)}; {waits}", err=True)
                self.failures = min(self.failures + 1, 16)
                self.delayed[path] += 1
                return left + waiting
            self.failures = 0
        return left

    def _try(self, path: Path) -> bool:
        """Send one file and move it; whether it is out of the way."""
        try:
            parcel = self._read(path)
        except click.ClickException as error:
            if not path.exists():
                return True  # somebody took it
            self._tell(error.message)
            return False
        taken = deliver(self.connection, self.account, str(path), lambda: parcel, self._wait)
        self.delayed.pop(path, None)
        self.folder.move(path, SENT if taken else REFUSED)
        return True

    def _read(self, path: Path) -> Parcel:
        """The file. Raises `click.ClickException` where it is not to be sent as it is."""
        if not self.said.names_model and not has_sidecar(path):
            raise click.ClickException(f"{path}: waits for {sidecar_of(path).name}, or start with --model or --build-id")
        parcel = self.said.file(path)
        if not self.folder.is_as_seen(path):
            raise click.ClickException(f"{path}: has changed since it was looked at; it is sent once it is whole")
        return parcel

    def _wait(self, seconds: float) -> None:
        """Wait, but not longer than until told to stop."""
        self.stopping.wait(seconds)

    def _tell(self, what: str) -> None:
        """Say something on standard error, once."""
        if what not in self.told:
            self.told.add(what)
            click.echo(printable(what), err=True)


@contextmanager
def _told_to_stop() -> Iterator[threading.Event]:
    """Set by SIGTERM and SIGINT."""
    stopping = threading.Event()
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(number, lambda *_: stopping.set()) for number in numbers]
    try:
        yield stopping
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
