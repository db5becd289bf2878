"""
A running `otel-bridge serve`, and the three doors by which a capture gets into it.

Invariant: whichever the door, ticks are anchored alike (`TICK_ZERO_NS`), so a span is found by the time of its event.
"""

import contextlib
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import grpc
import httpx
from click.testing import CliRunner
from support.captures import FIXTURES, Capture
from support.jaeger import Jaeger
from support.processes import LOOPBACK, Process, free_ports
from support.spans import TICK_ZERO_NS

from otel_bridge.cli.main import otel_bridge
from otel_bridge.etdump.read import read
from otel_bridge.model.events import Block, BlockKind, TraceContext
from otel_bridge.model.stream import Anchor, Clock, ModelRef, Stream
from otel_bridge.v1.profiling_pb2_grpc import ProfilingServiceStub
from otel_bridge.wire.codec import request_of

EXAMPLE = Path(__file__).parents[2] / "deploy" / "bridge.example.toml"
VERSION = "1"
"""Of every model of the fixtures, as it is uploaded and sent."""
HARDWARE = "Phone A"


@dataclass(frozen=True)
class Bridge:
    """A running bridge, with the addresses of its doors."""

    process: Process
    grpc: str
    http: str

    @property
    def is_ready(self) -> bool:
        """Whether it takes requests."""
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(f"http://{self.http}/readyz", timeout=30, trust_env=False).is_success
        return False

    @property
    def emitted_events(self) -> int:
        """Events whose spans the back end took."""
        return self._count("emitted_events")

    def settle(self) -> None:
        """Wait until the spans of every acknowledged event have left; ProcessFailed where one was given up."""
        self.process.wait_until(lambda: self.emitted_events == self._count("receiver_accepted_events"))

    def _count(self, counter: str) -> int:
        exposition = httpx.get(f"http://{self.http}/metrics", timeout=30, trust_env=False).text
        found = re.search(rf"^otel_bridge_{counter}_total(?:{{.*}})? (\S+)$", exposition, re.MULTILINE)
        return int(float(found[1])) if found else 0


@contextlib.contextmanager
def running_bridge(jaeger: Jaeger, folder: Path) -> Iterator[Bridge]:
    """A bridge that starts from the example of a configuration, knows all models of the fixtures, and sends to Jaeger."""
    grpc_port, http_port = free_ports(2)
    addresses = (f"{LOOPBACK}:{grpc_port}", f"{LOOPBACK}:{http_port}")
    command: list[str | Path] = [
        sys.executable, "-m", "otel_bridge.cli.main", "serve", "--config", EXAMPLE,
        "--grpc", addresses[0], "--http", addresses[1], "--otlp-endpoint", jaeger.otlp_grpc, "--data-dir", folder / "data",
    ]  # fmt: skip
    with Process(command, log=folder / "bridge.log") as process:
        bridge = Bridge(process, *addresses)
        process.wait_until(lambda: bridge.is_ready)
        for path in sorted(FIXTURES.glob("*/model.etrecord")):
            run("mapping", "upload", path, "--model", path.parent.name, "--version", VERSION, "--server", bridge.grpc)
        yield bridge


def run(*arguments: object) -> str:
    """What the command line prints; raises whatever ends it."""
    done = CliRunner().invoke(otel_bridge, list(map(str, arguments)), catch_exceptions=False, standalone_mode=False)
    return done.stdout


def send_file(bridge: Bridge, capture: Capture, service: str) -> None:
    """By `otel-bridge send`."""
    run(
        "send", capture.path, "--model", f"{capture.model}@{VERSION}", "--anchor", "0=2026-01-01T00:00:00Z",
        "--resource", f"service.name={service}", "--resource", f"device.model.identifier={HARDWARE}", "--server", bridge.grpc,
    )  # fmt: skip


def post_file(bridge: Bridge, capture: Capture, service: str) -> None:
    """By HTTP."""
    device = {"resource.service.name": service, "resource.device.model.identifier": HARDWARE}
    post(bridge, capture.dump, model=f"{capture.model}@{VERSION}", anchor=f"0={TICK_ZERO_NS}", **device)


def post(bridge: Bridge, dump: bytes, **query: str) -> None:
    """Any dump by HTTP."""
    httpx.post(f"http://{bridge.http}/v1/etdump", params=query, content=dump, timeout=30, trust_env=False).raise_for_status()


def export_events(
    bridge: Bridge, capture: Capture, service: str, *, context: TraceContext | None = None, error: int | None = None
) -> None:
    """By `ExportEvents`; `context` and `error` are what the sender says of each inference."""

    def told(block: Block) -> Block:
        return replace(block, context=context, error=error) if block.kind is BlockKind.EXECUTE else block

    stream = Stream(
        stream_id=service.encode().ljust(16, b".")[-16:],
        model=ModelRef(capture.model, VERSION),
        resource=(("service.name", service), ("device.model.identifier", HARDWARE)),
        clocks=(Clock(anchor=Anchor(0, TICK_ZERO_NS)),),
    )
    batch = read(capture.dump, stream).batch
    request = request_of(replace(batch, blocks=tuple(told(block) for block in batch.blocks)))
    with grpc.insecure_channel(bridge.grpc) as channel:
        ProfilingServiceStub(channel).ExportEvents(request, timeout=30)
