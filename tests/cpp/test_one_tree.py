"""One model, one mapping, and three ways from a runtime to the bridge: what comes out must not tell which way it was."""

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.cpp import build_backend
from support.engines import SOURCES, require
from support.otlp_sink import OtlpSink
from support.service import Service, running
from support.spans import decode

TIMES = 5
NOT_COMPARED = ("executorch.time.", "executorch.clock.", "executorch.run.index")
"""Times, and how they were found; and what an ETDump does not say."""

Tree = tuple[str, tuple[tuple[str, Any], ...], tuple["Tree", ...]]


@dataclass(frozen=True)
class Shipped:
    """A model whose mapping is uploaded: its program, its build id, its delegate's run-time half, and the bridge."""

    program: Path
    build_id: str
    backend: Path
    service: Service


def toy(*arguments: object) -> str:
    """What engines/executorch/run_toy.py prints, in a process of its own."""
    command = [require("executorch"), SOURCES / "executorch" / "run_toy.py", *map(str, arguments)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout.strip()


@pytest.fixture(scope="module", params=["int", "str"])
def shipped(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shipped]:
    """The toy delegate's model, once for each kind of identifier."""
    folder = tmp_path_factory.mktemp("shipped")
    backend = build_backend(SOURCES / "cpp" / "toy_backend.cpp", folder)
    with OtlpSink() as sink, running(folder, sink) as service:
        build_id = toy("ship", service.grpc, folder, request.param)
        yield Shipped(folder / "model.pte", build_id, backend, service)


def trees(service: Service, app: str) -> dict[str, list[Tree]]:
    """The traces of an app, by the name of their root: names and attributes alone, children in their order."""
    spans = [span for body in service.sink.received for span in decode(body.payload) if span.resource["service.name"] == app]
    children: dict[str, list[Any]] = {}
    for span in sorted(spans, key=lambda span: (span.start_ns, -span.end_ns)):
        children.setdefault(span.parent_span_id, []).append(span)

    def tree(span: Any) -> Tree:
        told = {key: value for key, value in span.attributes.items() if not key.startswith(NOT_COMPARED)}
        return span.name, tuple(sorted(told.items())), tuple(map(tree, children.get(span.span_id, [])))

    found: dict[str, list[Tree]] = {}
    for root in children.get("", []):
        found.setdefault(root.name, []).append(tree(root))
    return found


def delegate_events(tree: Tree) -> list[dict[str, Any]]:
    """The attributes of the delegate events of a tree."""
    _, attributes, below = tree
    own = dict(attributes)
    found = [own] if "executorch.resolution.status" in own else []
    return found + [event for child in below for event in delegate_events(child)]


@pytest.mark.timeout(300)  # torch is imported twice, on machines that may have other work
def test_three_ways_one_tree(shipped: Shipped, example: Path, tmp_path: Path) -> None:
    """By Python, by C++ over h2c, and by an ETDump with curl: the same span trees but for times; each identifier is `exact`."""
    service, program, backend = shipped.service, shipped.program, shipped.backend
    etdump = tmp_path / "run.etdp"
    toy("run", service.grpc, program, backend, TIMES, etdump)

    options = ["--load", backend, "--executions", TIMES, "--resource", "service.name=c++"]
    command = [example, program, "--server", service.grpc, *options]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert (said["dropped"], said["unsent"]) == ({}, 0)

    url = f"http://{service.http}/v1/etdump?build_id={shipped.build_id}&resource.service.name=etdump"
    curl = [require("curl"), "-sS", "--fail-with-body", "--data-binary", f"@{etdump}", url]
    done = subprocess.run([*map(str, curl)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

    service.settle()
    by_python, by_cpp, by_file = (trees(service, app) for app in ("python", "c++", "etdump"))
    assert by_file == by_python
    assert by_file == by_cpp
    inferences = next(found for name, found in by_file.items() if name.startswith("execute "))
    assert len(inferences) == TIMES
    statuses = Counter(event["executorch.resolution.status"] for tree in inferences for event in delegate_events(tree))
    assert set(statuses) == {"exact"}
    assert statuses.total() >= 5 * TIMES
    metadata = [event["executorch.delegate.metadata.op"] for event in delegate_events(inferences[0])]
    assert {"conv_relu", "exp", "silu"} <= set(metadata)
