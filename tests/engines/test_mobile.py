"""What the page for phones shows: compiled, and where it can be, run against a real bridge."""

import json
import os
import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from support.cpp import build, run
from support.engines import ROOT, SOURCES, require
from support.otlp_sink import OtlpSink
from support.processes import LOOPBACK, free_port
from support.service import Service, running

from otel_bridge.etdump.read import read
from otel_bridge.model.stream import Stream

SHOWN = ROOT / "docs" / "mobile"
FIXTURES = ROOT / "tests" / "fixtures"
CAPTURE = FIXTURES / "toy_backend_int" / "run.etdp"
EVENTS = 9


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A class path with the page's Kotlin, compiled with warnings as errors, and the tests' programs."""
    jars = require("kotlin")
    folder = tmp_path_factory.mktemp("classes")
    compiler = os.pathsep.join(map(str, sorted(jars.glob("*.jar"))))
    library = str(next(jars.glob("kotlin-stdlib-*.jar")))
    sources = [*sorted(SHOWN.glob("*.kt")), *sorted((SOURCES / "kotlin").glob("*.kt"))]
    quick = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")  # a compiler that runs once is done before it would be optimised
    command = ["java", *quick, "-cp", compiler, "org.jetbrains.kotlin.cli.jvm.K2JVMCompiler"]
    command += ["-Werror", "-no-stdlib", "-no-reflect", "-cp", library, "-d", str(folder), *map(str, sources)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=170, check=False)
    assert done.returncode == 0, done.stderr
    return os.pathsep.join([str(folder), library])


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A bridge that phones reach by HTTP."""
    with OtlpSink() as sink, running(tmp_path_factory.mktemp("bridge"), sink) as service:
        yield service


def java(classes: str, program: str, *arguments: object) -> list[str]:
    """The lines that a program prints."""
    command = ["java", "-cp", classes, program, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.timeout(300)  # the first test compiles, on machines that may have other work
def test_kotlin_uploads(classes: str, service: Service, tmp_path: Path) -> None:
    """The uploader of the page sends a file however often it is called, which shows once, and tells a file that is refused."""
    bad = tmp_path / "bad.etdp"
    bad.write_bytes(b"no dump")
    said = ("model=toy@1.0+2", "resource.service.name=Kotlin & Söhne")
    arguments = (f"http://{service.http}", "forward", *said, "--", CAPTURE, bad, CAPTURE)
    first, refused, again = java(classes, "UploadKt", *arguments)
    assert first == again
    assert first.startswith("Taken(answer=")
    assert json.loads(first.removeprefix("Taken(answer=").removesuffix(")"))["accepted"] == EVENTS
    assert refused.startswith('Refused(answer={"code":"INVALID_ARGUMENT","reason":"not_an_etdump"')
    service.settle()
    spans = service.spans("Kotlin & Söhne")
    assert (len(spans), len({span.span_id for span in spans})) == (EVENTS, EVENTS)
    ended_ns = max(span.end_time_unix_nano for span in spans)
    assert ended_ns // 10**6 == CAPTURE.stat().st_mtime_ns // 10**6
    versions = {
        attribute.value.string_value
        for request in service.sink.requests
        for resource in request.resource_spans
        for attribute in resource.resource.attributes
        if attribute.key == "executorch.model.version"
    }
    assert versions == {"1.0+2"}


def test_kotlin_empties_a_folder(classes: str, service: Service, tmp_path: Path) -> None:
    """Of a folder all files are sent, each under its method, and deleted, taken or refused; where nobody answers, all stay."""
    for number, data in enumerate((CAPTURE.read_bytes() + b"1", b"no dump", CAPTURE.read_bytes() + b"2")):
        (tmp_path / f"forward-{number}.etdp").write_bytes(data)
    (tmp_path / "1.part").write_bytes(b"half")
    said = ("unused", "model=toy", "resource.service.name=folder", "--", tmp_path)
    assert java(classes, "UploadKt", f"http://{LOOPBACK}:{free_port()}", *said) == ["30"]
    assert len(list(tmp_path.iterdir())) == 4
    assert java(classes, "UploadKt", f"http://{service.http}", *said) == ["null"]
    assert [path.name for path in tmp_path.iterdir()] == ["1.part"]
    service.settle()
    assert len(service.spans("folder")) == 2 * EVENTS


def test_kotlin_keeps_what_does_not_go_through(classes: str) -> None:
    """Where nobody answers, the uploader says to come back: it throws nothing."""
    address = f"http://{LOOPBACK}:{free_port()}"
    (away,) = java(classes, "UploadKt", address, "forward", "model=toy", "--", CAPTURE)
    assert away.startswith("Later(waitSeconds=30, why=java.net.ConnectException")


class Proxy(BaseHTTPRequestHandler):
    """Answers with the status that the path begins with, once it has the body, which comes in chunks."""

    def do_POST(self) -> None:
        """One upload."""
        while size := int(self.rfile.readline(), 16):
            self.rfile.read(size + 2)
        self.send_response(int(self.path.split("/")[1]))
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


def test_kotlin_deletes_only_what_the_bridge_refuses(classes: str) -> None:
    """An answer about something else than the file, such as of a proxy that wants another token, keeps the file."""
    expected = {400: "Refused", 401: "Later", 404: "Later", 413: "Refused", 500: "Refused", 502: "Later"}
    with ThreadingHTTPServer((LOOPBACK, 0), Proxy) as proxy:
        Thread(target=proxy.serve_forever, daemon=True).start()
        address = f"http://{LOOPBACK}:{proxy.server_port}"
        for status, outcome in expected.items():
            (said,) = java(classes, "UploadKt", f"{address}/{status}", "forward", "model=toy", "--", CAPTURE)
            assert (status, said.partition("(")[0]) == (status, outcome)
        proxy.shutdown()


def test_kotlin_waits_as_long_as_it_is_told(classes: str, tmp_path: Path) -> None:
    """A bridge that is full says how long to wait, and the uploader passes that on."""
    with OtlpSink() as sink:
        address = f"http://{LOOPBACK}:{free_port()}"
        small = {"SPOOL__MAX_BYTES": str(1 << 20), "SERVER__MAX_REQUEST_BYTES": str(1 << 20), "SERVER__DRAIN_S": "0"}
        with running(tmp_path, sink, OTEL_EXPORTER_OTLP_ENDPOINT=address, **small) as bridge:
            dump = (FIXTURES / "xnnpack" / "run100.etdp").read_bytes()
            while bridge.post(dump).status_code == 200:
                dump += b"x"  # each is another file
            full, file = "Taken", tmp_path / "run.etdp"
            while full.startswith("Taken"):
                dump += b"x"
                file.write_bytes(dump)
                (full,) = java(classes, "UploadKt", f"http://{bridge.http}", "forward", "model=toy", "--", file)
    assert full.startswith("Later(waitSeconds=2, why={")
    assert "spool_full" in full


@pytest.mark.parametrize(
    ("arguments", "files", "told"),
    [
        ((7, 3), 3, "left [true, false], 7 executions, 3 drains"),
        ((6, 3), 2, "left [false, false], 6 executions, 2 drains"),
        ((0, 3), 0, "left [false, false], 0 executions, 0 drains"),
        ((7, 3, "untraced"), 0, "left [false, false], 7 executions, 0 drains"),
    ],
)
def test_kotlin_drains(arguments: tuple[object, ...], files: int, told: str, classes: str, tmp_path: Path) -> None:
    """A module leaves a whole file after each so many executions, and is never drained twice without one in between."""
    assert java(classes, "DrainKt", tmp_path, *arguments) == [told]
    assert len(list(tmp_path.glob("forward-*.etdp"))) == len(list(tmp_path.iterdir())) == files


def test_a_module_drains_in_cpp(tmp_path: Path) -> None:
    """The C++ of the page builds against ExecuTorch's wheel, leaves whole ETDumps, and never drains twice without a run."""
    program = build(tmp_path, [SOURCES / "mobile" / "drain.cpp"], wheel=True, flags=("-O1", f"-I{SHOWN}"))
    run(program, FIXTURES / "xnnpack" / "model.pte", tmp_path, 3)
    assert {path.name for path in tmp_path.glob("*.etdp")} == {"first.etdp", "second.etdp"}
    batches = [read((tmp_path / name).read_bytes(), Stream(bytes(range(16)))).batch for name in ("first.etdp", "second.etdp")]
    assert [[block.name for block in batch.blocks] for batch in batches] == [["Default", *["Execute"] * 3], ["Execute"] * 3]
