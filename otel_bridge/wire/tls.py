"""
TLS of the doors, from files that may change while the bridge runs.

Invariants
* A handshake gets the certificate, key and authorities that were read last; connections that are open keep theirs.
* Files that do not fit each other, as in the middle of a rotation, change nothing: the last good ones go on
  (config/reload.py).
* What is wrong with a file at start is told then.
"""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from otel_bridge.config.reload import Reloaded
from otel_bridge.errors import ConfigError


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Files in PEM form: the bridge's certificate chain, its key, and the authorities of clients (None: they show none)."""

    certificate: Path
    key: Path
    client_ca: Path | None = None


@dataclass(frozen=True, slots=True)
class _Loaded:
    context: ssl.SSLContext
    configuration: grpc.ServerCertificateConfiguration


class DoorTls:
    """
    What both doors need to speak TLS.

    http_needs_certificate   the HTTP door refuses a handshake without a certificate, where clients show one; else it is for
                             the gate to refuse the request, and health stays open. The gRPC door always refuses

    Raises `ConfigError` where a file cannot be used.
    """

    def __init__(self, files: TlsFiles, *, http_needs_certificate: bool) -> None:
        self._files = files
        self._http_needs_certificate = http_needs_certificate
        self._loaded = Reloaded([path for path in (files.certificate, files.key, files.client_ca) if path], self._load)
        self._given = self._loaded.value
        self.context = self._front()
        """For HTTP: hands each handshake over to the context that was made last."""

    @property
    def credentials(self) -> grpc.ServerCredentials:
        """For gRPC, which asks again at each handshake."""
        needs = self._files.client_ca is not None
        newer: Any = self._newer  # the stubs do not know that None means "as before"
        return grpc.dynamic_ssl_server_credentials(self._given.configuration, newer, require_client_authentication=needs)

    def refresh(self) -> None:
        """Read the files again if they changed. Waits for a disk."""
        self._loaded.refresh()

    def _front(self) -> ssl.SSLContext:
        def hand_over(handshake: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
            handshake.context = self._loaded.value.context

        front = self._load().context
        front.sni_callback = hand_over  # called without a name, too
        return front

    def _newer(self) -> grpc.ServerCertificateConfiguration | None:
        loaded = self._loaded.value
        if loaded is self._given:
            return None
        self._given = loaded
        return loaded.configuration

    def _load(self) -> _Loaded:
        files = self._files
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(files.certificate, files.key, password="")  # else OpenSSL asks on the terminal
            pair = (files.key.read_bytes(), files.certificate.read_bytes())
        except OSError as error:
            raise ConfigError(
                f"server.tls_certificate ({files.certificate}) and server.tls_key ({files.key}) must be a certificate and its "
                f"private key, not encrypted, in PEM form: {error}"
            ) from error
        authorities = None
        if files.client_ca is not None:
            try:
                context.load_verify_locations(files.client_ca)
                authorities = files.client_ca.read_bytes()
            except OSError as error:
                raise ConfigError(
                    f"server.tls_client_ca ({files.client_ca}) holds no certificate in PEM form: {error}"
                ) from error
            context.verify_mode = ssl.CERT_REQUIRED if self._http_needs_certificate else ssl.CERT_OPTIONAL
            context.options |= ssl.OP_NO_TICKET  # a resumed session would not be verified again, by whichever authority
            context.num_tickets = 0
        return _Loaded(context, grpc.ssl_server_certificate_configuration([pair], authorities))
