"""Programs of ExecuTorch's own Python runtime, profiled into a real bridge."""

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from support.engines import SOURCES, require
from support.otlp_sink import OtlpSink
from support.processes import LOOPBACK, free_port
from support.service import Service, running

pytestmark = pytest.mark.timeout(300)  # importing torch takes many seconds on a cold disk

EVENTS = 10
"""Of one execution of the model `xnnpack`."""


@dataclass(frozen=True)
class Seen:
    """What the app saw, scene by scene, and the bridge that took the events."""

    app: dict[str, Any]
    service: Service

    def spans(self, app: str) -> list[Span]:
        """The spans at the sink of one scene."""
        return self.service.spans(app)

    def executions(self, app: str) -> list[Span]:
        """Those of them that are inferences, as they began."""
        found = [span for span in self.spans(app) if span.name.startswith("execute ")]
        return sorted(found, key=lambda span: span.start_time_unix_nano)


@pytest.fixture(scope="module")
def seen(fixtures: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    """All scenes in one process, against one bridge."""
    interpreter = require("executorch")
    folder = tmp_path_factory.mktemp("profile")
    with OtlpSink() as sink, running(folder, sink) as service:
        for model in ("xnnpack", "multi_method"):
            source = fixtures / model / "model.etrecord"
            service.command(
                "mapping", "upload", source, "--pte", source.with_name("model.pte"), "--model", model, "--version", 1
            )
        nowhere = f"{LOOPBACK}:{free_port()}"
        arguments = [service.grpc, nowhere, fixtures, folder / "answer.json"]
        command = [interpreter, SOURCES / "executorch" / "profile_models.py", *arguments]
        done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-4000:]
        service.settle()
        yield Seen(json.loads((folder / "answer.json").read_text()), service)


def attribute(span: Span, key: str) -> Any:
    """The value of an attribute; None where the span has none."""
    for each in span.attributes:
        if each.key == key:
            return getattr(each.value, str(each.value.WhichOneof("value")))
    return None


def test_an_inference_is_part_of_the_apps_request(seen: Seen) -> None:
    """Each execution is a child of the span that was current, and lies inside it in time; what it ran is below it."""
    app, executions = seen.app["nested"]["spans"], seen.executions("nested")
    assert len(executions) == len(app) == 5
    for index, (outer, inner) in enumerate(zip(app, executions, strict=True)):
        assert inner.trace_id == outer["trace"].to_bytes(16, "big")
        assert inner.parent_span_id == outer["span"].to_bytes(8, "big")
        assert outer["start"] <= inner.start_time_unix_nano
        assert inner.start_time_unix_nano + EVENTS < inner.end_time_unix_nano <= outer["end"]
        assert attribute(inner, "executorch.run.index") == index
        assert sum(span.trace_id == inner.trace_id for span in seen.spans("nested")) == EVENTS


def test_what_ran_is_resolved(seen: Seen) -> None:
    """With the model's mapping at the bridge, the live program's nodes resolve; XNNPACK's own transposes are of the call."""
    spans = [span for span in seen.spans("nested") if attribute(span, "executorch.resolution.status")]
    found = {(attribute(span, "executorch.resolution.status"), span.name.startswith("Transpose")) for span in spans}
    assert found == {("derived", False), ("delegate", True)}
    assert len(spans) == 5 * 8


def test_methods_are_told_apart(seen: Seen) -> None:
    """Executions of two methods in one drain carry their names, their own run index and the attributes of their moment."""
    found = [
        (span.name, attribute(span, "executorch.run.index"), attribute(span, "device.thermal.state"))
        for span in seen.executions("two_methods")
    ]
    assert found == [
        ("execute multi_method.encode", 0, "cool"),
        ("execute multi_method.decode", 0, "warm"),
        ("execute multi_method.decode", 1, "hot"),
        ("execute multi_method.encode", 1, "hot"),
    ]
    assert seen.app["two_methods"]["drained"]
    assert seen.app["two_methods"]["names"] == ["decode", "encode"]


def test_errors_are_the_runtimes_own(seen: Seen) -> None:
    """What `execute` raises is what it raises without us; the executions that succeeded arrive, and no drain has nothing."""
    told = seen.app["failing"]
    for ours, theirs in told["errors"]:
        assert ours == theirs
        assert "error 0x" in ours
    assert told["drained"] == [False, False, False]  # `every` has drained already
    assert len(seen.executions("failing")) == 2


@pytest.mark.parametrize("scene", ["nested", "two_methods", "failing", "two_threads"])
def test_every_event_arrives(seen: Seen, scene: str) -> None:
    """The account of each client closes: what was recorded was accepted."""
    stats = seen.app[scene]["stats"]
    assert stats["recorded"] == stats["accepted"] > 0
    assert (stats["rejected"], stats["dropped"], stats["waiting"], stats["lost_dumps"]) == ({}, {}, 0, 0)


def test_threads_exclude_each_other(seen: Seen) -> None:
    """Two threads that execute while a third drains lose nothing, mix nothing, and crash nothing."""
    executions = seen.executions("two_threads")
    assert sorted(attribute(span, "executorch.run.index") for span in executions) == list(range(100))
    below = Counter(span.trace_id for span in seen.spans("two_threads"))
    assert {below[span.trace_id] for span in executions} == {EVENTS}


def test_the_end_of_the_process(seen: Seen) -> None:
    """What was executed since the last drain is handed over and sent when the interpreter ends."""
    assert len(seen.executions("at_exit")) == 1


def test_nobody_answers(seen: Seen) -> None:
    """Outputs are those of a program that is not profiled; what could not be sent is counted when the client is closed."""
    told = seen.app["away"]
    assert all(told["same"])
    assert told["after"] > 0
    assert told["stats"]["recorded"] == sum(told["stats"]["dropped"].values()) > 0
    assert set(told["stats"]["dropped"]) == {"closed"}


def test_a_second_drain_is_refused(seen: Seen) -> None:
    """The runtime reads freed memory when it is drained with nothing new, also after a failure; ours does not let it."""
    assert all(outcome in {"killed by a signal", "no ETDump"} for outcome in seen.app["second_drains"])
    assert seen.app["drained_twice"]["found"] == [False, True, False, True, False, "NothingToDrain", "NotProfiled"]
