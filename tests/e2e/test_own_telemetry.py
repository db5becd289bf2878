"""What the bridge says of itself, as a back end sees it: against the process, with the back end of the devices' spans."""

import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from support.otlp_answers import Answer
from support.otlp_sink import OtlpSink
from support.scenes import STREAM, batch_of, delegated, execute, runtime
from support.service import Service, running

from otel_bridge.v1 import profiling_pb2 as pb
from otel_bridge.wire.codec import request_of

OWN = "otel-bridge"
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
EXPORT_EVENTS = "otel_bridge.v1.ProfilingService/ExportEvents"
STREAM_EVENTS = "otel_bridge.v1.ProfilingService/StreamEvents"
WAY = [EXPORT_EVENTS, "spool.append", "haul", "resolve", "export"]


@pytest.fixture
def sink() -> Iterator[OtlpSink]:
    """A back end for each test."""
    with OtlpSink() as sink:
        yield sink


def an_inference(sequence: int) -> pb.ExportEventsRequest:
    """A request with two events, which make two spans."""
    stream = replace(STREAM, sequence=sequence, resource=(("service.name", "app"),))
    return request_of(batch_of((execute(), [delegated("x", 0, 1, 2), runtime("Method::execute", 0, 5)]), stream=stream))


def own_settings(sink: OtlpSink) -> dict[str, str]:
    """Trace everything, to the back end to which devices' spans go as well."""
    return {
        "TELEMETRY__OWN_TRACES_RATIO": "1",
        "TELEMETRY__OWN_ENDPOINT": sink.grpc_endpoint,
        "TELEMETRY__OWN_HEADERS": "x-own=1",
    }


def own_spans(service: Service) -> dict[str, list[Span]]:
    """The bridge's own spans, by name."""
    found: dict[str, list[Span]] = {}
    for span in service.spans(OWN):
        found.setdefault(span.name, []).append(span)
    return found


def test_a_request_is_followed_to_the_back_end(sink: OtlpSink, tmp_path: Path) -> None:
    """
    Of a request there are spans from its sender's to its export, and nothing else: how they leave makes none.

    The own endpoint is the destination, the worst case; the second request comes after the first one's spans have left.
    """
    with running(tmp_path, sink, **own_settings(sink)) as service:
        for sequence in range(2):
            service.profiling.ExportEvents(
                an_inference(sequence), metadata=[("traceparent", f"00-{TRACE}-{SPAN}-01"), ("x-other", "y")]
            )
            service.process.wait_until(lambda done=sequence + 1: len(service.spans(OWN)) >= done * len(WAY))
        assert service.stop() == 0
        assert len(service.spans("app")) == 4
        spans = own_spans(service)
        assert Counter({name: len(each) for name, each in spans.items()}) == Counter(dict.fromkeys(WAY, 2))
        for number in range(2):
            received, append, haul, resolve, export = (spans[name][number] for name in WAY)
            assert (received.trace_id.hex(), received.parent_span_id.hex()) == (TRACE, SPAN)
            assert (append.trace_id.hex(), append.parent_span_id) == (TRACE, received.span_id)
            assert (haul.parent_span_id, [link.span_id for link in haul.links]) == (b"", [received.span_id])
            assert {resolve.parent_span_id, export.parent_span_id} == {haul.span_id}
    own = [each for each in sink.received if "x-own" in each.headers]
    assert len(own) >= 2


def test_own_spans_never_stand_in_the_way(sink: OtlpSink, tmp_path: Path) -> None:
    """An own endpoint that is away costs own spans, and no event; the bridge stops all the same."""
    settings = own_settings(sink) | {"TELEMETRY__OWN_ENDPOINT": "http://127.0.0.1:1"}
    with running(tmp_path, sink, **settings) as service:
        assert service.profiling.ExportEvents(an_inference(0)).accepted == 2
        service.settle()
        assert len(service.spans("app")) == 2
        assert service.stop() == 0
    assert service.spans(OWN) == []


def test_faults_are_told_as_the_conventions_have_it(sink: OtlpSink, tmp_path: Path) -> None:
    """A server's fault makes a span an error, a client's does not; both doors say what they answered; health makes no spans."""
    with running(tmp_path, sink, **own_settings(sink)) as service:
        with pytest.raises(grpc.RpcError):
            service.channel.unary_unary(f"/{EXPORT_EVENTS}")(b"\xff")
        assert service.post(b"none").status_code == 400
        refused = Answer.grpc_failure(grpc.StatusCode.PERMISSION_DENIED, "no")
        sink.judge = lambda payload: refused if b"executorch." in payload else None  # the device's spans, not the bridge's own
        service.profiling.ExportEvents(an_inference(0))
        service.settle()
        assert service.get("/readyz").is_success
        assert service.stop() == 0
        spans = own_spans(service)
    assert set(spans) == {*WAY, "POST /v1/etdump"}
    (posted,) = spans["POST /v1/etdump"]
    told = {each.key: each.value for span in (*spans[EXPORT_EVENTS], posted) for each in span.attributes}
    assert told["http.response.status_code"].int_value == 400
    codes = [
        each.value.string_value
        for span in spans[EXPORT_EVENTS]
        for each in span.attributes
        if each.key == "rpc.response.status_code"
    ]
    assert sorted(codes) == ["INVALID_ARGUMENT", "OK"]
    assert {span.status.code for span in (*spans[EXPORT_EVENTS], posted)} == {Status.STATUS_CODE_UNSET}
    assert spans["export"][0].status.code == Status.STATUS_CODE_ERROR


def test_a_sender_that_goes_is_no_fault(sink: OtlpSink, tmp_path: Path) -> None:
    """A call that its client gives up, while it waits for its turn or is being read, is told as that, and is no error."""
    with running(tmp_path, sink, INGRESS__MAX_REQUESTS="1", INGRESS__MAX_WAIT_S="60", **own_settings(sink)) as service:

        def await_count(instrument: str, count: int) -> None:
            service.process.wait_until(lambda: service.counts(instrument)[()] == count)

        ended = threading.Event()
        silent = service.channel.stream_unary(f"/{EXPORT_EVENTS}").future(iter(ended.wait, True))
        await_count("receiver_inside_requests", 1)
        waiting = service.profiling.ExportEvents.future(an_inference(0))
        await_count("receiver_waiting_requests", 1)
        waiting.cancel()
        await_count("receiver_waiting_requests", 0)
        silent.cancel()
        ended.set()
        await_count("receiver_inside_requests", 0)
        assert service.counts("receiver_requests") == {("disconnected", "grpc"): 2}
        assert service.stop() == 0
        (spans,) = own_spans(service).values()
    codes = [each.value.string_value for span in spans for each in span.attributes if each.key == "rpc.response.status_code"]
    assert codes == ["CANCELLED"] * 2
    assert {span.status.code for span in spans} == {Status.STATUS_CODE_UNSET}


def test_each_request_of_a_stream_is_a_span(sink: OtlpSink, tmp_path: Path) -> None:
    """A stream has a span for each request, under its sender's, which says how that was answered; and none for itself."""
    with running(tmp_path, sink, **own_settings(sink)) as service:
        method = service.channel.stream_stream(f"/{STREAM_EVENTS}")
        bodies = iter([an_inference(0).SerializeToString(), b"\xff"])
        with pytest.raises(grpc.RpcError):
            list(method(bodies, metadata=[("traceparent", f"00-{TRACE}-{SPAN}-01")]))
        assert service.stop() == 0
        spans = own_spans(service)[STREAM_EVENTS]
    assert {(span.trace_id.hex(), span.parent_span_id.hex()) for span in spans} == {(TRACE, SPAN)}
    codes = [each.value.string_value for span in spans for each in span.attributes if each.key == "rpc.response.status_code"]
    assert sorted(codes) == ["INVALID_ARGUMENT", "OK"]
