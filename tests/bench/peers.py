"""
Programs to compare with: the OpenTelemetry Collector and rotel, which take OTLP in and give OTLP out, an app with the SDK, and
one that only moves bytes.

Each is got once into `.engines` (see support/engines.py); none is needed for the tests. `make bench` says which are not there.
"""

import fcntl
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from programs import Program
from support.engines import BUILT, EngineMissing, _built, _place

COLLECTOR_VERSION = "0.161.0"
"""The newest release whose OTTL modules all come from the Go module proxy."""
ROTEL_VERSION = "0.0.1a15"


@cache
def collector() -> Path:
    """The Collector's program with OTLP, OTTL and file_storage, built if it has to be: minutes, once. EngineMissing."""
    return _built(".", "otelcol", collector_program())


def collector_program() -> Path:
    """Where the Collector lies once it is built."""
    return _place("otelcol", "go.mod", "go.sum", "main.go")


@cache
def rotel() -> Path:
    """The program in rotel's wheel. EngineMissing where there is no wheel for this machine."""
    program = rotel_program()
    BUILT.mkdir(exist_ok=True)
    with (BUILT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            _unpack_rotel(program)
    return program


def rotel_program() -> Path:
    """Where rotel lies once it is unpacked."""
    return BUILT / f"rotel-{ROTEL_VERSION}"


def _unpack_rotel(program: Path) -> None:
    with tempfile.TemporaryDirectory(dir=BUILT) as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        command += ["--only-binary=:all:", "--dest", folder, f"rotel=={ROTEL_VERSION}"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            last = (done.stderr.strip() or "no word why").splitlines()[-1]
            raise EngineMissing(f"`pip download rotel=={ROTEL_VERSION}` failed: {last}")
        with zipfile.ZipFile(next(Path(folder).glob("*.whl"))) as wheel:
            part = Path(wheel.extract("rotel/rotel-agent", folder))
        part.chmod(0o755)
        part.replace(program)


_COLLECTOR = """
receivers:
  otlp:
    protocols:
      grpc:
        endpoint: 127.0.0.1:{port}
        max_recv_msg_size_mib: 64
exporters:
  otlp_grpc:
    endpoint: {sink}
    compression: none
    tls:
      insecure: true
    sending_queue:{queue}{extensions}{processors}
service:{enabled}
  pipelines:
    traces:
      receivers: [otlp]
      processors: [{processing}]
      exporters: [otlp_grpc]
  telemetry:
    metrics:
      level: none
    logs:
      level: warn
"""
_STORAGE = """
extensions:
  file_storage:
    directory: {folder}
    fsync: true
"""
_LOOKUP = """
processors:
  transform:
    error_mode: propagate
    trace_statements:
      - statements:
"""


def collector_direct(folder: Path, sink: str, port: int) -> Program:
    """OTLP to OTLP without a queue: an answer means that the next hop has it."""
    return _collector(folder, sink, port)


def collector_on_disk(folder: Path, sink: str, port: int) -> Program:
    """The queue of the exporter on file_storage, with fsync: an answer means that the disk has it."""
    queue = "\n      storage: file_storage\n      queue_size: 100000"
    return _collector(folder, sink, port, queue=queue, extensions=_STORAGE.format(folder=folder))


def collector_with_lookup(folder: Path, sink: str, port: int, identifiers: Sequence[int]) -> Program:
    """Without a queue; each span is given the operator of its delegate debug identifier, by one OTTL statement for each."""
    statements = "".join(
        f'          - set(span.attributes["op"], "aten.op{number}") '
        f'where span.attributes["executorch.delegate.debug_id"] == "{number}"\n'
        for number in identifiers
    )
    return _collector(folder, sink, port, processors=_LOOKUP + statements)


def _collector(
    folder: Path, sink: str, port: int, *, queue: str = "\n      enabled: false", extensions: str = "", processors: str = ""
) -> Program:
    folder.mkdir()
    configuration = folder / "collector.yaml"
    configuration.write_text(
        _COLLECTOR.format(
            port=port,
            sink=sink,
            queue=queue,
            extensions=extensions,
            processors=processors,
            enabled="\n  extensions: [file_storage]" if extensions else "",
            processing="transform" if processors else "",
        )
    )
    command = [collector(), f"--config=file:{configuration}"]
    return Program(f"Collector {COLLECTOR_VERSION}", command, port, folder / "log")


def rotel_agent(folder: Path, sink: str, port: int, http_port: int) -> Program:
    """As it comes: it batches, and its exporter compresses by gzip whatever is asked."""
    folder.mkdir()
    command = [
        rotel(), "start", "--otlp-grpc-endpoint", f"127.0.0.1:{port}", "--otlp-http-endpoint", f"127.0.0.1:{http_port}",
        "--otlp-grpc-max-recv-msg-size-mib", "64", "--exporter", "otlp", "--otlp-exporter-endpoint", f"http://{sink}",
        "--otlp-exporter-protocol", "grpc", "--pid-file", folder / "pid", "--log-file", folder / "rotel.log",
    ]  # fmt: skip
    return Program(f"rotel {ROTEL_VERSION}", command, port, folder / "log")


def stock_sdk(folder: Path, sink: str, port: int, payload: bytes) -> Program:
    """An app that makes the spans of a request by the SDK (sdk_app.py)."""
    folder.mkdir()
    (folder / "spans").write_bytes(payload)
    command = [sys.executable, Path(__file__).with_name("sdk_app.py"), port, sink, folder / "spans"]
    return Program("OpenTelemetry SDK", command, port, folder / "log")


def floor(folder: Path, sink: str, port: int, http_port: int) -> Program:
    """What takes events and gives spans without looking at either (floor_app.py)."""
    folder.mkdir()
    command = [sys.executable, Path(__file__).with_name("floor_app.py"), port, http_port, sink]
    return Program("floor", command, port, folder / "log")
