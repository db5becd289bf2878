"""Certificates are made once a session; an exporter is made as the bridge makes it."""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from support.certificates import Certificates, make_certificates
from support.otlp_sink import OtlpSink

from otel_bridge.config.egress import ExportConfig
from otel_bridge.export.build import build_exporter
from otel_bridge.export.protocol import Exporter, Sent

# gRPC starts its poller with the first channel and joins it when the last one is garbage. In tests that may be at any time, on
# a running loop, where blockbuster rightly stops it half-way. One more count keeps the poller for the life of the process.
grpc.aio.init_grpc_aio()

Build = Callable[..., Exporter]
Send = Callable[..., Sent]


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def foreign_authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("foreign"), name="foreign").authority


@pytest.fixture(params=["grpc", "http/protobuf"])
def protocol(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def build(protocol: str) -> Build:
    """Make the exporter of `protocol` for a sink, without retries unless asked for."""

    def build_for(sink: OtlpSink, *, watch: Any = None, **settings: Any) -> Exporter:
        endpoint = sink.grpc_endpoint if protocol == "grpc" else sink.http_endpoint
        config = ExportConfig(**{"protocol": protocol, "endpoint": endpoint, "retry_max_elapsed_s": 0.0} | settings)
        return build_exporter(config, watch=watch)

    return build_for


@pytest.fixture
def send(build: Build, run: Callable[[Coroutine[Any, Any, Sent]], Sent]) -> Send:
    """Send one payload by an exporter that is made for it."""

    def send_once(sink: OtlpSink, payload: bytes = b"", **settings: Any) -> Sent:
        exporter = build(sink, **settings)

        async def send_and_close() -> Sent:
            try:
                return await exporter.send(payload)
            finally:
                await exporter.close()

        return run(send_and_close())

    return send_once
