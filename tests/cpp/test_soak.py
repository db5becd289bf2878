"""A million events of devices whose bridge is stopped and started under them."""

import contextlib
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.otlp_sink import OtlpSink
from support.processes import LOOPBACK, free_port
from support.service import running

from otel_bridge.etdump.read import read
from otel_bridge.model.events import BlockKind
from otel_bridge.model.stream import Stream

PATIENT, HURRIED = 90_000, 10_000
"""Executions of a device that waits while its ring is half full, and of one that goes on and loses events."""
RESTARTS = 5
BETWEEN = 50_000
"""Events that each life of the bridge accepts before it is stopped."""


def events_of(etdump: bytes, kind: BlockKind) -> int:
    """Events of the first block of a kind."""
    batch = read(etdump, Stream(stream_id=b"\x01" * 16)).batch
    block = next(index for index, block in enumerate(batch.blocks) if block.kind is kind)
    return int(batch.bounds[block + 1] - batch.bounds[block])


@dataclass
class Device:
    """A device that runs, and how many events it will produce."""

    process: "subprocess.Popen[str]"
    produced: int

    def counts(self) -> dict[str, Any]:
        """What it says at its end."""
        said, _ = self.process.communicate(timeout=300)
        assert self.process.returncode == 0
        found: dict[str, Any] = json.loads(said.splitlines()[-1])
        assert found["flushed"]
        return found


@contextlib.contextmanager
def device(example: Path, model: Path, server: str, executions: int, *options: object) -> Iterator[Device]:
    """A device whose events are those of the model's capture, again and again."""
    dump = (model / "run.etdp").read_bytes()
    produced = events_of(dump, BlockKind.LOAD) + executions * events_of(dump, BlockKind.EXECUTE)
    named = ["--model", "net", "--version", "1", "--executions", executions, "--max-backoff-ms", 500, "--flush-ms", 120_000]
    command = [*map(str, [example, model / "model.pte", "--server", server, *named, *options])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            yield Device(process, produced)
        finally:
            process.kill()


@pytest.mark.timeout(600)
def test_a_million_events_and_five_restarts(example: Path, fixtures: Path, tmp_path: Path) -> None:
    """Distinct spans that arrive, events that were refused, and events told of as dropped are all that was produced."""
    model = fixtures / "xnnpack"
    with OtlpSink() as sink, running(tmp_path, sink, "--grpc", f"{LOOPBACK}:{free_port()}") as service:
        service.command("mapping", "upload", model / "model.etrecord", "--model", "net", "--version", "1")
        with (
            device(example, model, service.grpc, PATIENT, "--ring", 1 << 16, "--patient", 1) as patient,
            device(example, model, service.grpc, HURRIED, "--ring", 1 << 10) as hurried,
        ):
            for _ in range(RESTARTS):
                service.process.wait_until(lambda: service.ledger().accepted >= BETWEEN, patience_s=90.0)
                assert patient.process.poll() is None, "the device had ended before the bridge was stopped"
                assert service.stop() == 0
                service.start()
            counts = [patient.counts(), hurried.counts()]
        service.settle()
        assert service.stop() == 0
    spans = {
        (span.trace_id, span.span_id)
        for one in sink.received
        for resource in one.request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    }
    rejected = sum(each["rejected"] for each in counts)
    dropped = [sum(each["dropped"].values()) for each in counts]
    assert patient.produced + hurried.produced >= 10**6
    assert len(spans) + rejected + sum(dropped) == patient.produced + hurried.produced
    assert dropped[1]
