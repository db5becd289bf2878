"""A bridge's data directory seen, copied and put back by commands: beside the process, and without it."""

import json
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from support.mappings import mapping_of
from support.otlp_sink import OtlpSink
from support.registries import file_of
from support.service import Service, running

from otel_bridge.cli.main import otel_bridge as commands
from otel_bridge.errors import ConfigError
from otel_bridge.mapping.sqlite import open_registry
from otel_bridge.v1 import mapping_pb2 as pb
from otel_bridge.v1.mapping_pb2_grpc import MappingServiceStub

PUT_TIMEOUT_S = 20


@pytest.fixture
def sink() -> Iterator[OtlpSink]:
    """A back end of its own for each test: it is switched off and on."""
    with OtlpSink() as sink:
        yield sink


def done(*arguments: object) -> str:
    """What a command prints; its errors are raised."""
    return CliRunner().invoke(commands, [*map(str, arguments)], catch_exceptions=False, standalone_mode=False).stdout


@dataclass
class Uploads:
    """Builds u0, u1, ..., uploaded one after another; `begun` and `acknowledged` count them."""

    begun: int = 0
    acknowledged: int = 0
    grew: threading.Condition = field(default_factory=threading.Condition)

    def wait_for(self, count: int) -> None:
        """Wait until so many are acknowledged."""
        with self.grew:
            assert self.grew.wait_for(lambda: self.acknowledged >= count, PUT_TIMEOUT_S)


@contextmanager
def uploading(service: Service) -> Iterator[Uploads]:
    """Upload one mapping after another meanwhile."""
    uploads, stop = Uploads(), threading.Event()
    stub = MappingServiceStub(service.channel)

    def upload() -> None:
        while not stop.is_set():
            number = uploads.begun
            uploads.begun += 1
            file = file_of(mapping_of({"x": [number + 1]}), build_id=f"u{number}", name="net", version=str(number))
            stub.PutMapping(pb.PutMappingRequest(file=file), timeout=PUT_TIMEOUT_S)
            with uploads.grew:
                uploads.acknowledged += 1
                uploads.grew.notify_all()

    thread = threading.Thread(target=upload)
    thread.start()
    try:
        yield uploads
    finally:
        stop.set()
        thread.join()


def builds_in(folder: Path) -> dict[str, list[str]]:
    """The builds of a registry, with their aliases."""
    registry = open_registry(folder)
    try:
        return {info.build_id: list(info.aliases) for info in registry.page("", "", 100_000)}
    finally:
        registry.close()


def test_a_backup_under_uploads_is_one_moment(sink: OtlpSink, tmp_path: Path) -> None:
    """Whatever is uploaded meanwhile: all that was acknowledged before a backup began is in it, and nothing half."""
    with running(tmp_path, sink) as service, uploading(service) as uploads:
        for number in range(5):
            uploads.wait_for(20 * (number + 1))
            before = uploads.acknowledged
            done("registry", "backup", tmp_path / f"copy{number}", "--data-dir", tmp_path / "data")
            after = uploads.begun
            said = done("registry", "restore", tmp_path / f"copy{number}", "--data-dir", tmp_path / f"new{number}")
            found = builds_in(tmp_path / f"new{number}")
            assert before <= len(found) <= after
            assert found == {f"u{each}": [f"net@{each}"] for each in range(len(found))}
            assert said.endswith(f": {len(found)} builds, {len(found)} aliases, {len(found)} mappings\n")


def test_a_restored_registry_resolves_as_before(sink: OtlpSink, tmp_path: Path, fixtures: Path) -> None:
    """A bridge that begins with nothing but a backup makes the same of the same file, under the same build and alias."""
    capture = fixtures / "toy_backend_int"
    dump = (capture / "run.etdp").read_bytes()
    with running(tmp_path, sink) as service:
        service.command("mapping", "upload", capture / "model.etrecord", "--model", "toy", "--version", "1")
        listed = service.command("mapping", "list", "--json")
        service.post(dump, model="toy@1", **{"resource.service.name": "before"})
        service.settle()
        done("registry", "backup", tmp_path / "copy", "--data-dir", tmp_path / "data")
        with pytest.raises(ConfigError, match=f"is in use by process {service.process.pid}"):
            done("registry", "restore", tmp_path / "copy", "--data-dir", tmp_path / "data", "--replace")
        before = told(service.spans("before"))
    other = tmp_path / "other"
    other.mkdir()
    done("registry", "restore", tmp_path / "copy", "--data-dir", other / "data")
    with running(other, sink) as service:
        assert service.command("mapping", "list", "--json") == listed
        service.post(dump, model="toy@1", **{"resource.service.name": "after"})
        service.settle()
        assert told(service.spans("after")) == before
        assert service.counts("resolution_events")["ToyProfBackend", "exact"] > 0


def told(spans: list[Span]) -> Counter[tuple[str, bytes]]:
    """What spans say, but for when and under which ids."""
    return Counter((span.name, b"".join(sorted(each.SerializeToString() for each in span.attributes))) for span in spans)


def inspected(folder: Path) -> Any:
    """What `spool inspect` says of a data directory."""
    return json.loads(done("spool", "inspect", "--data-dir", folder, "--json"))


def test_a_spool_is_looked_into(sink: OtlpSink, tmp_path: Path, fixtures: Path) -> None:
    """Beside the process `spool inspect` says what /metrics does; the process goes on; what is over stays in the books."""
    dump = (fixtures / "toy_backend_int" / "run.etdp").read_bytes()
    with running(tmp_path, sink, PARKING__POLICY="park") as service:
        accepted = service.post(dump).json()["accepted"]
        service.process.wait_until(lambda: service.ledger().emitted == accepted)
        service.post(dump, model="toy@1", **{"resource.service.name": "waits"})
        service.process.wait_until(lambda: service.counts("parked_events").total() == accepted)
        # What /metrics says at once, the file says with its next commit.
        service.process.wait_until(lambda: inspected(tmp_path / "data")["ledgers"][0]["parked"] == accepted)
        found = inspected(tmp_path / "data")
        (parked,) = found["parked"]
        assert (parked["awaited"], parked["tenant"], parked["amount"]["events"]) == ("toy@1", "", accepted)
        (ledger,) = found["ledgers"]
        assert (ledger["accepted"], ledger["emitted"], ledger["parked"]) == (2 * accepted, accepted, accepted)
        assert (ledger["waiting"], ledger["unaccounted"], ledger["dropped"]) == (0, 0, {})

        text = done("spool", "inspect", "--data-dir", tmp_path / "data")
        assert "0 events in 0 records wait for their turn\n" in text
        assert [line.split()[:7] for line in text.splitlines() if line.lstrip().startswith("default")] == [
            ["default", str(2 * accepted), str(accepted), "0", "0", str(accepted), "0"]
        ]
        assert [line.split()[0] for line in text.splitlines() if "toy@1" in line] == ["toy@1"]

        service.command(
            "mapping", "upload", fixtures / "toy_backend_int" / "model.etrecord", "--model", "toy", "--version", "1"
        )
        service.process.wait_until(lambda: service.ledger().emitted == 2 * accepted)
        assert service.stop() == 0
    (ledger,) = inspected(tmp_path / "data")["ledgers"]
    assert (ledger["emitted"], ledger["parked"], ledger["unaccounted"]) == (2 * accepted, 0, 0)


def test_books_that_do_not_balance_fail_the_command(sink: OtlpSink, tmp_path: Path, fixtures: Path) -> None:
    """Events of which nothing is known are told, and the exit code is 1, so that a cron job sees it."""
    with running(tmp_path, sink) as service:
        service.post((fixtures / "toy_backend_int" / "run.etdp").read_bytes())
        service.settle()
        assert service.stop() == 0
    with closing(sqlite3.connect(tmp_path / "data" / "spool.db", isolation_level=None)) as connection:
        connection.execute("UPDATE books SET emitted = emitted - 1").close()
    with pytest.raises(click.ClickException, match="unaccounted"):
        done("spool", "inspect", "--data-dir", tmp_path / "data")
