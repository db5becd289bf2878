"""
A real `otel-bridge serve`, and the command line that talks to it.

    with OtlpSink() as sink, running(folder, sink, EXPORT__RETRY_INITIAL_S="0.05") as service:
        service.command("mapping", "upload", source, "--model", "net", "--version", "1")
        ...
        service.settle()
        assert len(service.spans("app")) == 12

Invariants
* It listens on ports that the system chose, keeps its data in a folder of the test, and sends to the test's sink.
* It is ended by its own process id.
"""

import contextlib
import os
import re
import signal
import ssl
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import grpc
import httpx
from click.testing import CliRunner
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from prometheus_client.parser import text_string_to_metric_families
from support.otlp_sink import OtlpSink
from support.processes import LOOPBACK, Process

from otel_bridge.cli.main import otel_bridge as commands
from otel_bridge.errors import ConfigError
from otel_bridge.model.destination import DEFAULT
from otel_bridge.spool.inspection import inspect
from otel_bridge.v1.profiling_pb2_grpc import ProfilingServiceStub

PROGRAM = Path(sys.executable).with_name("otel-bridge")
ANY_PORT = f"{LOOPBACK}:0"
EVERYWHERE = "0.0.0.0"  # noqa: S104 - what one test listens on, to show that it may not be reached without a token
PLAIN: dict[str, Any] = {"trust_env": False, "verify": ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)}
"""For httpx, over HTTP without TLS: left to itself it would read all certificates of the system for each request."""
PATIENCE_S = 30.0
"""How long a busy machine may take over an answer."""
_LISTENS = re.compile(r"listens for gRPC on (\S+) and for HTTP on ([^\s\"]+)")


def otel_bridge(*arguments: object, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run a command in a process of its own; `environment` comes on top of the test's."""
    return subprocess.run(
        [PROGRAM, *map(str, arguments)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        errors="backslashreplace",
        timeout=50,
        check=False,
    )


@dataclass(frozen=True)
class Ledger:
    """Where acknowledged events are, in events: `accepted` by this process, `recovered` from those before it."""

    accepted: int
    emitted: int
    dropped: int
    waiting: int
    recovered: int


@dataclass
class WayIn:
    """How the tests get into a bridge with TLS and authentication: whom they trust, and a file with a token for everything."""

    ca: Path
    token: Path

    @property
    def bearer(self) -> str:
        """The token."""
        return self.token.read_text().strip()

    @cached_property
    def context(self) -> ssl.SSLContext:
        """For HTTP."""
        return ssl.create_default_context(cafile=self.ca)

    def channel(self, address: str) -> grpc.Channel:
        """For gRPC."""
        call = grpc.access_token_call_credentials(self.bearer)
        both = grpc.composite_channel_credentials(grpc.ssl_channel_credentials(self.ca.read_bytes()), call)
        return grpc.secure_channel(address, both)


class Service:
    """
    A bridge in a process of its own.

    grpc, http   the addresses on which it listens
    channel      to its gRPC door
    way_in       None: its doors are open
    """

    def __init__(self, process: Process, sink: OtlpSink, way_in: WayIn | None = None) -> None:
        self.process = process
        self.sink = sink
        self.way_in = way_in
        self.grpc = self.http = ""
        self.channel: grpc.Channel

    def start(self) -> None:
        """Start it, again if it has ended, and wait until it is ready."""
        before = self.process.log.stat().st_size if self.process.log.exists() else 0
        self.process.start()
        self.process.wait_until(lambda: self._read_addresses(before) and self.get("/readyz").is_success)
        self.channel = self.way_in.channel(self.grpc) if self.way_in else grpc.insecure_channel(self.grpc)

    def stop(self) -> int:
        """Ask it to stop, and return its exit code once it has ended."""
        self.process.signal(signal.SIGTERM)
        return self.process.wait()

    def command(self, *arguments: object) -> str:
        """What a command prints that talks to this bridge, run in this process; AssertionError if it fails."""
        where = ["--server", self.grpc]
        if self.way_in is not None:
            where += ["--ca", str(self.way_in.ca), "--token-file", str(self.way_in.token)]
        done = CliRunner().invoke(commands, [*map(str, arguments), *where], catch_exceptions=False)
        assert done.exit_code == 0, done.stderr
        return done.stdout

    @property
    def profiling(self) -> ProfilingServiceStub:
        """Its profiling service."""
        return ProfilingServiceStub(self.channel)

    def get(self, path: str) -> httpx.Response:
        """Ask the HTTP door; 503 where nobody answers."""
        try:
            return httpx.get(f"{self._url}{path}", timeout=PATIENCE_S, **self._http_options)
        except httpx.TransportError:
            return httpx.Response(503)

    def post(self, etdump: bytes, **query: str) -> httpx.Response:
        """Upload an ETDump."""
        return httpx.post(f"{self._url}/v1/etdump", params=query, content=etdump, timeout=PATIENCE_S, **self._http_options)

    @property
    def _url(self) -> str:
        return f"{'https' if self.way_in else 'http'}://{self.http}"

    @property
    def _http_options(self) -> dict[str, Any]:
        if self.way_in is None:
            return PLAIN
        headers = {"authorization": f"Bearer {self.way_in.bearer}"}
        return {"trust_env": False, "verify": self.way_in.context, "headers": headers}

    def metrics(self) -> str:
        """What /metrics says; AssertionError where it says nothing: that would look as if all counts were 0."""
        answer = self.get("/metrics")
        assert answer.is_success, f"/metrics answered {answer.status_code}"
        return answer.text

    def counts(self, name: str, destination: str = DEFAULT) -> "Counter[tuple[str, ...]]":
        """
        The values of a metric, by the values of its labels in the order of their names.

        Where it has the label `destination`, of this one only, and without that label.
        """
        return _counts_in(self.metrics(), name, destination)

    def counts_by(self, name: str, label: str) -> "Counter[str]":
        """The values of a metric by one of its labels, whatever the others are."""
        found: Counter[str] = Counter()
        for family in text_string_to_metric_families(self.metrics()):
            for sample in family.samples:
                if sample.name in {f"otel_bridge_{name}", f"otel_bridge_{name}_total"}:
                    found[sample.labels[label]] += int(sample.value)
        return found

    def ledger(self, destination: str = DEFAULT) -> Ledger:
        """The account of all acknowledged events of a destination, from one look at /metrics: between two they move."""
        text = self.metrics()
        names = ("receiver_accepted_events", "emitted_events", "dropped_events", "spool_recovered_events")
        accepted, emitted, dropped, recovered = (sum(_counts_in(text, name, destination).values()) for name in names)
        waiting = sum(sum(_counts_in(text, name, destination).values()) for name in ("spool_size", "parked_events"))
        return Ledger(accepted, emitted, dropped, waiting, recovered)

    def settle(self, destination: str = DEFAULT) -> None:
        """Wait until every acknowledged event has ended, for a destination."""
        self.process.wait_until(lambda: self.ledger(destination).waiting == 0)

    def assert_books_balance(self) -> None:
        """No event is unaccounted for, at any destination, whatever has happened."""
        text = self.metrics()
        found = [float(line.split()[-1]) for line in text.splitlines() if line.startswith("otel_bridge_unaccounted_events{")]
        assert found, "there is no ledger"
        assert set(found) == {0}, text

    def spans(self, app: str) -> list[Span]:
        """The spans that the sink has of one `service.name`."""
        return [
            span
            for request in self.sink.requests
            for resource in request.resource_spans
            if _service_name(resource.resource.attributes) == app
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def _read_addresses(self, since: int) -> bool:
        found = _LISTENS.search(self.process.log.read_bytes()[since:].decode())
        if found:
            self.grpc, self.http = (address.replace(EVERYWHERE, LOOPBACK) for address in found.groups())
        return found is not None


@contextlib.contextmanager
def running(
    folder: Path, sink: OtlpSink, *arguments: object, way_in: WayIn | None = None, **settings: str
) -> Iterator[Service]:
    """
    A bridge that is ready. When it is not needed any more its books are looked at: while it lives, and after its end.

    `settings` are variables: OTEL_EXPORTER_OTLP_*, or those of OTEL_BRIDGE_* without that prefix. The endpoint is that of the
    sink's gRPC, unless a variable gives another. Events without a mapping go on at once, unless a variable lets them wait.
    `way_in` is for one that has TLS and authentication by its settings.
    """
    command: list[Any] = [PROGRAM, "serve", "--grpc", ANY_PORT, "--http", ANY_PORT, "--data-dir", folder / "data", *arguments]
    environment = {name if name.startswith("OTEL_") else f"OTEL_BRIDGE_{name}": value for name, value in settings.items()}
    environment.setdefault("OTEL_EXPORTER_OTLP_ENDPOINT", sink.grpc_endpoint)
    environment.setdefault("OTEL_BRIDGE_PARKING__POLICY", "pass")
    process = Process(command, log=folder / "bridge.log", environment=environment)
    service = Service(process, sink, way_in)
    try:
        service.start()
        yield service
        if process.returncode is None and service.get("/healthz").is_success:
            service.assert_books_balance()
        service.channel.close()
    finally:
        if process.returncode is None:
            process.stop()
    assert_books_kept(folder / "data")


def assert_books_kept(directory: Path) -> None:
    """The books in a spool's file balance, however its bridge ended. Without a spool that can be read there are none."""
    with contextlib.suppress(ConfigError):
        assert {ledger.destination: ledger.unaccounted for ledger in inspect(directory).ledgers if ledger.unaccounted} == {}


def _counts_in(text: str, name: str, destination: str) -> "Counter[tuple[str, ...]]":
    found: Counter[tuple[str, ...]] = Counter()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name in {f"otel_bridge_{name}", f"otel_bridge_{name}_total"}:
                labels = {key: value for key, value in sample.labels.items() if not key.startswith("otel_scope_")}
                if labels.pop("destination", destination) != destination:
                    continue
                found[tuple(labels[key] for key in sorted(labels))] += int(sample.value)
    return found


def _service_name(attributes: Any) -> str:
    return next((attribute.value.string_value for attribute in attributes if attribute.key == "service.name"), "")
