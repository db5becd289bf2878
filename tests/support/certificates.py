"""Certificates for tests of TLS, made by the openssl command."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

LOOPBACK = "127.0.0.1"
CLIENT_DNS, CLIENT_URI = "ci.example.com", "spiffe://fleet/ci"
"""Names in the client's certificate."""


@dataclass(frozen=True)
class Certificates:
    """PEM files made by `make_certificates`: an authority, and a server (loopback) and a client that it vouches for."""

    authority: Path
    server_key: Path
    server: Path
    client_key: Path
    client: Path


def make_certificates(directory: Path, *, name: str = "authority") -> Certificates:
    """New certificates in `directory`, valid for two days."""
    new = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    authority, authority_key = directory / f"{name}.pem", directory / f"{name}.key"

    def run(key: Path, certificate: Path, subject: str, *more: str) -> None:
        command = [*new, "-keyout", str(key), "-out", str(certificate), "-subj", f"/CN={subject}", *more]
        subprocess.run(command, check=True, capture_output=True)

    run(authority_key, authority, name, "-addext", "keyUsage=critical,keyCertSign")
    signed = ("-CA", str(authority), "-CAkey", str(authority_key), "-addext", "basicConstraints=critical,CA:FALSE")
    made = Certificates(
        authority, *(directory / f"{name}-{end}" for end in ("server.key", "server.pem", "client.key", "client.pem"))
    )
    run(made.server_key, made.server, "localhost", *signed, "-addext", f"subjectAltName=DNS:localhost,IP:{LOOPBACK}")
    run(made.client_key, made.client, "client", *signed, "-addext", f"subjectAltName=DNS:{CLIENT_DNS},URI:{CLIENT_URI}")
    return made
