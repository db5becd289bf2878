"""From an export script to spans: `upload_mapping` against a real bridge, and one that shows what it is sent."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from support.etdump_writer import ProfileEvent, RunData, write_etdump
from support.faulty_bridge import FaultyBridge
from support.otlp_sink import OtlpSink
from support.processes import LOOPBACK, free_ports
from support.service import Service, running

from otel_bridge.mapping.pte import build_id_of
from otel_bridge.v1 import mapping_pb2 as pb

pytestmark = pytest.mark.timeout(300)  # importing torch takes many seconds on a cold disk


@dataclass(frozen=True)
class Uploaded:
    """An export, what each server said, and what the recording one was sent: with source lines, and without."""

    folder: Path
    service: Service
    said: list[dict[str, Any]]
    sent: list[bytes]


@pytest.fixture(scope="module")
def uploaded(execute: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Uploaded]:
    folder = tmp_path_factory.mktemp("upload")
    with OtlpSink() as sink, running(folder, sink) as service, FaultyBridge() as recorder:
        nobody = f"{LOOPBACK}:{free_ports(1)[0]}"
        servers = (service.grpc, service.grpc, nobody, recorder.address, f"http://{recorder.address}")
        said = [json.loads(line) for line in execute("upload_toy.py", folder, *servers).splitlines() if line.startswith("{")]
        yield Uploaded(folder, service, said, [call.body for call in recorder.received])


def test_one_call_stores_the_mapping(uploaded: Uploaded) -> None:
    """It says the program's build id and the digest; a second one finds it there; where nobody answers, that is said."""
    first, second, third, *_ = uploaded.said
    build_id = build_id_of((uploaded.folder / "model.pte").read_bytes())
    assert first["build_id"] == second["build_id"] == build_id
    assert (first["created"], second["created"]) == (True, False)
    assert first["said"] == f"stored: build {build_id}, mapping sha256:{first['digest'][:16]}"
    assert second["said"].startswith("already there: ")
    assert third["error"] == "BridgeUnavailable"
    (kept,) = json.loads(uploaded.service.command("mapping", "list", "--json"))
    assert (kept["build_id"], kept["digest"], kept["aliases"]) == (build_id, first["digest"], ["toy@1.0"])


def test_the_build_id_is_that_of_every_export(uploaded: Uploaded, exported: Path) -> None:
    """The same model, exported by another process, has the same build id, whichever way it went into the program."""
    with (exported / "toy_str" / "model.pte").open("rb") as other, (uploaded.folder / "model.pte").open("rb") as own:
        assert build_id_of(own) == build_id_of(other)


def windows(data: bytes, step: int = 1) -> set[bytes]:
    """Stretches of two weights, each 8 bytes, from every `step`-th byte."""
    return {data[at : at + 8] for at in range(0, len(data) - 7, step)}


def test_weights_stay_at_home(uploaded: Uploaded, exported: Path) -> None:
    """Of all weights no two in a row are in what is sent; ETRecord and XNNPACK's program have them, so they would be found."""
    weights = windows((uploaded.folder / "weights.bin").read_bytes(), step=4)
    assert len(weights) > 200
    assert weights & windows((uploaded.folder / "model.etrecord").read_bytes())
    assert len(uploaded.sent) == 2
    for body in uploaded.sent:
        assert not weights & windows(body)
    xnnpack = exported / "xnnpack"
    assert weights & windows((xnnpack / "plain.pte").read_bytes())
    assert not weights & windows((xnnpack / "recorded.binpb").read_bytes())


def test_source_paths_are_told_as_far_as_wanted(uploaded: Uploaded) -> None:
    """A prefix is taken off; without source lines there is no path at all; all else is the same."""
    with_source, without = (pb.PutMappingRequest.FromString(body).file.mapping for body in uploaded.sent)
    told = {(operator.file, operator.line > 0) for operator in operators_of(with_source)}
    assert told == {("toy_delegate.py", True)}
    assert {(operator.file, operator.line) for operator in operators_of(without)} == {("", 0)}
    for operator in operators_of(with_source):
        operator.ClearField("file")
        operator.ClearField("line")
    assert with_source == without


def operators_of(mapping: pb.Mapping) -> Iterator[pb.Operator]:
    for method in mapping.methods:
        for instruction in method.instructions:
            for known in instruction.operators:
                yield from known.operators


def dump_of(method: pb.Method) -> bytes:
    """One inference in which every identifier of a method is logged."""
    ticks = count(1, 100)
    events = []
    began = next(ticks)
    for instruction in method.instructions:
        start = next(ticks)
        events += [
            ProfileEvent(None, 0, instruction.id, None, entry.text, b"", next(ticks), next(ticks))
            for entry in instruction.entries
        ]
        name = "DELEGATE_CALL" if instruction.delegate else "OPERATOR_CALL"
        events.append(ProfileEvent(name, 0, instruction.id, start=start, end=next(ticks)))
    events.append(ProfileEvent("Method::execute", -1, 0, start=began, end=next(ticks)))
    return write_etdump([RunData("Execute", events)])


def statuses(spans: list[Span]) -> Counter[str]:
    """How many spans of delegate events have which status of resolution."""
    found = (attribute for span in spans for attribute in span.attributes)
    return Counter(each.value.string_value for each in found if each.key == "executorch.resolution.status")


@pytest.mark.parametrize("build", ["own", "other"])
def test_events_resolve_by_the_build_id_of_the_program(build: str, uploaded: Uploaded, tmp_path: Path) -> None:
    """
    Events under the build id that a device reads in its program are `exact`, every one.

    Under another build id nothing is resolved, though model, method and identifiers are the same: it is said as `no_mapping`.
    """
    (forward, _) = pb.PutMappingRequest.FromString(uploaded.sent[0]).file.mapping.methods
    dump = tmp_path / "run.etdp"
    dump.write_bytes(dump_of(forward))
    with (uploaded.folder / "model.pte").open("rb") as file:
        build_id = build_id_of(file) if build == "own" else "of another export"
    app = f"app-{build}"
    options = ("--model", "toy@1.0", "--build-id", build_id, "--resource", f"service.name={app}")
    uploaded.service.command("send", dump, *options)
    uploaded.service.settle()
    spans = uploaded.service.spans(app)
    entries = sum(len(each.entries) for each in forward.instructions)
    assert statuses(spans) == {"exact" if build == "own" else "no_mapping": entries}
    handles = [each for span in spans for each in span.attributes if each.key == "executorch.debug_handles"]
    assert bool(handles) == (build == "own")
