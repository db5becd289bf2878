"""`otel-bridge send`: ETDumps, and what stands in serial logs, to a running bridge."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from otel_bridge.cli.account import Account
from otel_bridge.cli.parcel import NO_MODEL, Described, Parcel, describe_options, has_sidecar
from otel_bridge.cli.remote import Remote, connection_to, explain, patiently, remote_options
from otel_bridge.cli.request_file import RequestInFile, read_requests
from otel_bridge.cli.serial_log import DamagedBlock, SerialBlock, read_serial_log
from otel_bridge.client.connection import Connection
from otel_bridge.errors import BridgeRefused
from otel_bridge.v1 import profiling_pb2 as pb

_OF_THE_FILE = ("INVALID_ARGUMENT", "RESOURCE_EXHAUSTED")
"""Codes that say something of one request, not of the bridge."""

Reader = Callable[[BinaryIO], Iterator[SerialBlock | RequestInFile | DamagedBlock]]
"""Takes a stream apart."""

_NOTHING: dict[Reader, str] = {
    read_serial_log: "holds no block; one begins with -----BEGIN OTEL BRIDGE EVENTS-----",
    read_requests: "is empty; let the runtime write requests into it",
}
"""What is said of a stream in which there is nothing."""

Attempt = Callable[[], Parcel]
"""Makes a parcel ready; raises `click.ClickException` where it cannot be sent."""


@click.command()
@click.argument("dumps", metavar="RUN.etdp...", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--uart",
    "logs",
    multiple=True,
    metavar="LOG",
    type=click.Path(path_type=Path, allow_dash=True),
    help="Send what stands in base64 blocks in a serial log; - is standard input, read as it comes.",
)
@click.option(
    "--events",
    "recordings",
    multiple=True,
    metavar="FILE",
    type=click.Path(path_type=Path, allow_dash=True),
    help="Send requests that a runtime wrote into a file, each after its length; - is standard input.",
)
@describe_options
@remote_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a file, and a summary.")
def send(
    *,
    dumps: tuple[Path, ...],
    logs: tuple[Path, ...],
    recordings: tuple[Path, ...],
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
    Send ETDumps to a running bridge.

    The same file sent again shows once: ids and times follow from its content and its modification time. What lies beside
    RUN.etdp as RUN.etdp.json says more of it and wins over the options.

    A file that the bridge refuses costs itself: the others are sent. The exit code is 0 if the bridge took every file, 1 if
    not, 2 if the command is written wrongly; events that the bridge did not take are counted and change nothing.
    """
    said = Described(model, build_id, method, resources, runtime_version, clock)
    if not dumps and not logs and not recordings:
        raise click.UsageError("Missing argument 'RUN.etdp...' (or --uart LOG, or --events FILE)")
    if [*logs, *recordings].count(Path("-")) > 1:
        raise click.UsageError("- is given twice, and there is one standard input")
    if dumps and not said.names_model and not all(has_sidecar(path) for path in dumps):
        raise click.UsageError(NO_MODEL)
    account = Account(as_json)
    files: list[tuple[str, Attempt]] = [(str(path), partial(said.file, path)) for path in dumps]
    waiting = len(files)
    try:
        with connection_to(remote) as connection, _progress(waiting, shown=not as_json) as advance:
            for name, attempt in files:
                deliver(connection, account, name, attempt)
                waiting -= 1
                advance()
            logged = _blocks_in(logs, read_serial_log, said, account)
            for name, attempt in chain(logged, _blocks_in(recordings, read_requests, said, account)):
                waiting = 1
                deliver(connection, account, name, attempt)
                waiting = 0
    finally:
        account.show_summary(waiting)
    if account.refused:
        click.get_current_context().exit(1)


def deliver(
    connection: Connection,
    account: Account,
    name: str,
    attempt: Attempt,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """
    Send a parcel and note what came of it: whether the bridge took it.

    Raises `BridgeUnavailable`, and `BridgeRefused` where the bridge would refuse any parcel.
    """
    try:
        parcel = attempt()
        answer = patiently(partial(post, connection, parcel), sleep)
    except BridgeRefused as error:
        if error.code not in _OF_THE_FILE:
            raise
        account.note_fault(name, f"{name}: {explain(connection.server, error)}")
    except click.ClickException as error:  # it cannot be read
        account.note_fault(name, error.message)
    else:
        account.note_answer(name, answer)
        return True
    return False


def post(connection: Connection, parcel: Parcel) -> pb.UploadETDumpResponse | pb.ExportEventsResponse:
    """The bridge's answer. Raises `BridgeUnavailable`, `BridgeRefused`."""
    if isinstance(parcel.request, pb.UploadETDumpRequest):
        return connection.call(connection.profiling.UploadETDump, parcel.request)
    return connection.call(connection.profiling.ExportEvents, parcel.request)


def _blocks_in(sources: Sequence[Path], read: Reader, said: Described, account: Account) -> Iterator[tuple[str, Attempt]]:
    """What stands in files; what is wrong with some of it is noted on the way."""
    for source in sources:
        shown = str(source)
        try:
            stream = sys.stdin.buffer if shown == "-" else source.open("rb")
        except OSError as error:
            account.note_fault(shown, f"{shown}: cannot be read: {error.strerror}")
            continue
        found = 0
        try:
            with stream:
                for block in read(stream):
                    found += 1
                    if isinstance(block, DamagedBlock):
                        account.note_fault(shown, f"{shown}: {block}")
                    else:
                        yield f"{shown}: {block.place}", partial(said.block, None if shown == "-" else source, block)
        except OSError as error:  # such as the end of a serial port that was pulled out
            account.note_fault(shown, f"{shown}: cannot be read any further: {error.strerror}; {found} came before")
        else:
            if not found:
                account.note_fault(shown, f"{shown}: {_NOTHING[read]}")


@contextmanager
def _progress(files: int, *, shown: bool) -> Iterator[Callable[[], object]]:
    """A bar on a terminal where there are several files; else nothing."""
    screen = Console(stderr=True)
    if not shown or files < 2 or not screen.is_terminal:  # noqa: PLR2004 - several
        yield lambda: None
        return
    columns = (TextColumn("sending"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=screen, transient=True, redirect_stdout=sys.stdout.isatty()) as bar:
        task = bar.add_task("", total=files)
        yield lambda: bar.advance(task)
