"""The example program, as a device engineer builds and runs it: by CMake, with a real model, against a real bridge."""

import base64
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.cpp_scripts import received, undelimited
from support.engines import SOURCES, require
from support.otlp_sink import OtlpSink
from support.service import running

from otel_bridge.v1 import profiling_pb2 as pb

MAX_STRIPPED_BYTES = 80_000


def execute(*command: object) -> "subprocess.CompletedProcess[str]":
    """A program that has ended."""
    return subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=250, check=False)


def counts(done: "subprocess.CompletedProcess[str]") -> dict[str, Any]:
    """What the program says at its end."""
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.timeout(300)  # it is built here
def test_the_example_is_small(example: Path, tmp_path: Path) -> None:
    """Stripped, the program takes at most 80 kB: tracer, encoder, uploader, h2c gRPC and the handling of options."""
    stripped = tmp_path / "stripped"
    assert execute("strip", "-o", stripped, example).returncode == 0
    assert stripped.stat().st_size <= MAX_STRIPPED_BYTES


@pytest.mark.timeout(300)
def test_a_model_reaches_the_bridge(example: Path, fixtures: Path, tmp_path: Path) -> None:
    """Every event that the runtime produced is accepted by the bridge, and a trace comes out for each load and inference."""
    model = fixtures / "mixed_ops"
    with OtlpSink() as sink, running(tmp_path, sink) as service:
        service.command("mapping", "upload", model / "model.etrecord", "--model", "net", "--version", "1")
        options = ["--model", "net", "--version", "1", "--resource", "service.name=phone", "--executions", 40]
        done = execute(example, model / "model.pte", "--server", service.grpc, *options)
        assert done.returncode == 0, done.stderr
        service.settle()
        said = counts(done)
        assert service.ledger().accepted == said["produced"] == said["sent"]
        assert (said["dropped"], said["flushed"], said["error"]) == ({}, True, 0)
        roots = [span for span in service.spans("phone") if not span.parent_span_id]
        assert len({span.trace_id for span in roots}) == 41
    assert said["requests"] <= said["attempts"] <= 60


@pytest.mark.timeout(300)
def test_nobody_listens(example: Path, fixtures: Path) -> None:
    """Without a bridge the model runs to its end; what could not be sent is said, by the exit code, too."""
    options = ["--server", "127.0.0.1:1", "--executions", 500, "--ring", 64, "--flush-ms", 50]
    done = execute(example, fixtures / "portable_only" / "model.pte", *options)
    said = counts(done)
    assert (done.returncode, said["error"], said["flushed"], said["sent"]) == (3, 0, False, 0)
    assert said["dropped"]["ring_full"] > 500
    assert said["attempts"] >= 1


@pytest.mark.timeout(300)
def test_a_failed_inference_is_an_error_of_its_block(example: Path, fixtures: Path, tmp_path: Path) -> None:
    """A model whose backend is absent ends with ExecuTorch's error, and what was traced until then is sent."""
    requests = tmp_path / "requests"
    done = execute(example, fixtures / "toy_backend_int" / "model.pte", "--file", requests)
    assert done.returncode == 1
    assert counts(done)["error"] != 0
    assert received(undelimited(requests.read_bytes())).blocks


@pytest.fixture(scope="module")
def named_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose program holds the build id build-7."""
    model = tmp_path_factory.mktemp("named") / "model.pte"
    made = execute(require("executorch"), SOURCES / "executorch" / "make_named.py", model, "build-7")
    assert made.returncode == 0, made.stderr
    return model


@pytest.mark.timeout(300)  # importing torch takes many seconds on a cold disk
@pytest.mark.parametrize("given", [None, "another"])
def test_the_program_names_its_build(given: str | None, example: Path, named_model: Path) -> None:
    """The build id in a program's named data is sent, unless one was given."""
    done = execute(example, named_model, "--armour", "-", *(["--build-id", given] if given else []))
    block = re.search(r"EVENTS-----\n(.*?)\n=", done.stdout, re.DOTALL)
    assert block
    request = pb.ExportEventsRequest.FromString(base64.b64decode(block[1].replace("\n", "")))
    assert request.stream.model.build_id == (given or "build-7").encode()


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "arguments",
    [
        ("model.pte",),
        ("model.pte", "--server", "nonsense"),
        ("model.pte", "--armour", "-", "--executions", "many"),
        ("model.pte", "--armour", "-", "--unknown", "1"),
        ("model.pte", "--armour", "-", "--resource", "no-equals-sign"),
        ("model.pte", "--armour", "-", "--load", "./absent.so"),
    ],
)
def test_options_that_cannot_be_obeyed_are_refused(arguments: tuple[str, ...], example: Path) -> None:
    """Wrong options end the program with 2 and a line that names them."""
    done = execute(example, *arguments)
    assert done.returncode == 2
    assert done.stderr.strip()
