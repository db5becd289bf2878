"""
What Jaeger shows of inferences that are more than a file: a part of an app's trace, failed, of no known time.

They go through a running bridge; the app's own span goes to Jaeger directly, as it would.
"""

import time
from collections.abc import Iterator

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span
from support.captures import CAPTURES
from support.doors import VERSION, Bridge, export_events, post, running_bridge
from support.etdump_writer import ProfileEvent, RunData, write_etdump
from support.jaeger import Jaeger, StoredSpan
from support.spans import TICK_ZERO_NS

from otel_bridge.model.events import TraceContext

HOUR_NS = 3_600_000_000_000
ERROR = 2
REMOTE = 0x300
"""`Span.flags`: it is known whether the parent is remote, and it is."""
APP = "photo-editor"
APP_SPAN_ID = bytes.fromhex("b7ad6b7169203331")


@pytest.fixture(scope="module")
def bridge(jaeger: Jaeger, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bridge]:
    with running_bridge(jaeger, tmp_path_factory.mktemp("bridge")) as running:
        yield running


def send_app_span(jaeger: Jaeger, trace_id: bytes) -> None:
    """A span of an app that lasts a second from tick 0 on."""
    span = Span(
        trace_id=trace_id,
        span_id=APP_SPAN_ID,
        name="detect faces",
        kind=Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=TICK_ZERO_NS,
        end_time_unix_nano=TICK_ZERO_NS + 1_000_000_000,
    )
    resource = Resource(attributes=[KeyValue(key="service.name", value=AnyValue(string_value=APP))])
    scope = ScopeSpans(scope=InstrumentationScope(name="app"), spans=[span])
    request = ExportTraceServiceRequest(resource_spans=[ResourceSpans(resource=resource, scope_spans=[scope])])
    with grpc.insecure_channel(jaeger.otlp_grpc.removeprefix("http://")) as channel:
        TraceServiceStub(channel).Export(request, timeout=10)  # type: ignore[no-untyped-call]  # generated without types


def stored(jaeger: Jaeger, service: str, around_ns: int = TICK_ZERO_NS) -> list[StoredSpan]:
    traces = jaeger.search(service, start_ns=around_ns - HOUR_NS, end_ns=around_ns + HOUR_NS)
    return [span for trace_id in sorted(traces) for span in traces[trace_id]]


def test_an_inference_lies_under_the_span_of_its_app(bridge: Bridge, jaeger: Jaeger) -> None:
    """With the app's trace context an inference is a part of the app's trace, with the app's span as its remote parent."""
    trace_id = bytes.fromhex("0af7651916cd43dd8448eb211c80319c")
    capture = CAPTURES["two_backends/run"]
    send_app_span(jaeger, trace_id)
    export_events(bridge, capture, APP, context=TraceContext(trace_id, APP_SPAN_ID, flags=1, state="vendor=1"))
    bridge.settle()

    spans = {span.span_id: span for span in jaeger.trace(trace_id.hex())}
    app = spans.pop(APP_SPAN_ID.hex())
    (root,) = [span for span in spans.values() if span.parent_span_id == app.span_id]
    assert root.name == "execute two_backends.forward"
    assert root.flags & REMOTE == REMOTE
    assert len(spans) == len([event for event in capture.events if event.block_name == "Execute"])
    assert all(span.parent_span_id in spans for span in spans.values() if span is not root)
    assert {span.trace_state for span in spans.values()} == {"vendor=1"}
    assert jaeger.warnings(trace_id.hex()) == {}


def test_an_unsampled_app_is_linked(bridge: Bridge, jaeger: Jaeger) -> None:
    """Where the app does not record its trace, the inference has a trace of its own, whose root links to the app's span."""
    trace_id = bytes.fromhex("1bf7651916cd43dd8448eb211c80319c")
    export_events(bridge, CAPTURES["two_backends/run"], "unsampled", context=TraceContext(trace_id, APP_SPAN_ID, flags=0))
    bridge.settle()
    assert jaeger.trace(trace_id.hex()) == []
    linked = {span.name: span.links for span in stored(jaeger, "unsampled") if span.links}
    assert linked == {"execute two_backends.forward": ((trace_id.hex(), APP_SPAN_ID.hex()),)}


def test_a_failed_inference_shows_as_an_error(bridge: Bridge, jaeger: Jaeger) -> None:
    """The root of an inference that the sender calls failed, and it alone, is ERROR, with the name of ExecuTorch's error."""
    export_events(bridge, CAPTURES["toy_backend_int/run"], "failing", error=0x12)
    bridge.settle()
    (failed,) = [span for span in stored(jaeger, "failing") if span.status == ERROR]
    assert (failed.name, failed.parent_span_id) == ("execute toy_backend_int.forward", "")
    assert failed.attributes["error.type"] == "InvalidArgument"


def test_an_inference_that_never_ended_shows_as_an_error(bridge: Bridge, jaeger: Jaeger) -> None:
    """Instructions without the event that closes an inference: a root is made for them, and it is ERROR."""
    call = ProfileEvent(name="DELEGATE_CALL", chain=0, instruction=0, start=10, end=40)
    dump = write_etdump([RunData("Execute", [call])])
    query = {"anchor": f"0={TICK_ZERO_NS}", "resource.service.name": "crashing"}
    post(bridge, dump, model=f"toy_backend_int@{VERSION}", **query)
    bridge.settle()
    child, root = sorted(stored(jaeger, "crashing"), key=lambda span: span.name)
    assert (root.name, root.status, root.attributes["error.type"]) == ("execute toy_backend_int.forward", ERROR, "_OTHER")
    assert (child.name, child.status, child.parent_span_id) == ("delegate ToyProfBackend", 0, root.span_id)
    assert jaeger.warnings(root.trace_id) == {}


def test_without_an_anchor_the_first_receipt_counts(bridge: Bridge, jaeger: Jaeger) -> None:
    """A request that leaves its time to the bridge shows at the time of its first receipt, however often it is sent."""
    capture = CAPTURES["mixed_ops/run"]
    before_ns = time.time_ns()
    shown = []
    for _ in range(2):
        post(bridge, capture.dump, model=f"{capture.model}@{VERSION}", **{"resource.service.name": "no-anchor"})
        bridge.settle()
        shown.append(stored(jaeger, "no-anchor", before_ns))
    assert shown[0] == shown[1]
    assert len(shown[0]) == len(capture.events)
    assert before_ns < max(span.end_ns for span in shown[0]) < time.time_ns()
