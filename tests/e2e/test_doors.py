"""Real captures through a real bridge, by each of its doors, into a real OTLP back end."""

import json
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from support.service import Service, otel_bridge

from otel_bridge.etdump.read import read
from otel_bridge.model.events import EventBatch
from otel_bridge.model.stream import Anchor, Clock, ModelRef, Stream
from otel_bridge.v1 import mapping_pb2, mapping_pb2_grpc
from otel_bridge.v1 import profiling_pb2 as pb
from otel_bridge.wire.codec import request_of

NOON_NS = 1_800_000_000 * 10**9
MODELS = ("toy_backend_int", "multi_method", "xnn_mobile")


@pytest.fixture(scope="module", autouse=True)
def _mappings(service: Service, fixtures: Path) -> None:
    """The mappings of all models, as a build pipeline uploads them."""
    for model in MODELS:
        service.command("mapping", "upload", fixtures / model / "model.etrecord", "--model", model, "--version", "1")


def the_dump(fixtures: Path, model: str) -> bytes:
    """A capture."""
    return (fixtures / model / "run.etdp").read_bytes()


def the_batch(fixtures: Path, model: str, app: str) -> EventBatch:
    """A capture as a device would stream it."""
    stream = Stream(
        stream_id=app.encode().ljust(16, b".")[:16],
        model=ModelRef(model, "1"),
        resource=(("service.name", app),),
        clocks=(Clock(anchor=Anchor(0, NOON_NS)),),
    )
    return read(the_dump(fixtures, model), stream).batch


def attributes(span: Span) -> dict[str, str]:
    """The text attributes of a span."""
    return {attribute.key: attribute.value.string_value for attribute in span.attributes}


def assert_once(service: Service, app: str, events: int) -> list[Span]:
    """Each of so many events has arrived as one span, and nothing else has; all of it is resolved."""
    service.settle()
    spans = service.spans(app)
    assert len(spans) == len({(span.trace_id, span.span_id) for span in spans}) == events > 0
    statuses = {attributes(span).get("executorch.resolution.status") for span in spans}
    assert statuses <= {None, "exact", "delegate", "unmapped_identifier"}
    assert len(statuses) > 1
    return spans


@pytest.mark.parametrize("model", MODELS)
def test_events_by_grpc_arrive_once(model: str, service: Service, fixtures: Path) -> None:
    """Each event of a stream of columns arrives as one span, resolved."""
    batch = the_batch(fixtures, model, f"columns {model}")
    answer = service.profiling.ExportEvents(request_of(batch))
    assert (answer.accepted, list(answer.rejected)) == (len(batch), [])
    assert_once(service, f"columns {model}", len(batch))


def test_files_by_command_arrive_once(service: Service, fixtures: Path) -> None:
    """Each event of files that `otel-bridge send` sends arrives as one span; --json says for each what was taken."""
    files = [fixtures / "toy_backend_int" / name for name in ("run.etdp", "run10.etdp")]
    app = ("--resource", "service.name=command")
    done = otel_bridge("send", *files, "--model", "toy_backend_int@1", *app, "--json", "--server", service.grpc)
    assert (done.returncode, done.stderr) == (0, "")
    *counts, last = [json.loads(line) for line in done.stdout.splitlines()]
    assert [count["file"] for count in counts] == [str(file) for file in files]
    expected = [len(read(file.read_bytes(), Stream(b"x" * 16)).batch) for file in files]
    assert [count["accepted"] for count in counts] == expected
    assert (last["summary"]["sent"], last["summary"]["accepted"], last["summary"]["refused"]) == (2, sum(expected), 0)
    assert_once(service, "command", sum(expected))


@pytest.mark.parametrize("model", MODELS)
def test_files_by_http_arrive_once(model: str, service: Service, fixtures: Path) -> None:
    """Each event of an ETDump that any HTTP client posts arrives as one span."""
    response = service.post(the_dump(fixtures, model), model=f"{model}@1", **{"resource.service.name": f"http {model}"})
    assert response.status_code == 200
    assert_once(service, f"http {model}", response.json()["accepted"])


def test_the_doors_are_one(service: Service, fixtures: Path) -> None:
    """The same upload by gRPC, by HTTP and again is one: it has one answer, and is emitted once."""
    dump = the_dump(fixtures, "xnn_mobile")
    request = pb.UploadETDumpRequest(etdump=dump)
    request.stream.model.name, request.stream.model.version = b"xnn_mobile", b"1"
    request.stream.resource.add(key=b"service.name").value.text = b"doors"
    events = service.profiling.UploadETDump(request).accepted
    service.settle()
    assert service.post(dump, **{"model": "xnn_mobile@1", "resource.service.name": "doors"}).json()["accepted"] == events
    service.settle()
    assert service.profiling.UploadETDump(request).accepted == events
    service.settle()
    assert len(service.spans("doors")) == events


def test_an_alias_binds_at_admission(service: Service, fixtures: Path) -> None:
    """An alias that moves names the new build for later events; earlier ones keep the build that they were admitted with."""
    batch = the_batch(fixtures, "toy_backend_int", "alias")
    stream = replace(batch.streams[0], model=ModelRef("moving", "1"))
    bound = []
    source = fixtures / "toy_backend_int" / "maps.json"
    for sequence, build in enumerate(("first", "second")):
        service.command("mapping", "upload", source, "--model", "moving", "--version", "1", "--build-id", build)
        service.profiling.ExportEvents(request_of(replace(batch, streams=(replace(stream, sequence=sequence),))))
        bound += [build] * len(batch)
    service.settle()
    builds = [
        attribute.value.string_value
        for request in service.sink.requests
        for resource in request.resource_spans
        if resource.resource.attributes[0].value.string_value == "alias"
        for attribute in resource.resource.attributes
        if attribute.key == "executorch.model.build_id"
        for scope in resource.scope_spans
        for _ in scope.spans
    ]
    assert builds == bound
    assert len(service.spans("alias")) == 2 * len(batch)


def test_a_bridge_says_what_it_is(service: Service) -> None:
    """Health answers for each service, and reflection gives any client the very protocol files: every method, every field."""
    database = ProtoReflectionDescriptorDatabase(service.channel)
    services = set(database.get_services())
    assert {"otel_bridge.v1.ProfilingService", "otel_bridge.v1.MappingService", "grpc.health.v1.Health"} <= services
    health = health_pb2_grpc.HealthStub(service.channel)
    for name, module in (("otel_bridge.v1.ProfilingService", pb), ("otel_bridge.v1.MappingService", mapping_pb2)):
        assert database.FindFileContainingSymbol(name).SerializeToString() == module.DESCRIPTOR.serialized_pb
        assert health.Check(health_pb2.HealthCheckRequest(service=name)).status == health_pb2.HealthCheckResponse.SERVING


def test_the_account_closes(service: Service) -> None:
    """At rest every event that was acknowledged was emitted, dropped or waits, and the sink has a span for each emitted one."""
    service.settle()
    ledger = service.ledger()
    assert ledger.accepted == ledger.emitted + ledger.dropped + ledger.waiting > 0
    assert (ledger.dropped, ledger.waiting) == (0, 0)
    assert sum(service.counts("exporter_sent_spans").values()) == len(service.sink.spans) >= ledger.emitted


def test_mappings_by_command(service: Service, fixtures: Path) -> None:
    """The life of a mapping by the command line: upload, upload again, show, list, alias, delete; what is gone is not found."""
    source = fixtures / "two_backends" / "model.etrecord"
    put = ("mapping", "upload", source, "--build-id", "two", "--model", "two", "--version", "1")
    first, again = (json.loads(service.command(*put, "--json")) for _ in range(2))
    assert (first["created"], again["created"]) == (True, False)
    assert (first["build_id"], first["digest"]) == (again["build_id"], again["digest"]) == ("two", first["digest"])
    assert "already there: build two" in service.command(*put)
    assert "two@2: build two" in service.command("mapping", "alias", "two@2", f"sha256:{first['digest'][:16]}")
    shown = service.command("mapping", "show", "two@2")
    assert f"build two, mapping sha256:{first['digest']}" in shown
    assert "ToyProfBackend" in shown
    document = json.loads(service.command("mapping", "show", "two", "--json"))
    assert {method["name"] for method in document["mapping"]["methods"]} == {"forward"}
    listed = {info["build_id"]: info for info in json.loads(service.command("mapping", "list", "--json"))}
    assert listed["two"]["aliases"] == ["two@1", "two@2"]
    assert "two@1, two@2" in service.command("mapping", "list")
    assert service.command("mapping", "delete", "two@1") == "deleted: build two\n"
    with pytest.raises(grpc.RpcError, match="NOT_FOUND"):
        mapping_pb2_grpc.MappingServiceStub(service.channel).GetMapping(mapping_pb2.GetMappingRequest(ref="two@2"))
