"""Where settings come from, and what is said of those that cannot be obeyed."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from otel_bridge.config.bridge import SECTIONS, TABLES, BridgeConfig
from otel_bridge.config.load import load
from otel_bridge.errors import ConfigError

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_file(text: str) -> Path:
        path = tmp_path / "bridge.toml"
        path.write_text(text)
        return path

    return write_file


def refusal(path: Path | None = None, **overrides: object) -> str:
    with pytest.raises(ConfigError) as caught:
        load(path, {name.replace("__", "."): value for name, value in overrides.items()})
    return str(caught.value)


def test_defaults() -> None:
    """Without file and environment, the configuration is the defaults."""
    assert load(None) == BridgeConfig()


def test_precedence(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stronger source wins: code, OTEL_BRIDGE_*, OTEL_EXPORTER_OTLP_*, file, defaults; a weaker one still gives the rest."""
    path = write('[export]\ntimeout_ms = 4\nendpoint = "http://file:1"\ncompression = "gzip"\n')
    assert load(path).export.timeout_ms == 4
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "3")
    assert load(path).export.timeout_ms == 3
    monkeypatch.setenv("OTEL_BRIDGE_EXPORT__TIMEOUT_MS", "2")
    assert load(path).export.timeout_ms == 2
    config = load(path, {"export.timeout_ms": 1, "export.endpoint": None})
    assert config.export.timeout_ms == 1
    assert (config.export.endpoint, config.export.compression) == ("http://file:1", "gzip")


def test_environment_takes_lists_and_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list comes from the environment with commas or as JSON; words in any case; an empty variable is an unset one."""
    monkeypatch.setenv("OTEL_BRIDGE_ADMISSION__RESOURCE_KEYS", "service.*, os.name")
    monkeypatch.setenv("OTEL_BRIDGE_METADATA__PARSERS", '["XnnpackBackend=json", "pkg.mod:parse"]')
    monkeypatch.setenv("OTEL_BRIDGE_TELEMETRY__LOG_LEVEL", "DEBUG")
    monkeypatch.setenv("OTEL_BRIDGE_SERVER__GRPC_ADDRESS", "")
    monkeypatch.setenv("OTEL_BRIDGE_SERVER__DATA_DIR", ":memory:")
    config = load(None)
    assert config.admission.resource_keys == ("service.*", "os.name")
    assert config.metadata.parsers == ("XnnpackBackend=json", "pkg.mod:parse")
    assert config.telemetry.log_level == "debug"
    assert config.server == BridgeConfig().server.model_copy(update={"data_dir": None})


URL = "must be a URL such as http://HOST:PORT, or HOST:PORT"

BAD = [
    ("export.timeout_ms", -5, "(-5) must be at least 1"),
    ("export.timeout_ms", "10s", "('10s') must be a whole number"),
    ("export.timeout_ms", 1.5, "(1.5) must be a whole number"),
    ("export.max_request_bytes", 1 << 30, "(1073741824) must be at most 67108864"),
    ("export.protocol", "http/json", "('http/json') is not supported: use http/protobuf or grpc"),
    ("export.path", "a\0b", "('a\\x00b') must not hold a NUL character: no path, address or name has one"),
    ("server.data_dir", "a\0b", "('a\\x00b') must not hold a NUL character: no path, address or name has one"),
    ("export.protocol", "udp", "('udp') must be 'grpc', 'http/protobuf' or 'file'"),
    ("export.endpoint", "ftp://host", f"('ftp://host') {URL}"),
    ("export.endpoint", "http://a:b@c", "('http://****@c') must not hold a user name or password: they belong in a header"),
    ("export.endpoint", "http://host:99999", f"('http://host:99999') {URL}: Port out of range 0-65535"),
    ("export.endpoint", "http://a b", f"('http://a b') {URL}, without spaces"),
    ("export.headers", "token", "must be NAME=VALUE,NAME=VALUE,... with commas inside values written as %2C"),
    ("export.headers", {"x\n": "v"}, "must have names of letters, digits, '-', '_' and '.', which 'x\\n' is not"),
    ("export.headers", {"x": "a\r\nb"}, "must have values of printable ASCII without spaces around, which that of x is not"),
    ("export.headers", {"key-bin": "x"}, "must not name key-bin: -bin marks bytes in gRPC, and these are texts"),
    ("export.headers", {"Content-Type": "x"}, "must not name content-type: the protocol sets it"),
    ("export.headers", {"expect": "100-continue"}, "must not name expect: the protocol sets it"),
    ("export.certificate", "/none.pem", "('/none.pem') must be a file that can be read: No such file or directory"),
    ("export.insecure", "maybe", "('maybe') must be true or false"),
    ("export.retry_initial_s", 0, "(0) must be more than 0"),
    ("export.retry_initial_s", float("nan"), "(nan) must be a number"),
    ("export.retry_max_s", 0.5, "(0.5) must be at least export.retry_initial_s (1.0)"),
    ("server.grpc_address", "80", "('80') must be HOST:PORT or [IPV6]:PORT with a port from 0 (any free one) to 65535"),
    (
        "server.grpc_address",
        "h:99999",
        "('h:99999') must be HOST:PORT or [IPV6]:PORT with a port from 0 (any free one) to 65535",
    ),
    ("admission.resource_keys", 5, "(5) must be a list"),
    ("metadata.parsers", "[x", "('[x') must be a list: as JSON, or with commas between the entries"),
    ("telemetry.own_endpoint", "http://", f"('http://') {URL}"),
    ("export", 3, "(3) must be a table"),
    ("export.timout_ms", 3, "is not a setting; did you mean export.timeout_ms?"),
    ("telemetry.timeout_ms", 3, "is not a setting; did you mean export.timeout_ms?"),
    ("timeout_ms", 3, "is not a section; did you mean export.timeout_ms?"),
    ("zzzzzz", 3, "is not a section"),
]


@pytest.mark.parametrize(("name", "value", "words"), BAD, ids=[f"{name}={value!r:.20}" for name, value, _ in BAD])
def test_refusals(name: str, value: object, words: str) -> None:
    """A setting that cannot be obeyed is refused with its name, its value, the rule and the way out."""
    assert refusal(None, **{name: value}) == f"{name} {words}"


def test_refusals_of_a_part() -> None:
    """Of a list or table, the entry that is wrong is named."""
    entry = "must be an attribute key, PREFIX.*, or * for all; with ! in front it takes away"
    parser = "must be [BACKEND=]module:function, or json, utf8, raw or auto in place of module:function"
    assert refusal(admission__resource_keys=["os.*", "*.os"]) == f"admission.resource_keys[1] ('*.os') {entry}"
    assert refusal(metadata__parsers=["xml"]) == f"metadata.parsers[0] ('xml') {parser}"
    assert refusal(export__headers={"x": 3}) == "export.headers[x] must be text"


def test_refusals_between_settings() -> None:
    """Two settings that contradict each other are refused with both values."""
    assert refusal(server__http_address="127.0.0.1:4417") == (
        "server.grpc_address and server.http_address must differ; both are 127.0.0.1:4417"
    )
    assert refusal(server__max_request_bytes=1 << 29) == (
        "spool.max_bytes (268435456) must be at least server.max_request_bytes (536870912): "
        "a larger request would never find room"
    )
    assert refusal(server__workers=2, server__data_dir=":memory:") == (
        'server.workers is 2, and server.data_dir is ":memory:": workers share their mappings in a directory; '
        'name one, and set spool.durability = "memory" to keep events off the disk'
    )


@pytest.mark.parametrize("name", [f"{section}.{name}" for section, kind in SECTIONS.items() for name in kind.model_fields])
def test_every_refusal_is_worded(name: str) -> None:
    """No setting answers a value of the wrong type with words that are not ours."""
    message = refusal(None, **{name: [[object()]]})
    assert message.startswith(name)
    assert " must be " in message
    assert "is wrong" not in message


def test_all_faults_in_one_message(write: Write) -> None:
    """Every fault is told at once, each on a line of its own."""
    path = write('[export]\ntimeout_ms = 0\nclient_key = "/none"\n[spool]\nmax_byte = 1\n[telemetry]\nlog_format = "xml"\n')
    assert refusal(path).splitlines() == [
        "4 settings are wrong:",
        "  spool.max_byte is not a setting; did you mean spool.max_bytes?",
        "  export.timeout_ms (0) must be at least 1",
        "  export.client_key ('/none') must be a file that can be read: No such file or directory",
        "  telemetry.log_format ('xml') must be 'text' or 'json'",
    ]


def test_client_key_and_certificate_come_together(tmp_path: Path) -> None:
    """A client key without its certificate is refused, and the other way round."""
    pem = tmp_path / "some.pem"
    pem.write_text("")
    secure = {"export__endpoint": "https://host:1"}
    assert refusal(None, export__client_key=pem, **secure) == (
        "export.client_key is set, but export.client_certificate is not: give both, or neither"
    )
    assert refusal(None, export__client_certificate=pem, **secure) == (
        "export.client_certificate is set, but export.client_key is not: give both, or neither"
    )


def test_zstd_is_for_http() -> None:
    """For gRPC zstd is refused: it has none."""
    assert refusal(None, export__compression="zstd") == (
        "export.compression is zstd, which gRPC does not have: use gzip, or export.protocol http/protobuf"
    )
    assert load(None, {"export.compression": "zstd", "export.protocol": "http/protobuf"}).export.compression == "zstd"


def test_one_authorization(tmp_path: Path) -> None:
    """A token from a file and a header that says the same are refused together."""
    token = tmp_path / "token"
    token.write_text("t")
    assert refusal(None, export__token_file=token, export__headers={"Authorization": "Basic x"}) == (
        "export.token_file and the header authorization of export.headers are one thing: give one of them"
    )


def test_endless_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries may go on for ever, by file and by environment; what is no number may not be meant."""
    assert load(None).export.retry_max_elapsed_s == math.inf
    monkeypatch.setenv("OTEL_BRIDGE_EXPORT__RETRY_MAX_ELAPSED_S", "inf")
    assert load(None, {"export.timeout_ms": 1}).export.retry_max_elapsed_s == math.inf
    assert "must be at least 0" in refusal(None, export__retry_max_elapsed_s=math.nan)


def test_certificates_need_tls(tmp_path: Path) -> None:
    """Certificates beside a plain-text endpoint are refused: the user believes in encryption that is not there."""
    pem = tmp_path / "ca.pem"
    pem.write_text("")
    assert refusal(None, export__certificate=pem) == (
        "export has certificates, but export.endpoint (http://localhost:4317) is plain text: use https://, or drop them"
    )


@pytest.mark.parametrize(
    ("variable", "message"),
    [
        ("OTEL_BRIDGE_EXPORT__TIMOUT_MS", "export.timout_ms is not a setting; did you mean export.timeout_ms? (set by {})"),
        ("OTEL_BRIDGE_EXPORT__TIMEOUT_MS", "export.timeout_ms ('x') must be a whole number (set by {})"),
        ("OTEL_BRIDGE_EXPORT_TIMEOUT_MS", "{} is not read; did you mean OTEL_BRIDGE_EXPORT__TIMEOUT_MS?"),
        ("OTEL_BRIDGE_EXPORT", "export ('x') must be a table (set by {})"),
        (
            "OTEL_BRIDGE_EXPRT__TIMEOUT_MS",
            "{} names no section of the configuration; there are " + ", ".join((*SECTIONS, TABLES)),
        ),
    ],
)
def test_faults_of_the_environment_name_the_variable(variable: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault that comes from the environment names its variable."""
    monkeypatch.setenv(variable, "x")
    assert refusal() == message.format(variable)


def test_foreign_variables_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Kubernetes sets for a service called otel-bridge is no fault."""
    monkeypatch.setenv("OTEL_BRIDGE_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("OTEL_BRIDGE_PORT_4417_TCP", "tcp://10.0.0.1:4417")
    assert load(None) == BridgeConfig()


def test_a_file_that_cannot_be_read(write: Write, tmp_path: Path) -> None:
    """A missing file and one that is not TOML are refused, with the place in the file."""
    missing = tmp_path / "none.toml"
    assert refusal(missing) == f"the configuration file {missing} cannot be read: No such file or directory"
    path = write("[export\n")
    assert refusal(path).startswith(f"the configuration file {path} is not TOML: ")
    assert "line 1" in refusal(path)
    path.write_bytes(b"\xff")
    assert refusal(path).startswith(f"the configuration file {path} is not TOML: ")


@pytest.mark.parametrize("address", ["127.0.0.1:0", "[::1]:4417", "localhost:65535", "0.0.0.0:1"])
def test_addresses(address: str) -> None:
    """An address is host:port or [IPv6]:port; port 0 is any free one."""
    assert load(None, {"server.grpc_address": address, "server.insecure": True}).server.grpc_address == address
