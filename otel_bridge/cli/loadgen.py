"""`otel-bridge loadgen`: load for a bridge, and what it makes of it."""

import json
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import click

from otel_bridge.cli.mapping import load_source
from otel_bridge.cli.remote import Remote, explain, open_connection, remote_options
from otel_bridge.errors import BridgeRefused, BridgeUnavailable
from otel_bridge.export.tls import TlsFiles
from otel_bridge.export.token import open_token
from otel_bridge.load.doors import Door, GrpcDoor, HttpDoor
from otel_bridge.load.events import Program, made_up, patterns, program_of
from otel_bridge.load.fleet import Fleet
from otel_bridge.load.stream import EventStream, StreamDoor
from otel_bridge.load.traffic import PATIENCE_S, Outcome, drive

_DEVICES = 16
_IDENTIFIERS = 50
_MOST_AT_ONCE = 1_024
_MOST_METADATA_BYTES = 4_096
_MOST_BATCH = 65_536
_SHARES = {"p50": 0.5, "p99": 0.99, "max": 1.0}


@click.command()
@click.option("--events", type=click.IntRange(1), required=True, metavar="N", help="Events to send; rounded up to requests.")
@click.option(
    "--batch", type=click.IntRange(1, _MOST_BATCH), default=256, show_default=True, metavar="B", help="Events a request."
)
@click.option(
    "--inflight",
    type=click.IntRange(1, _MOST_AT_ONCE),
    default=8,
    show_default=True,
    metavar="F",
    help="Requests that are under way at once.",
)
@click.option(
    "--connections",
    type=click.IntRange(1, _MOST_AT_ONCE),
    metavar="C",
    help="TCP connections that they share; not with --http, where each has its own.  [default: 1]",
)
@click.option(
    "--devices", type=click.IntRange(1), default=_DEVICES, show_default=True, metavar="D", help="Streams that take turns."
)
@click.option(
    "--identifiers",
    type=click.IntRange(1),
    metavar="I",
    help=f"Distinct delegate identifiers.  [default: all of the mapping, else {_IDENTIFIERS}]",
)
@click.option(
    "--mapping",
    "source",
    type=click.Path(path_type=Path),
    metavar="SOURCE",
    help="Upload this mapping, if it is not there, and send events that it resolves.  [default: events of no known model]",
)
@click.option(
    "--metadata-bytes",
    type=click.IntRange(0, _MOST_METADATA_BYTES),
    default=0,
    show_default=True,
    metavar="K",
    help="Metadata of each delegate event, all different.",
)
@click.option("--rate", type=click.FloatRange(0, min_open=True), metavar="R", help="Events a second, at most.")
@click.option(
    "--patience",
    "patience_s",
    type=click.FloatRange(0),
    default=PATIENCE_S,
    show_default=True,
    metavar="S",
    help="Give up when one request has been refused for so many seconds.",
)
@click.option("--http", is_flag=True, help="Send over HTTP/1.1; --server is then the HTTP address (port 4418).")
@click.option("--stream", is_flag=True, help="Send over streams, one a connection, that --inflight share.")
@remote_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def loadgen(
    *,
    events: int,
    batch: int,
    inflight: int,
    connections: int | None,
    devices: int,
    identifiers: int | None,
    source: Path | None,
    metadata_bytes: int,
    rate: float | None,
    patience_s: float,
    http: bool,
    stream: bool,
    remote: Remote,
    as_json: bool,
) -> None:
    """
    Send made-up events to a running bridge, and print what it made of them.

    SOURCE is whatever `otel-bridge mapping upload` takes, with a debug handle map. Every request is new to the bridge: nothing
    is taken for a second attempt. The back end gets the spans: their service.name is otel-bridge-loadgen.

    The exit code is 0 if every request was accepted, else 1.
    """
    if http and connections is not None:
        raise click.UsageError("--connections is for gRPC; with --http each of --inflight has a connection of its own")
    if http and stream:
        raise click.UsageError("--stream is for gRPC; over HTTP a connection carries one request at a time")
    with _doors(remote, inflight, connections or 1, http=http, stream=stream) as doors:
        try:
            program = _program(source, identifiers, doors[0])
        except (BridgeRefused, BridgeUnavailable) as error:
            raise click.ClickException(explain(remote.server, error)) from error
        fleet = Fleet([(program, patterns(program, batch))], devices=devices, metadata_bytes=metadata_bytes)
        outcome = drive(fleet.body, doors, -(-events // batch), batch, rate=rate, patience_s=patience_s)
    click.echo(json.dumps(as_object(outcome)) if as_json else as_text(outcome))
    if outcome.fault is not None:
        raise click.ClickException(explain(remote.server, outcome.fault))


def _program(source: Path | None, identifiers: int | None, door: Door) -> Program:
    """What the events are of. Raises `BridgeError`, and `click.ClickException` where the mapping cannot be read."""
    if source is None:
        return made_up(identifiers or _IDENTIFIERS)
    file = load_source(source)
    return program_of(file.mapping, door.put_mapping(file), identifiers)


@contextmanager
def _doors(remote: Remote, inflight: int, connections: int, *, http: bool, stream: bool) -> Generator[list[Door], None, None]:
    """A door for each request that may be under way. Raises `ConfigError`."""
    with ExitStack() as stack:
        doors: list[Door] = []
        if http:
            token = open_token(remote.token) if remote.token is not None else None
            files = TlsFiles(remote.ca, remote.cert, remote.key)
            doors += [HttpDoor(remote.server, files, token, plain_token=remote.plain_token) for _ in range(inflight)]
        else:
            opened = [stack.enter_context(open_connection(remote, alone=True)) for _ in range(min(connections, inflight))]
            streams = [EventStream(each) for each in opened]
            for number in range(inflight):
                place = number % len(opened)
                doors.append(StreamDoor(opened[place], streams[place]) if stream else GrpcDoor(opened[place]))
        for door in doors:
            stack.callback(door.close)
        yield doors


def as_object(outcome: Outcome) -> dict[str, Any]:
    """The outcome as JSON has it; times in the units that the names say, null where there is nothing to tell."""
    return {
        "events": outcome.events,
        "accepted": outcome.accepted,
        "rejected": dict(sorted(outcome.rejected.items())),
        "unsent": outcome.unsent,
        "requests": outcome.requests,
        "refusals": dict(sorted(outcome.refusals.items())),
        "retries": outcome.retries,
        "seconds": round(outcome.seconds, 3),
        "events_per_s": round(outcome.accepted / outcome.seconds),
        "latency_ms": {name: outcome.latency_ms(share) for name, share in _SHARES.items()},
        "cpu_s": round(outcome.cpu_s, 3),
    }


def as_text(outcome: Outcome) -> str:
    """The same in lines."""
    shown = as_object(outcome)
    latency = ", ".join(f"{name} {value:.2f}" for name, value in shown["latency_ms"].items() if value is not None)
    lines = [
        f"{outcome.accepted} of {outcome.events} events accepted, in {outcome.requests} requests",
        f"rejected    {_listed(outcome.rejected)}",
        f"refused     {_listed(outcome.refusals)}; {outcome.retries} retries",
        f"rate        {shown['events_per_s']:,} events/s, over {outcome.seconds:.2f} s",
        f"latency     {latency or 'none'} ms a request",
        f"own CPU     {outcome.cpu_s:.2f} s",
    ]
    return "\n".join(lines if not outcome.unsent else [*lines, f"unsent      {outcome.unsent}"])


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {reason}" for reason, number in sorted(counts.items())) or "none"
