"""Certificates for tests of TLS, made by the openssl command."""

import subprocess
from dataclasses import dataclass, replace
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


def expired(certificates: Certificates, directory: Path) -> Certificates:
    """The same, but that the server's certificate was good for a day of 2020."""
    settings, request, server = directory / "ca.cnf", directory / "request.pem", directory / "expired.pem"
    (directory / "index").write_text("")
    (directory / "serial").write_text("01")
    settings.write_text(
        f"[ca]\ndefault_ca=own\n[own]\ndatabase={directory}/index\nserial={directory}/serial\nnew_certs_dir={directory}\n"
        f"default_md=sha256\npolicy=any\nx509_extensions=server\n[any]\ncommonName=supplied\n"
        f"[server]\nsubjectAltName=DNS:localhost,IP:{LOOPBACK}\n"
    )
    authority_key = certificates.authority.with_suffix(".key")
    for command in (
        ["req", "-new", "-key", certificates.server_key, "-subj", "/CN=localhost", "-out", request],
        [
            *("ca", "-batch", "-notext", "-config", settings, "-in", request, "-out", server),
            *("-cert", certificates.authority, "-keyfile", authority_key),
            *("-startdate", "20200101000000Z", "-enddate", "20200102000000Z"),
        ],
    ):
        subprocess.run(["openssl", *map(str, command)], check=True, capture_output=True)
    return replace(certificates, server=server)
