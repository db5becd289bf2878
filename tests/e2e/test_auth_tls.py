"""Certificates at a real bridge: rotated while it runs, and in place of tokens."""

import json
from pathlib import Path

import grpc
from support.certificates import CLIENT_URI, make_certificates
from support.otlp_sink import OtlpSink
from support.secured import Secured
from support.service import Service, WayIn, running

RECORD = Path(__file__).parents[1] / "fixtures" / "toy_backend_int" / "model.etrecord"


def test_a_certificate_is_rotated(tmp_path: Path) -> None:
    """New certificate files count without a restart, at both doors."""
    secured = Secured(tmp_path, make_certificates(tmp_path, name="first"))
    made = secured.certificates
    with OtlpSink() as sink, running(tmp_path, sink, way_in=secured.way_in, **secured.settings) as service:
        new = make_certificates(tmp_path, name="second")
        for old_file, new_file in ((made.server, new.server), (made.server_key, new.server_key)):
            new_file.replace(old_file)
        service.way_in = WayIn(new.authority, secured.way_in.token)
        service.process.wait_until(lambda: service.get("/metrics").is_success)
        service.process.wait_until(lambda: _answers(service))
    assert f"{made.server} and {made.server_key} changed, and was read again" in service.process.log.read_text()


def _answers(service: Service) -> bool:
    assert service.way_in is not None
    with service.way_in.channel(service.grpc) as channel:
        try:
            channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=20)
        except grpc.RpcError:
            return False
    return True


def test_a_certificate_stands_for_a_token(tmp_path: Path) -> None:
    """A pipeline that shows a listed certificate needs no token; health over HTTP is open, and gRPC needs the certificate."""
    secured = Secured(tmp_path, make_certificates(tmp_path))
    made = secured.certificates
    listed = json.dumps({CLIENT_URI: ["mappings:write"]})
    settings = {"SERVER__TLS_CLIENT_CA": str(made.authority), "AUTH__CERTIFICATES": listed}
    with OtlpSink() as sink, running(tmp_path, sink, way_in=secured.way_in, **secured.settings, **settings) as secured.service:
        own = ("--cert", made.client, "--key", made.client_key)
        done = secured.command("mapping", "upload", RECORD, "--build-id", "one", *own)
        assert (done.exit_code, done.stderr) == (0, "")
        assert "lacks the scope mappings:read" in secured.command("mapping", "list", *own).stderr
        assert secured.command("mapping", "list", *own, token=secured.way_in.token).exit_code == 0
        assert secured.service.get("/metrics").status_code == 401
        assert secured.command("mapping", "list", token=secured.way_in.token).exit_code == 1
        secured.way_in.context.load_cert_chain(made.client, made.client_key)
        assert secured.service.get("/metrics").is_success
