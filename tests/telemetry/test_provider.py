"""Own telemetry as others see it: `/metrics`, and OTLP where it is switched on."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc import (
    MetricsServiceServicer,
    add_MetricsServiceServicer_to_server,
)
from prometheus_client.parser import text_string_to_metric_families
from support.otlp_answers import Answer
from support.otlp_sink import OtlpSink

from otel_bridge.telemetry.instruments import INSTRUMENTS, Kind
from otel_bridge.telemetry.process import cpu_seconds, memory_rss_bytes
from otel_bridge.telemetry.provider import OwnExport, Provider

ACCEPTED = "otel_bridge.receiver.accepted_events"


class Sink(MetricsServiceServicer):
    """An OTLP/gRPC back end that keeps what it is sent: requests, each with its metadata."""

    def __init__(self) -> None:
        self.received: list[tuple[ExportMetricsServiceRequest, dict[str, str]]] = []
        self.server = grpc.server(ThreadPoolExecutor(2))
        add_MetricsServiceServicer_to_server(self, self.server)
        self.endpoint = f"http://127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"

    def Export(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802 - the protocol names it
        """Keep a request."""
        self.received.append((request, {key: str(value) for key, value in context.invocation_metadata()}))
        return ExportMetricsServiceResponse()


@pytest.fixture
def sink() -> Iterator[Sink]:
    sink = Sink()
    sink.server.start()
    yield sink
    sink.server.stop(None).wait()


@pytest.fixture
def provide() -> Iterator[Callable[..., Provider]]:
    """Make providers that are shut down at the end."""
    providers: list[Provider] = []

    def make(export: OwnExport | None = None) -> Provider:
        providers.append(Provider(version="1.2.3", export=export))
        return providers[-1]

    yield make
    for provider in providers:
        provider.shutdown()


def samples(exposition: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """The samples of a Prometheus text, by name and labels, as Prometheus's own parser reads them."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(exposition.decode())
        for sample in family.samples
    }


def test_metrics_read_like_the_collectors(provide: Callable[..., Provider]) -> None:
    """In Prometheus form a counter ends in `_total`, a unit is spelt out once, and labels are the declared ones only."""
    provider = provide()
    telemetry = provider.telemetry
    telemetry.add(ACCEPTED, 5)
    telemetry.add("otel_bridge.receiver.requests", 1, outcome="ok", transport="grpc")
    telemetry.observe("otel_bridge.exporter.send_duration", 0.003, destination="d")
    telemetry.watch("otel_bridge.spool.size_bytes", lambda: 42)
    seen = samples(provider.exposition())
    assert seen["otel_bridge_receiver_accepted_events_total", ()] == 5
    assert seen["otel_bridge_receiver_requests_total", (("outcome", "ok"), ("transport", "grpc"))] == 1
    assert seen["otel_bridge_spool_size_bytes", ()] == 42
    assert seen["otel_bridge_exporter_send_duration_seconds_bucket", (("destination", "d"), ("le", "0.002"))] == 0
    assert seen["otel_bridge_exporter_send_duration_seconds_bucket", (("destination", "d"), ("le", "0.005"))] == 1
    assert seen["otel_bridge_process_cpu_seconds_total", ()] > 0
    assert {dict(labels).get("service_version") for name, labels in seen if name == "target_info"} == {"1.2.3"}


def test_every_instrument_has_a_help_line(provide: Callable[..., Provider]) -> None:
    """`/metrics` explains each series with the sentence of the table."""
    provider = provide()
    for each in INSTRUMENTS:
        labels = dict.fromkeys(each.labels, "x")
        if each.kind is Kind.COUNTER:
            provider.telemetry.add(each.name, 1, **labels)
        elif each.kind is Kind.HISTOGRAM:
            provider.telemetry.observe(each.name, 1, **labels)
        elif not each.name.startswith("otel_bridge.process."):  # those are watched by the provider itself
            provider.telemetry.watch(each.name, lambda: 1, **labels)
    text = provider.exposition().decode()
    for each in INSTRUMENTS:
        assert f" {each.description}\n" in text


def test_two_bridges_in_one_process_do_not_share(provide: Callable[..., Provider]) -> None:
    """Providers are independent: neither counts what the other is told."""
    one, two = provide(), provide()
    one.telemetry.add(ACCEPTED, 5)
    two.telemetry.add(ACCEPTED, 7)
    name = ("otel_bridge_receiver_accepted_events_total", ())
    assert (samples(one.exposition())[name], samples(two.exposition())[name]) == (5, 7)


def test_the_exposition_does_not_block_the_loop(provide: Callable[..., Provider], run: Callable[..., Any]) -> None:
    """`/metrics` may be answered on the event loop."""
    provider = provide()

    async def scrape() -> bytes:
        provider.telemetry.add(ACCEPTED, 5)
        return provider.exposition()

    assert b"otel_bridge_process_memory_rss_bytes" in run(scrape())


def test_metrics_go_out_by_otlp_where_asked(sink: Sink) -> None:
    """With an endpoint of its own, the bridge sends its instruments there, under its own service name."""
    provider = Provider(version="1.2.3", export=OwnExport(sink.endpoint, headers={"x-key": "own"}))
    provider.telemetry.add(ACCEPTED, 5)
    provider.shutdown()
    ((request, metadata),) = sink.received
    assert metadata["x-key"] == "own"
    (sent,) = request.resource_metrics
    resource = {each.key: each.value.string_value for each in sent.resource.attributes}
    assert (resource["service.name"], resource["service.version"]) == ("otel-bridge", "1.2.3")
    (metric,) = [each for each in sent.scope_metrics[0].metrics if each.name == ACCEPTED]
    assert metric.sum.data_points[0].as_int == 5


def test_both_signals_go_out_over_http_where_asked() -> None:
    """Over HTTP each signal has its path below the endpoint, and both the headers; a span that is sent makes no other."""
    with OtlpSink() as sink:
        endpoint = sink.http_endpoint.removesuffix("/v1/traces")
        export = OwnExport(endpoint, over_http=True, headers={"x-key": "own"}, traces_ratio=1)
        provider = Provider(version="1.2.3", export=export)
        with provider.traces.request("a request", None, {}):
            pass
        provider.shutdown()
        received = {each.path: each for each in sink.received}
    assert {each.transport for each in sink.received} == {"http"}
    assert {path: each.headers["x-key"] for path, each in received.items()} == {"/v1/metrics": "own", "/v1/traces": "own"}
    (resource,) = received["/v1/traces"].request.resource_spans
    assert [span.name for scope in resource.scope_spans for span in scope.spans] == ["a request"]
    told = {each.key: each.value.string_value for each in resource.resource.attributes}
    assert (told["service.name"], told["service.version"]) == ("otel-bridge", "1.2.3")


def test_a_stop_waits_for_one_request_that_fails() -> None:
    """Where own spans are not taken, a stop drops the rest with the first request that fails: each would take its timeout."""
    is_full = threading.Event()
    with OtlpSink() as sink:
        sink.judge = lambda _payload: sink.answer if is_full.wait(20) else None
        sink.answer = Answer(status=400, delay_s=0.5)
        endpoint = sink.http_endpoint.removesuffix("/v1/traces")
        provider = Provider(version="1", export=OwnExport(endpoint, over_http=True, metrics=False, traces_ratio=1))
        for _ in range(2000):  # four requests
            with provider.traces.request("a request", None, {}):
                pass
        is_full.set()
        provider.shutdown()
        assert 1 <= len(sink.received) < 4


def test_egress_settings_are_not_own_settings(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of OTEL_* reaches own telemetry: no endpoint, no key in the headers, no switch that turns it off."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=secret")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "unheard of")
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "somebody else")
    provider = Provider(version="1.2.3", export=OwnExport(sink.endpoint))
    provider.telemetry.add(ACCEPTED, 5)
    provider.shutdown()
    assert sink.received
    for request, metadata in sink.received:
        assert "authorization" not in metadata
        assert b"somebody else" not in request.SerializeToString()


def test_nothing_leaves_without_an_endpoint(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables of egress do not switch own telemetry on."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", sink.endpoint)
    provider = Provider(version="1.2.3")
    provider.telemetry.add(ACCEPTED, 5)
    provider.shutdown()
    assert sink.received == []


def test_the_process_is_measured() -> None:
    """Processor time grows with work, and memory with what is kept."""
    before = cpu_seconds()
    memory = memory_rss_bytes()
    kept = bytearray(b"\x01" * 32_000_000)
    assert cpu_seconds() > before
    if memory is not None:  # no /proc: not known
        assert (memory_rss_bytes() or 0) > memory + len(kept) // 2
