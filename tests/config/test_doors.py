"""Nothing but loopback is listened on without TLS and credentials, unless somebody says so."""

import tomllib
from pathlib import Path

import pytest

from otel_bridge.config.auth import Certificate, is_loopback
from otel_bridge.config.bridge import BridgeConfig
from otel_bridge.config.load import load
from otel_bridge.config.render import render
from otel_bridge.errors import ConfigError
from otel_bridge.model.identity import Scope

EVERYWHERE = {"server.grpc_address": "0.0.0.0:4417", "server.http_address": "[::]:4418"}
WAYS_OUT = "or listen on loopback, or set server.insecure = true where something in front has TLS and authentication"


@pytest.fixture
def pem(tmp_path: Path) -> Path:
    path = tmp_path / "some.pem"
    path.write_text("")
    return path


def refusal(**overrides: object) -> list[str]:
    """What is said of settings that cannot be obeyed, a line each."""
    with pytest.raises(ConfigError) as caught:
        load(None, {name.replace("__", "."): value for name, value in overrides.items()})
    return [line.strip() for line in str(caught.value).splitlines()]


def tls(pem: Path) -> dict[str, object]:
    """A certificate and a key."""
    return {"server.tls_certificate": pem, "server.tls_key": pem}


def test_loopback_needs_nothing() -> None:
    """The defaults listen on loopback, without TLS and credentials."""
    config = load(None)
    assert (config.auth.enabled, config.server.tls_certificate, config.server.insecure) == (False, None, False)
    for address in (config.server.grpc_address, config.server.http_address):
        assert is_loopback(address)


@pytest.mark.parametrize(
    ("address", "own"),
    [
        ("127.0.0.1:1", True),
        ("127.9.9.9:1", True),
        ("[::1]:1", True),
        ("localhost:1", True),
        ("0.0.0.0:1", False),
        ("[::]:1", False),
        ("192.0.2.1:1", False),
        ("127.0.0.1.example.com:1", False),
        ("bridge:1", False),
        ("[fe80::1%eth0]:1", False),
    ],
)
def test_what_loopback_is(address: str, *, own: bool) -> None:
    """Addresses of this machine alone; a name is none, whatever it resolves to today, but for localhost."""
    assert is_loopback(address) is own


def test_each_open_address_is_told() -> None:
    """Both doors are told at once, with what is missing and the ways out; beside other faults."""
    missing = "set server.tls_certificate and server.tls_key and auth.enabled = true"
    found = refusal(**EVERYWHERE, spool__max_bytes=2 << 20)
    assert found[0] == "3 settings are wrong:"
    assert found[1:3] == [
        f"server.grpc_address (0.0.0.0:4417) can be reached by others: {missing}, {WAYS_OUT}",
        f"server.http_address ([::]:4418) can be reached by others: {missing}, {WAYS_OUT}",
    ]


def test_half_of_it_is_not_enough(pem: Path) -> None:
    """TLS without credentials, and credentials without TLS, are refused with the half that is missing."""
    open_door = {"server.http_address": "0.0.0.0:4418"}
    said = "server.http_address (0.0.0.0:4418) can be reached by others: set"
    assert refusal(**open_door, **tls(pem)) == [f"{said} auth.enabled = true, {WAYS_OUT}"]
    found = refusal(**open_door, auth__enabled=True)
    assert found == [f"{said} server.tls_certificate and server.tls_key, {WAYS_OUT}"]


def test_both_halves_are_enough(pem: Path) -> None:
    """With TLS and credentials any address will do."""
    config = load(None, {**EVERYWHERE, **tls(pem), "auth.enabled": True})
    assert (config.server.http_address, config.auth.enabled) == ("[::]:4418", True)


@pytest.mark.parametrize("enabled", [True, False])
def test_insecure_must_be_said(*, enabled: bool) -> None:
    """With server.insecure any address will do, with credentials or without."""
    assert load(None, {**EVERYWHERE, "server.insecure": True, "auth.enabled": enabled}).server.insecure


def test_settings_that_belong_together(pem: Path) -> None:
    """A half of a pair is refused, and what would have no effect."""
    assert refusal(server__tls_key=pem) == ["server.tls_key is set, but server.tls_certificate is not: give both, or neither"]
    assert refusal(server__tls_certificate=pem) == [
        "server.tls_certificate is set, but server.tls_key is not: give both, or neither"
    ]
    assert refusal(server__tls_client_ca=pem) == [
        "server.tls_client_ca is set, but server.tls_certificate is not: give both, or neither"
    ]
    found = refusal(auth__tokens_file=pem, auth__certificates={"ci.example.com": ["mappings:write"]})
    assert found[1:] == [
        "auth.tokens_file is set, but auth.enabled is false: set it, or drop auth.tokens_file",
        "auth.certificates is set, but auth.enabled is false: set it, or drop auth.certificates",
        "auth.certificates is set, but server.tls_client_ca is not: nobody would vouch for a name",
    ]


def test_names_in_certificates(pem: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names stand for scopes, and a tenant, from a file as a table and from the environment as JSON; else they are refused."""
    secure = {**tls(pem), "server.tls_client_ca": pem, "auth.enabled": True}
    listed = load(None, {**secure, "auth.certificates": {"spiffe://fleet/ci": ["mappings:write", "admin"]}}).auth.certificates
    assert listed == {"spiffe://fleet/ci": Certificate(scopes=(Scope.MAPPINGS_WRITE, Scope.ADMIN))}
    told = '{"ci.example.com": {"scopes": ["mappings:read"], "tenant": "acme"}}'
    monkeypatch.setenv("OTEL_BRIDGE_AUTH__CERTIFICATES", told)
    config = load(None, secure)
    assert config.auth.certificates == {"ci.example.com": Certificate(scopes=(Scope.MAPPINGS_READ,), tenant="acme")}
    assert BridgeConfig.model_validate(tomllib.loads(render(config))) == config
    monkeypatch.setenv("OTEL_BRIDGE_AUTH__CERTIFICATES", "ci.example.com")
    assert "auth.certificates ('ci.example.com') must be JSON such as" in refusal(**secure)[0]
    monkeypatch.delenv("OTEL_BRIDGE_AUTH__CERTIFICATES")
    assert refusal(**secure, auth__certificates={"ci": ["all"]}) == [
        "auth.certificates[ci][scopes][0] ('all') must be one of events:write, mappings:write, mappings:read, admin"
    ]
    assert refusal(**secure, auth__certificates={"ci": {"tenant": "a b", "scope": []}})[1:] == [
        "auth.certificates[ci][scopes] ({'tenant': 'a b', 'scope': []}) is missing",
        "auth.certificates[ci][tenant] ('a b') must be 1 to 64 letters, digits and . _ -, beginning with a letter or digit",
        "auth.certificates.ci.scope is not a setting; did you mean auth.certificates?",
    ]
