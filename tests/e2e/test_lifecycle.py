"""Start, stop, and what happens when the back end is away or the spool is full: nothing acknowledged is lost in silence."""

import os
import re
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import grpc
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from grpc_status import rpc_status
from support.etdump_writer import ProfileEvent, RunData, write_etdump
from support.otlp_answers import TAKE, Answer
from support.otlp_sink import OtlpSink
from support.processes import LOOPBACK, free_port
from support.requests import an_inference
from support.service import ANY_PORT, Service, otel_bridge, running

EXAMPLE = Path(__file__).parents[2] / "deploy" / "bridge.example.toml"
SOON = {"EXPORT__RETRY_INITIAL_S": "0.05", "EXPORT__RETRY_MAX_S": "0.1"}
AWAY = Answer.grpc_failure(grpc.StatusCode.UNAVAILABLE, "away")
MIB = 1 << 20


@pytest.fixture
def sink() -> Iterator[OtlpSink]:
    """A back end of its own for each test: it is switched off and on."""
    with OtlpSink() as sink:
        yield sink


def policies_of(pid: int) -> set[int]:
    """How the kernel schedules the threads of a process."""
    found = set()
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(ProcessLookupError):  # it has ended since
            found.add(os.sched_getscheduler(int(thread.name)))
    return found


def assert_once(service: Service, inferences: int) -> None:
    """Both spans of so many inferences have arrived, each once, and nothing else."""
    spans = service.spans("app")
    assert len(spans) == len({(span.trace_id, span.span_id) for span in spans}) == 2 * inferences
    assert len({span.trace_id for span in spans}) == inferences


def test_threads_of_grpc_do_not_stop_the_loop(sink: OtlpSink, tmp_path: Path) -> None:
    """Once the bridge is ready they run under SCHED_BATCH, whose waking stops nobody, and the event loop as usual."""
    with running(tmp_path, sink) as service:
        pid = service.process.pid
        service.process.wait_until(lambda: os.SCHED_BATCH in policies_of(pid))
        assert os.sched_getscheduler(pid) == os.SCHED_OTHER


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_drains(number: signal.Signals, sink: OtlpSink, tmp_path: Path) -> None:
    """Told to stop, the bridge sends what it has accepted, to the last event, before it ends with 0."""
    held = threading.Event()
    sink.judge = lambda _payload: TAKE if held.wait(20) else AWAY
    with running(tmp_path, sink) as service:
        for sequence in range(20):
            assert service.profiling.ExportEvents(an_inference(sequence)).accepted == 2
        assert service.spans("app") == []
        service.process.signal(number)
        held.set()
        assert service.process.wait() == 0
        assert_once(service, 20)
        with pytest.raises(grpc.RpcError, match="UNAVAILABLE"):
            service.profiling.ExportEvents(an_inference(21))
    assert "Traceback" not in service.process.log.read_text()


def test_a_stop_turns_balancers_away_first(sink: OtlpSink, tmp_path: Path) -> None:
    """Told to stop, the bridge is not ready at once, and goes on taking requests for as long as the settings say."""
    with running(tmp_path, sink, SERVER__TURN_AWAY_S="5") as service:
        service.process.signal(signal.SIGTERM)
        service.process.wait_until(lambda: not service.get("/readyz").is_success)
        assert service.get("/healthz").is_success
        assert service.profiling.ExportEvents(an_inference(0)).accepted == 2
        assert service.process.wait() == 0
        assert_once(service, 1)


def test_a_stop_waits_for_nobody_for_ever(sink: OtlpSink, tmp_path: Path) -> None:
    """Neither an upload that never ends nor a back end that is away keeps it from stopping; what memory alone held is told."""
    with running(tmp_path, sink, SERVER__DRAIN_S="0.5", SPOOL__DURABILITY="memory", **SOON) as service:
        sink.answer = AWAY
        for sequence in range(3):
            service.profiling.ExportEvents(an_inference(sequence))
        host, _, port = service.http.rpartition(":")
        with socket.create_connection((host, int(port))) as half, socket.create_connection((host, int(port))):
            half.sendall(b"POST /v1/etdump HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\nsome")
            assert service.get("/healthz").is_success
            assert service.stop() == 0
            assert half.recv(1000).startswith(b"HTTP/1.1 503 ")
    log = service.process.log.read_text()
    assert "Traceback" not in log
    lost = re.findall(r"(\d+) events (?:were on their way|did not leave)", log)
    assert sum(map(int, lost)) == 6


def test_a_back_end_that_comes_back(sink: OtlpSink, tmp_path: Path) -> None:
    """While the back end is away, by its answer or altogether, events wait; when it is back all of them arrive once."""
    with running(tmp_path, sink, **SOON) as service:
        sink.answer = AWAY
        service.profiling.ExportEvents(an_inference(0))
        sink.wait_for_requests(2)
        sink.go_away()
        for sequence in range(1, 10):
            assert service.profiling.ExportEvents(an_inference(sequence)).accepted == 2
        ledger = service.ledger()
        assert (ledger.accepted, ledger.emitted, ledger.dropped, ledger.waiting) == (20, 0, 0, 20)
        sink.answer = Answer()
        sink.come_back()
        service.settle()
        assert_once(service, 10)
        ledger = service.ledger()
        assert (ledger.accepted, ledger.emitted, ledger.dropped) == (20, 20, 0)
        assert sum(service.counts("exporter_failed_requests").values()) >= 2


def test_a_back_end_that_refuses(sink: OtlpSink, tmp_path: Path) -> None:
    """What the back end refuses for good is dropped and counted with the reason; what comes after it is emitted."""
    with running(tmp_path, sink) as service:
        sink.answers += [Answer.grpc_failure(grpc.StatusCode.PERMISSION_DENIED, "not today")]
        service.profiling.ExportEvents(an_inference(0))
        service.settle()
        service.profiling.ExportEvents(an_inference(1))
        service.settle()
        assert_once(service, 1)
        ledger = service.ledger()
        assert (ledger.accepted, ledger.emitted, ledger.dropped, ledger.waiting) == (4, 2, 2, 0)
        assert service.counts("dropped_events") == {("export_rejected",): 2}
        assert service.counts("receiver_requests") == {("ok", "grpc"): 2}


def test_a_full_spool(sink: OtlpSink, tmp_path: Path) -> None:
    """When the spool is full both doors say when to come back, health stays, and then every accepted event arrives once."""
    with running(tmp_path, sink, SPOOL__MAX_BYTES=str(MIB), SERVER__MAX_REQUEST_BYTES=str(MIB), **SOON) as service:
        sink.answer = AWAY
        requests = [an_inference(sequence, metadata_bytes=200_000) for sequence in range(10)]
        calls = [service.profiling.ExportEvents.future(request) for request in requests]
        refused = [error for error in (call.exception() for call in calls) if error is not None]
        accepted = len(calls) - len(refused)
        assert 4 <= accepted <= 6
        assert {error.code() for error in refused} == {grpc.StatusCode.UNAVAILABLE}
        assert "spool.max_bytes" in (refused[0].details() or "")
        status = rpc_status.from_call(refused[0])
        assert status is not None
        waits = [info.retry_delay for info in map(retry_info, status.details) if info]
        assert [wait.seconds for wait in waits] == [1]

        dump = write_etdump([RunData("Execute", [ProfileEvent(id_int=1, chain=0, instruction=0, metadata=bytes(300_000))])])
        response = service.post(dump, **{"resource.service.name": "http"})
        assert (response.status_code, response.headers["retry-after"]) == (503, "2")
        assert response.json()["reason"] == "spool_full"
        assert service.get("/healthz").is_success
        assert service.ledger().waiting == 2 * accepted

        sink.answer = Answer()
        service.settle()
        service.profiling.ExportEvents(an_inference(10, metadata_bytes=200_000))
        assert service.post(dump, **{"resource.service.name": "http"}).status_code == 200
        service.settle()
        assert_once(service, accepted + 1)
        assert service.counts("receiver_requests") == {
            ("ok", "grpc"): accepted + 1, ("spool_full", "grpc"): len(refused), ("ok", "http"): 1, ("spool_full", "http"): 1
        }  # fmt: skip


def retry_info(packed: object) -> RetryInfo | None:
    """The RetryInfo in an Any, if it is one."""
    info = RetryInfo()
    return info if packed.Unpack(info) else None  # type: ignore[attr-defined]  # an Any of protobuf


def test_mappings_survive_a_restart(sink: OtlpSink, tmp_path: Path, fixtures: Path) -> None:
    """A bridge that is started again in its data directory has its mappings and aliases, and resolves by them."""
    capture = fixtures / "toy_backend_int"
    with running(tmp_path, sink) as service:
        service.command("mapping", "upload", capture / "model.etrecord", "--model", "toy", "--version", "1", "--build-id", "b1")
        before = service.command("mapping", "list", "--json")
        assert service.stop() == 0
        service.start()
        assert service.command("mapping", "list", "--json") == before
        service.post((capture / "run.etdp").read_bytes(), model="toy@1", **{"resource.service.name": "restarted"})
        service.settle()
        assert service.counts("resolution_events")["ToyProfBackend", "exact"] > 0


def test_a_kill_leaves_the_registry_whole(sink: OtlpSink, tmp_path: Path, fixtures: Path) -> None:
    """A mapping that was acknowledged is there after a power cut."""
    with running(tmp_path, sink) as service:
        service.command("mapping", "upload", fixtures / "multi_method" / "maps.json", "--build-id", "kept")
        service.process.kill()
        service.start()
        assert service.command("mapping", "show", "kept").startswith("build kept, mapping sha256:")


def test_the_example_of_a_configuration_works(sink: OtlpSink, tmp_path: Path) -> None:
    """deploy/bridge.example.toml starts a bridge; the command line is stronger than the file."""
    with running(tmp_path, sink, "--config", EXAMPLE) as service:
        service.profiling.ExportEvents(an_inference(0))
        service.settle()
        assert_once(service, 1)
        assert not service.grpc.endswith(":4417")


def test_the_standard_variables_lead_to_the_back_end(sink: OtlpSink, tmp_path: Path) -> None:
    """OTEL_EXPORTER_OTLP_* choose protocol, endpoint, headers and compression of egress, as the OTLP specification says."""
    base = sink.http_endpoint.removesuffix("/v1/traces")
    variables = {
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_EXPORTER_OTLP_ENDPOINT": base,
        "OTEL_EXPORTER_OTLP_HEADERS": "x-key=a%20secret",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
    }
    with running(tmp_path, sink, **variables) as service:
        service.profiling.ExportEvents(an_inference(0))
        service.settle()
        assert_once(service, 1)
    (received,) = sink.received
    assert (received.transport, received.path) == ("http", "/v1/traces")
    assert (received.headers["x-key"], received.headers["content-encoding"]) == ("a secret", "gzip")
    assert "secret" not in service.process.log.read_text()


def test_a_bridge_that_cannot_start(tmp_path: Path) -> None:
    """What keeps a bridge from starting is one line in the words of the settings, exit code 1, and nothing is left running."""
    (tmp_path / "file").write_text("")
    (tmp_path / "bad.toml").write_text("[server]\ndrain_s = -1\n")
    (tmp_path / "broken.toml").write_text("[server\n")
    with socket.create_server((LOOPBACK, 0)) as listener:
        taken = f"{LOOPBACK}:{listener.getsockname()[1]}"
        cases: list[tuple[tuple[object, ...], str]] = [
            (("--grpc", taken), rf"server\.grpc_address \({taken}\) cannot be listened on: "),
            (("--http", taken), rf"server\.http_address \({taken}\) cannot be listened on: "),
            (("--data-dir", tmp_path / "file"), r"server\.data_dir \(.*/file\) cannot be used: File exists; name a directory"),
            (("--config", tmp_path / "bad.toml"), r"server\.drain_s \(-1\) must be at least 0"),
            (("--config", tmp_path / "broken.toml"), r"broken\.toml is not TOML: "),
            (("--config", tmp_path / "none.toml"), r"none\.toml cannot be read: No such file"),
            (("--otlp-endpoint", "nowhere"), r"export\.endpoint \('nowhere'\) must be HOST:PORT"),
        ]
        for arguments, told in cases:
            started = otel_bridge(
                "serve", "--grpc", ANY_PORT, "--http", ANY_PORT, "--data-dir", ":memory:", *arguments,
                OTEL_BRIDGE_EXPORT__PROTOCOL="grpc",
            )  # fmt: skip
            assert (started.returncode, started.stdout) == (1, ""), arguments
            (line,) = started.stderr.splitlines()
            assert re.match(f"Error: .*{told}", line), line


def test_an_address_that_is_given_is_used(sink: OtlpSink, tmp_path: Path) -> None:
    """The bridge listens where it is told, and says so."""
    port = free_port()
    with running(tmp_path, sink, "--grpc", f"{LOOPBACK}:{port}") as service:
        assert service.grpc == f"{LOOPBACK}:{port}"
