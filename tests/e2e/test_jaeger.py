"""
The proof with a real back end: captures go through a running bridge into a running Jaeger, which is then asked what it has.

Each capture goes in by one of the three doors, under a service name of its own. Its ticks are anchored, so that a span is found
by its event's time. What Jaeger should show is worked out from ExecuTorch's own reading of the dump (support/captures.py).
"""

import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import grpc
import httpx
import pytest
from click.testing import CliRunner
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span
from support.captures import CAPTURES, FIXTURES, Capture
from support.jaeger import Jaeger, StoredSpan
from support.processes import LOOPBACK, Process, free_ports
from support.spans import TICK_ZERO_NS, resolve_dump

from otel_bridge.cli.mapping import mapping
from otel_bridge.cli.send import send
from otel_bridge.etdump.read import read
from otel_bridge.model.events import Block, BlockKind, TraceContext
from otel_bridge.model.stream import Anchor, Clock, ModelRef, Stream
from otel_bridge.v1.profiling_pb2_grpc import ProfilingServiceStub
from otel_bridge.wire.codec import request_of

ROOT = Path(__file__).parents[2]
VERSION = "1"
HARDWARE = "Phone A"
HOUR_NS = 3_600_000_000_000
ERROR, INTERNAL = 2, 1
IS_REMOTE = 0x300


@dataclass(frozen=True)
class Bridge:
    """A running `otel-bridge serve`."""

    process: Process
    grpc: str
    http: str

    def settle(self) -> None:
        """Wait until every acknowledged event has left; none may have been dropped."""
        self.process.wait_until(lambda: self._count("receiver_accepted_events") == self._count("pipeline_emitted_events"))

    def _count(self, counter: str) -> int:
        exposition = httpx.get(f"http://{self.http}/metrics", trust_env=False).text
        found = re.search(rf"^otel_bridge_{counter}_total(?:{{.*}})? (\S+)$", exposition, re.MULTILINE)
        return int(float(found[1])) if found else 0


@pytest.fixture(scope="module")
def bridge(jaeger: Jaeger, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bridge]:
    """A bridge that was started from the example of a configuration, knows all models of the fixtures, and sends to Jaeger."""
    folder = tmp_path_factory.mktemp("bridge")
    grpc_port, http_port = free_ports(2)
    addresses = (f"{LOOPBACK}:{grpc_port}", f"{LOOPBACK}:{http_port}")
    command = [
        sys.executable, "-m", "otel_bridge.cli.main", "serve", "--config", ROOT / "deploy" / "bridge.example.toml",
        "--grpc", addresses[0], "--http", addresses[1], "--otlp-endpoint", jaeger.otlp_grpc, "--data-dir", folder / "data",
    ]  # fmt: skip
    with Process(command, log=folder / "bridge.log") as process:
        bridge = Bridge(process, *addresses)
        process.wait_until(lambda: is_ready(bridge))
        for path in sorted(FIXTURES.glob("*/model.etrecord")):
            run(mapping, "upload", path, "--name", path.parent.name, "--version", VERSION, "--server", bridge.grpc)
        yield bridge


def is_ready(bridge: Bridge) -> bool:
    try:
        return httpx.get(f"http://{bridge.http}/readyz", trust_env=False).is_success
    except httpx.TransportError:
        return False


def run(command: object, *arguments: object) -> None:
    CliRunner().invoke(command, [str(argument) for argument in arguments], catch_exceptions=False, standalone_mode=False)  # type: ignore[arg-type]  # any command


Door = Callable[[Bridge, Capture, str], None]


def send_file(bridge: Bridge, capture: Capture, service: str) -> None:
    """By `otel-bridge send`."""
    run(
        send, capture.path, "--model", f"{capture.model}@{VERSION}", "--anchor", "0=2026-01-01T00:00:00Z",
        "--resource", f"service.name={service}", "--resource", f"device.model.identifier={HARDWARE}", "--server", bridge.grpc,
    )  # fmt: skip


def post_file(bridge: Bridge, capture: Capture, service: str) -> None:
    """By HTTP."""
    query = {
        "model": f"{capture.model}@{VERSION}",
        "anchor": f"0={TICK_ZERO_NS}",
        "resource.service.name": service,
        "resource.device.model.identifier": HARDWARE,
    }
    url = f"http://{bridge.http}/v1/etdump"
    httpx.post(url, params=query, content=capture.dump, trust_env=False).raise_for_status()


def export_events(bridge: Bridge, capture: Capture, service: str, **execution: object) -> None:
    """By `ExportEvents`; `execution` is what the sender says of each inference."""

    def told(block: Block) -> Block:
        return replace(block, **execution) if block.kind is BlockKind.EXECUTE else block  # type: ignore[arg-type]  # by name

    stream = Stream(
        stream_id=service.encode().ljust(16, b".")[-16:],
        model=ModelRef(capture.model, VERSION),
        resource=(("service.name", service), ("device.model.identifier", HARDWARE)),
        clocks=(Clock(anchor=Anchor(0, TICK_ZERO_NS)),),
    )
    batch = read(capture.dump, stream).batch
    request = request_of(replace(batch, blocks=tuple(told(block) for block in batch.blocks)))
    with grpc.insecure_channel(bridge.grpc) as channel:
        ProfilingServiceStub(channel).ExportEvents(request, timeout=30)


SENT: dict[str, tuple[Door, str]] = {
    "toy_backend_int/run10": (export_events, "camera"),
    "two_backends/run": (export_events, "camera-zoom"),
    "xnnpack/run100": (export_events, "gallery"),
    "multi_method/run": (send_file, "keyboard"),
    "xnn_mobile/run10": (send_file, "gallery-faces"),
    "mixed_ops/run": (send_file, "notes"),
    "toy_backend_str/run": (post_file, "camera-night"),
    "xnn_transformer/run": (post_file, "translator"),
    "portable_only/run10": (post_file, "clock"),
}
"""What is sent: by which door, and as which app."""


def stored(jaeger: Jaeger, service: str) -> list[StoredSpan]:
    """All that Jaeger shows of a service, in one order."""
    traces = jaeger.search(service, start_ns=TICK_ZERO_NS, end_ns=TICK_ZERO_NS + HOUR_NS)
    by_id = [span for trace_id in sorted(traces) for span in jaeger.trace(trace_id)]
    assert by_id == [span for trace_id in sorted(traces) for span in traces[trace_id]]
    return by_id


@pytest.fixture(scope="module")
def sent(bridge: Bridge) -> None:
    for capture_id, (door, service) in SENT.items():
        door(bridge, CAPTURES[capture_id], service)
    bridge.settle()


@pytest.fixture(params=SENT)
def capture(request: pytest.FixtureRequest, sent: None) -> Capture:
    return CAPTURES[request.param]


@pytest.fixture
def spans(capture: Capture, jaeger: Jaeger) -> list[StoredSpan]:
    return stored(jaeger, SENT[capture.id][1])


def test_all_spans_are_there(capture: Capture, spans: list[StoredSpan]) -> None:
    """Jaeger has one span for each event of the dump, and each block is a trace."""
    assert len(spans) == len(capture.events) == len(capture.pair(spans, TICK_ZERO_NS))
    assert len({span.trace_id for span in spans}) == len(capture.blocks)


def test_parents_are_right(capture: Capture, spans: list[StoredSpan]) -> None:
    """Each span hangs under the span of the event that it happened in."""
    pairs = capture.pair(spans, TICK_ZERO_NS)
    ids = {event.number: span.span_id for event, span in pairs}
    for event, span in pairs:
        parent = capture.parent_of(event)
        assert span.parent_span_id == (ids[parent.number] if parent else "")


def test_attributes_are_right(capture: Capture, spans: list[StoredSpan]) -> None:
    """Names, times, and attributes with their types are those that a replay of the file gives, which test_every_capture proves."""
    local = resolve_dump(capture.dump, capture.mapping, model=capture.model).spans
    expected = dict(capture.pair(local, TICK_ZERO_NS))
    for event, span in capture.pair(spans, TICK_ZERO_NS):
        assert (span.name, span.start_ns, span.end_ns) == (expected[event].name, expected[event].start_ns, expected[event].end_ns)
        assert (span.kind, span.status, span.scope, span.flags) == (INTERNAL, 0, expected[event].scope, expected[event].flags)
        assert with_types(span) == with_types(expected[event])


def with_types(span: StoredSpan) -> dict[str, tuple[object, ...]]:
    """Attributes with the types of values and of array items."""
    return {
        key: (value, type(value), [type(item) for item in value] if isinstance(value, tuple) else None)
        for key, value in span.attributes.items()
    }


def test_identifiers_resolve_as_the_maps_say(capture: Capture, spans: list[StoredSpan]) -> None:
    """What Jaeger shows of a delegate event is what the model's maps say of its identifier."""
    for event, span in capture.pair(spans, TICK_ZERO_NS):
        if event.identifier is not None:
            expected = capture.resolution_of(event)
            assert span.attributes["executorch.resolution.status"] == expected.status
            assert span.attributes.get("executorch.debug_handles", ()) == expected.handles


def test_the_resource_is_right(capture: Capture, spans: list[StoredSpan], jaeger: Jaeger) -> None:
    """Service, device, model and mapping stand on the resource, and only what may: the same on all spans of a capture."""
    service = SENT[capture.id][1]
    assert service in jaeger.services()
    (digest,) = {span.resource["executorch.mapping.id"] for span in spans}
    for span in spans:
        assert span.resource == {
            "service.name": service,
            "device.model.identifier": HARDWARE,
            "executorch.model.name": capture.model,
            "executorch.model.version": VERSION,
            "executorch.model.build_id": f"sha256:{digest}",
            "executorch.mapping.id": digest,
        }


def test_jaeger_has_nothing_to_complain_of(capture: Capture, spans: list[StoredSpan], jaeger: Jaeger) -> None:
    """No span of any trace carries a warning, also those of no length and those of another clock."""
    zero = [event for event in capture.events if event.start == event.end]
    assert len([span for span in spans if span.attributes.get("executorch.time.duration_ns") == 0]) == len(zero)
    assert [jaeger.warnings(trace_id) for trace_id in {span.trace_id for span in spans}] == [{}] * len(capture.blocks)


def test_the_captures_hold_what_jaeger_dislikes() -> None:
    """Among what is sent are events of no length, and events outside their call: the test above sees both."""
    events = [(CAPTURES[capture_id], event) for capture_id in SENT for event in CAPTURES[capture_id].events]
    assert any(event.start == event.end for _, event in events)
    assert any(parent and event.start < parent.start for capture, event in events for parent in [capture.parent_of(event)])


def test_sending_again_changes_nothing(bridge: Bridge, sent: None, jaeger: Jaeger) -> None:
    """Each request sent a second time leaves what Jaeger shows as it was, whichever the door."""
    before = {service: stored(jaeger, service) for _, service in SENT.values()}
    for capture_id, (door, service) in SENT.items():
        door(bridge, CAPTURES[capture_id], service)
    bridge.settle()
    assert {service: stored(jaeger, service) for _, service in SENT.values()} == before


def test_an_inference_lies_under_the_span_of_its_app(bridge: Bridge, jaeger: Jaeger) -> None:
    """With the app's trace context an inference is a part of the app's trace, without a warning, and remote from its parent."""
    capture = CAPTURES["two_backends/run"]
    trace_id, span_id = bytes.fromhex("0af7651916cd43dd8448eb211c80319c"), bytes.fromhex("b7ad6b7169203331")
    app = app_span(trace_id, span_id)
    with grpc.insecure_channel(jaeger.otlp_grpc.removeprefix("http://")) as channel:
        TraceServiceStub(channel).Export(app, timeout=10)
    export_events(bridge, capture, "photo-editor", context=TraceContext(trace_id, span_id, flags=1, state="vendor=1"))
    bridge.settle()

    spans = {span.span_id: span for span in jaeger.trace(trace_id.hex())}
    inference = [event for event in capture.events if event.block_name == "Execute"]
    assert len(spans) == 1 + len(inference)
    (root,) = [span for span in spans.values() if span.name.startswith("execute ")]
    assert root.parent_span_id == span_id.hex()
    assert root.flags & IS_REMOTE == IS_REMOTE
    assert [span.name for span in spans.values() if not span.parent_span_id] == ["detect faces"]
    assert all(span.parent_span_id in spans for span in spans.values() if span.parent_span_id)
    assert {span.trace_state for span in spans.values() if span.name != "detect faces"} == {"vendor=1"}
    assert jaeger.warnings(trace_id.hex()) == {}


def app_span(trace_id: bytes, span_id: bytes) -> ExportTraceServiceRequest:
    """A span of an app that lasts a second from tick 0 on."""
    span = Span(
        trace_id=trace_id,
        span_id=span_id,
        name="detect faces",
        kind=Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=TICK_ZERO_NS,
        end_time_unix_nano=TICK_ZERO_NS + 1_000_000_000,
    )
    resource = Resource(attributes=[KeyValue(key="service.name", value=AnyValue(string_value="photo-editor"))])
    scope = ScopeSpans(scope=InstrumentationScope(name="app"), spans=[span])
    return ExportTraceServiceRequest(resource_spans=[ResourceSpans(resource=resource, scope_spans=[scope])])


def test_a_failed_inference_shows_as_an_error(bridge: Bridge, jaeger: Jaeger) -> None:
    """An inference that the sender calls failed has the status ERROR and the name of ExecuTorch's error on its root only."""
    export_events(bridge, CAPTURES["toy_backend_int/run"], "failing", error=0x12)
    bridge.settle()
    failed = [span for span in stored(jaeger, "failing") if span.status == ERROR]
    assert [(span.parent_span_id, span.attributes["error.type"]) for span in failed] == [("", "InvalidArgument")]
    assert failed[0].name == "execute toy_backend_int.forward"


def test_without_an_anchor_the_first_receipt_counts(bridge: Bridge, jaeger: Jaeger) -> None:
    """A request that leaves its time to the bridge shows at the time of its first receipt, however often it is sent."""
    capture = CAPTURES["mixed_ops/run"]
    query = {"model": f"{capture.model}@{VERSION}", "resource.service.name": "no-anchor"}
    before_ns = time.time_ns()
    shown: list[Sequence[StoredSpan]] = []
    for _ in range(2):
        url = f"http://{bridge.http}/v1/etdump"
        httpx.post(url, params=query, content=capture.dump, trust_env=False).raise_for_status()
        bridge.settle()
        traces = jaeger.search("no-anchor", start_ns=before_ns - HOUR_NS, end_ns=before_ns + HOUR_NS)
        shown.append([span for trace_id in sorted(traces) for span in traces[trace_id]])
    assert shown[0] == shown[1]
    assert len(shown[0]) == len(capture.events)
    assert before_ns < max(span.end_ns for span in shown[0]) < time.time_ns()
