"""
The section `auth`, and what the doors demand: TLS and credentials wherever somebody else could reach them.

Invariant: without `server.insecure` nothing but loopback is listened on without both.
"""

import ipaddress
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict

from otel_bridge.config.sections import ServerConfig
from otel_bridge.config.setting import Section, setting
from otel_bridge.config.values import ReadableFile, TenantName, json_table, split_address
from otel_bridge.model.identity import Scope

_WORDS = ", ".join(Scope)


def _scope(word: Any) -> Scope:
    try:
        return Scope(word)
    except (ValueError, TypeError):
        raise ValueError(f"must be one of {_WORDS}") from None


class Certificate(BaseModel):
    """What a name in a client's certificate stands for; a list of scopes alone is one of the default tenant."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    scopes: tuple[Annotated[Scope, BeforeValidator(_scope)], ...]
    tenant: TenantName = ""


def _certificate(value: Any) -> Any:
    return {"scopes": value} if isinstance(value, list | tuple) else value


Certificates = Annotated[
    Mapping[str, Annotated[Certificate, BeforeValidator(_certificate)]],
    json_table('{"ci.example.com": ["mappings:write"]}'),
]
"""DNS or URI name in a client's certificate -> what it stands for."""


class AuthConfig(Section):
    """
    Who may do what. Tokens are made by `otel-bridge token create`, and are in the data directory.

    Health is open to all; which scope each other request needs is in docs/security.md.
    """

    enabled: bool = setting(False, "Take a request only with a credential that allows it. May be false only on loopback.")
    tokens_file: ReadableFile = setting(
        None,
        "File of further tokens, hashed, as `otel-bridge token create --file` writes it; read again when it changes.",
        rule="a file that can be read; needs enabled",
    )
    certificates: Certificates = setting(
        {},
        "Client certificates that stand for a token, by a name in them (subject alternative name, DNS or URI).",
        rule=f"a table of names; each with a list of {_WORDS}, or with a table of such scopes and a tenant; needs enabled and "
        "server.tls_client_ca",
    )


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches that address."""
    host, _ = split_address(address)
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def faults_of_doors(server: ServerConfig, auth: AuthConfig) -> list[str]:
    """What contradicts itself, and what would let anybody in, in the user's words."""
    faults = [*_faults_of_tls(server), *_faults_of_auth(server, auth)]
    if server.insecure:
        return faults
    missing = ["server.tls_certificate and server.tls_key"] if not server.tls_certificate else []
    missing += ["auth.enabled = true"] if not auth.enabled else []
    for name in ("grpc_address", "http_address"):
        address = getattr(server, name)
        if missing and not is_loopback(address):
            faults.append(
                f"server.{name} ({address}) can be reached by others: set {' and '.join(missing)}, or listen on loopback, "
                "or set server.insecure = true where something in front has TLS and authentication"
            )
    return faults


def _faults_of_tls(server: ServerConfig) -> list[str]:
    faults = []
    if server.tls_key and not server.tls_certificate:
        faults.append("server.tls_key is set, but server.tls_certificate is not: give both, or neither")
    if server.tls_certificate and not server.tls_key:
        faults.append("server.tls_certificate is set, but server.tls_key is not: give both, or neither")
    if server.tls_client_ca and not server.tls_certificate:
        faults.append("server.tls_client_ca is set, but server.tls_certificate is not: give both, or neither")
    return faults


def _faults_of_auth(server: ServerConfig, auth: AuthConfig) -> list[str]:
    faults = [
        f"auth.{name} is set, but auth.enabled is false: set it, or drop auth.{name}"
        for name in ("tokens_file", "certificates")
        if getattr(auth, name) and not auth.enabled
    ]
    if auth.certificates and not server.tls_client_ca:
        faults.append("auth.certificates is set, but server.tls_client_ca is not: nobody would vouch for a name")
    return faults
