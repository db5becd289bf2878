"""Certificates that are wrong, expired and rotated, by the real process: events wait, and nothing is restarted."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from support.certificates import Certificates, expired, make_certificates
from support.otlp_sink import OtlpSink
from support.scenes import STREAM, batch_of, execute, runtime
from support.service import Service, running

from otel_bridge.wire.codec import request_of

QUICK = {"EXPORT__RETRY_INITIAL_S": "0.05", "EXPORT__RETRY_MAX_S": "0.1"}


def mount(certificates: Certificates, folder: Path) -> None:
    """Put what a client needs where the bridge looks for it."""
    for source, name in ((certificates.authority, "ca"), (certificates.client, "cert"), (certificates.client_key, "key")):
        shutil.copy(source, folder / f"{name}.pem")


def send(service: Service, sequence: int) -> None:
    """Let the bridge accept one event."""
    batch = batch_of((execute(), [runtime("Method::execute", 0, 5)]), stream=replace(STREAM, sequence=sequence))
    assert service.profiling.ExportEvents(request_of(batch)).accepted == 1


def show(sink: OtlpSink, certificates: Certificates) -> None:
    """Let the back end have these certificates from now on."""
    sink.go_away()
    sink.tls = certificates
    sink.come_back()


def assert_waits(service: Service, failures: int) -> None:
    """Requests fail for a certificate, and nothing is given up."""
    service.process.wait_until(lambda: service.counts("exporter_failed_requests").total() >= failures)
    assert service.ledger().waiting == 1
    assert service.counts("exporter_circuit")["closed",] == 0


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_certificates_come_and_go(protocol: str, tmp_path: Path) -> None:
    """
    Mutual TLS: a back end of another authority gets nothing until the bridge's files are replaced; one whose certificate has
    expired gets nothing until it has a new one. Every event arrives, and the bridge is never restarted.
    """
    folders = [tmp_path / name for name in ("old", "new", "expired", "mounted")]
    for folder in folders:
        folder.mkdir()
    old, new = make_certificates(folders[0], name="old"), make_certificates(folders[1], name="new")
    mount(old, folders[3])
    with OtlpSink(tls=new, client_must_show=True) as sink:
        egress = {
            "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
            "OTEL_EXPORTER_OTLP_ENDPOINT": sink.grpc_endpoint if protocol == "grpc" else sink.http_endpoint,
            "OTEL_EXPORTER_OTLP_CERTIFICATE": str(folders[3] / "ca.pem"),
            "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": str(folders[3] / "cert.pem"),
            "OTEL_EXPORTER_OTLP_CLIENT_KEY": str(folders[3] / "key.pem"),
        }
        if protocol == "http/protobuf":  # the general variable is a base, without a path
            egress["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] = egress.pop("OTEL_EXPORTER_OTLP_ENDPOINT")
        with running(tmp_path, sink, **egress, **QUICK) as service:
            send(service, 1)
            assert_waits(service, 4)
            assert sink.received == []
            mount(new, folders[3])
            service.settle()
            assert len(sink.spans) == 1

            show(sink, expired(new, folders[2]))
            send(service, 2)
            assert_waits(service, int(service.counts("exporter_failed_requests").total()) + 4)
            assert len(sink.received) == 1
            show(sink, new)
            service.settle()
            assert len(sink.spans) == 2
            ledger = service.ledger()
            assert (ledger.accepted, ledger.emitted, ledger.dropped) == (2, 2, 0)
    log = service.process.log.read_text().lower()
    assert "certificate" in log
    assert "traceback" not in log
