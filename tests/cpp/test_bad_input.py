"""What becomes of the C++ client's bad input (docs/bad-input.md), where no other test shows it."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.cpp import run
from support.cpp_scripts import Line, received, script_of, undelimited
from support.otlp_sink import OtlpSink
from support.requests import a_request
from support.scenes import call, runtime
from support.service import running

pytestmark = pytest.mark.timeout(300)  # compilers take their time on machines that have other work

Built = Callable[..., Path]


def test_metadata_larger_than_the_arena(built: Built) -> None:
    """An event whose metadata the arena can never hold is counted as such; the next, whose metadata fit, arrive."""
    lines: list[Line] = [("B", "Execute")]
    for number in range(20):
        lines += [("L", None, number, 1, 2, b"x" * (300 if number % 2 else 3)), ("O",)]
    program = [built("play"), "65536", "512", "256", "64", "256", "0", "64"]
    done = subprocess.run(program, input=script_of(lines), capture_output=True, check=True)
    assert done.stderr.decode().split() == ["metadata_too_large", "10"]
    heard = received(undelimited(done.stdout))
    assert [(row[1], row[6]) for row in heard.rows] == [(number, b"xxx") for number in range(0, 20, 2)]
    assert heard.drops == {"metadata_too_large": 10}


def test_a_million_identifiers(built: Built) -> None:
    """Of 10^6 distinct identifiers the first arrive, as many as the table holds; every other event is counted."""
    lines = [b"B " + b"Execute".hex().encode()]
    for number in range(1_000_000):
        lines.append(b"L - %d 1 2 -" % number)
        if number % 1000 == 999:
            lines.append(b"O")
    written = run(built("play"), 65536, 4096, 512, 1 << 16, 1 << 16, 1024, 512, stdin=b"\n".join(lines) + b"\n")
    heard = received(undelimited(written))
    assert [row[1] for row in heard.rows] == list(range(512))
    assert heard.drops == {"identifiers_full": 1_000_000 - 512}


def test_a_device_that_is_killed(example: Path, fixtures: Path, tmp_path: Path) -> None:
    """Kill -9 in the middle of sending: what the bridge took comes out, each event once, and the bridge serves others."""
    model = fixtures / "xnnpack"
    named = ["--model", "net", "--version", "1", "--resource", "service.name=phone"]
    with OtlpSink() as sink, running(tmp_path, sink) as service:
        service.command("mapping", "upload", model / "model.etrecord", "--model", "net", "--version", "1")
        command = [example, model / "model.pte", "--server", service.grpc, *named, "--executions", "100000000"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as device:
            try:
                service.process.wait_until(lambda: service.ledger().accepted >= 1000)
                assert device.poll() is None
            finally:
                device.kill()
        other = a_request(call("DELEGATE_CALL", 0, 900, 2_100), runtime("Method::execute", 800, 2_200))
        assert service.profiling.ExportEvents(other).accepted == 2
        # Its last request may still be on its way to the bridge.
        service.process.wait_until(lambda: len(service.spans("phone")) == service.ledger().accepted - 2)
        spans = service.spans("phone")
        assert len({(span.trace_id, span.span_id) for span in spans}) == len(spans)
