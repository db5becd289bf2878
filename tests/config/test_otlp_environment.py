"""The standard variables OTEL_EXPORTER_OTLP_*."""

from pathlib import Path

import pytest

from otel_bridge.config.load import load
from otel_bridge.errors import ConfigError

HEADERS_RULE = "must be NAME=VALUE,NAME=VALUE,... with commas inside values written as %2C"

VALUES = [
    ("ENDPOINT", "http://c:1", "endpoint", "http://c:1"),
    ("PROTOCOL", "http/protobuf", "protocol", "http/protobuf"),
    ("TIMEOUT", "2500", "timeout_ms", 2500),
    ("COMPRESSION", "gzip", "compression", "gzip"),
    ("INSECURE", "TRUE", "insecure", True),
    ("HEADERS", "X-Key=a%20b%3D, tenant = one ,empty=", "headers", {"x-key": "a b=", "tenant": "one", "empty": ""}),
]


@pytest.mark.parametrize(("end", "text", "name", "value"), VALUES, ids=[row[0] for row in VALUES])
def test_variables(end: str, text: str, name: str, value: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """A standard variable sets its setting; that for traces wins over the general one; an empty one is an unset one."""
    default = getattr(load(None).export, name)
    assert default != value
    monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_METRICS_{end}", text)
    monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{end}", "")
    assert getattr(load(None).export, name) == default
    monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{end}", text)
    assert getattr(load(None).export, name) == value
    monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{end}", "nonsense \n")
    monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_TRACES_{end}", text)
    assert getattr(load(None).export, name) == value


def test_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CERTIFICATE, CLIENT_KEY and CLIENT_CERTIFICATE name files."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "https://c:1")
    for end in ("CERTIFICATE", "CLIENT_KEY", "CLIENT_CERTIFICATE"):
        (tmp_path / end).write_text("")
        monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{end}", str(tmp_path / end))
    export = load(None).export
    found = (export.certificate, export.client_key, export.client_certificate)
    assert found == (tmp_path / "CERTIFICATE", tmp_path / "CLIENT_KEY", tmp_path / "CLIENT_CERTIFICATE")


@pytest.mark.parametrize(
    ("variable", "text", "protocol", "endpoint"),
    [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318", "http/protobuf", "http://c:4318/v1/traces"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318/", "http/protobuf", "http://c:4318/v1/traces"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c/base/", "http/protobuf", "http://c/base/v1/traces"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://c/base?k=v", "http/protobuf", "https://c/base/v1/traces?k=v"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://c:4318", "http/protobuf", "http://c:4318/"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://c:4318/", "http/protobuf", "http://c:4318/"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://c/mine", "http/protobuf", "http://c/mine"),
        ("OTEL_BRIDGE_EXPORT__ENDPOINT", "http://c:4318", "http/protobuf", "http://c:4318/v1/traces"),
        ("OTEL_BRIDGE_EXPORT__ENDPOINT", "http://c:4318/", "http/protobuf", "http://c:4318/"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4317", "grpc", "http://c:4317"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://c:4317", "grpc", "http://c:4317"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "c:4317", "grpc", "c:4317"),
    ],
)  # fmt: skip
def test_endpoints(variable: str, text: str, protocol: str, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With OTLP/HTTP the general endpoint is a base, that for traces is complete; with gRPC both are used as they are."""
    monkeypatch.setenv(variable, text)
    assert load(None, {"export.protocol": protocol}).export.endpoint == endpoint


def test_the_protocol_may_come_from_any_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the general endpoint is a base depends on the protocol in force, wherever that is set."""
    path = tmp_path / "bridge.toml"
    path.write_text('[export]\nprotocol = "http/protobuf"\n')
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318/base")
    assert load(path).export.endpoint == "http://c:4318/base/v1/traces"
    assert load(path, {"export.endpoint": "http://c:4318/base"}).export.endpoint == "http://c:4318/base"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    assert load(path).export.endpoint == "http://c:4318/base"


@pytest.mark.parametrize(
    ("endpoint", "insecure", "secure", "target"),
    [
        ("http://c:1", False, False, "c:1"),
        ("https://c:1", True, True, "c:1"),
        ("c:1", False, True, "c:1"),
        ("c:1", True, False, "c:1"),
        ("https://c/", False, True, "c:443"),
        ("http://[::1]", False, False, "[::1]:80"),
    ],
)
def test_scheme_decides(endpoint: str, *, insecure: bool, secure: bool, target: str) -> None:
    """http:// and https:// decide whether a connection is encrypted; without a scheme INSECURE does."""
    export = load(None, {"export.endpoint": endpoint, "export.insecure": insecure}).export
    assert (export.secure, export.grpc_target) == (secure, target)


@pytest.mark.parametrize(
    ("end", "text", "message"),
    [
        ("PROTOCOL", "http/json", "export.protocol ('http/json') is not supported: use http/protobuf or grpc (set by {})"),
        ("TIMEOUT", "10s", "export.timeout_ms ('10s') must be a whole number (set by {})"),
        ("INSECURE", "1", "{} ('1') must be true or false"),
        ("HEADERS", "a=b,s3cret", f"export.headers {HEADERS_RULE} (set by {{}})"),
        ("COMPRESSION", "lz4", "export.compression ('lz4') must be 'none', 'gzip' or 'zstd' (set by {})"),
    ],
)  # fmt: skip
def test_refusals_name_the_variable(end: str, text: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A standard variable that cannot be obeyed is refused by its name."""
    variable = f"OTEL_EXPORTER_OTLP_TRACES_{end}"
    monkeypatch.setenv(variable, text)
    with pytest.raises(ConfigError) as caught:
        load(None)
    assert str(caught.value) == message.format(variable)
