"""
TLS of a client, for HTTP and for gRPC.

Invariants
* What is wrong with a file is found when it is read, at start; gRPC would find it at the first connection.
* What `watch_context` and `watch_credentials` give is made again when a file changes: rotation needs no restart.
"""

import ssl
from dataclasses import dataclass
from pathlib import Path

import grpc

from otel_bridge.config.reload import Reloaded
from otel_bridge.errors import ConfigError


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """
    Files in PEM form; None: not given.

    authority     certificates of the authorities that are trusted; without it those of the system
    certificate   the client's own, with `key`, for a server that asks for one
    names         what the user calls the three, for errors
    """

    authority: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    names: tuple[str, str, str] = ("ca", "cert", "key")

    @property
    def paths(self) -> list[Path]:
        """Those that are given."""
        return [path for path in (self.authority, self.certificate, self.key) if path is not None]


def load_context(files: TlsFiles) -> ssl.SSLContext:
    """A context for HTTP. Raises ConfigError where a file cannot be used, or one of certificate and key is missing."""
    authority, certificate, key = files.names
    if (files.certificate is None) != (files.key is None):
        raise ConfigError(f"{certificate} and {key} belong together: give both, or neither")
    try:
        context = ssl.create_default_context(cafile=files.authority)
    except OSError as error:
        raise ConfigError(f"{authority} ({files.authority}) holds no certificate in PEM form: {error}") from error
    context.set_alpn_protocols(["http/1.1"])  # a port that has HTTP/2, too, may take silence for that
    if files.certificate and files.key:
        try:
            context.load_cert_chain(files.certificate, files.key, password="")  # else OpenSSL asks on the terminal
        except OSError as error:
            raise ConfigError(
                f"{certificate} ({files.certificate}) and {key} ({files.key}) "
                f"must be a certificate and its private key, not encrypted, in PEM form: {error}"
            ) from error
    return context


def load_credentials(files: TlsFiles) -> grpc.ChannelCredentials:
    """The same for gRPC. Raises ConfigError."""
    load_context(files)
    try:
        authorities, key, chain = (
            path.read_bytes() if path else None for path in (files.authority, files.key, files.certificate)
        )  # fmt: skip
    except OSError as error:  # gone since the line above
        raise ConfigError(f"{error.filename}: cannot be read: {error.strerror}") from error
    return grpc.ssl_channel_credentials(authorities, key, chain)


def watch_context(files: TlsFiles) -> Reloaded[ssl.SSLContext]:
    """`load_context`, again whenever a file changes. Raises ConfigError."""
    return Reloaded(files.paths, lambda: load_context(files))


def watch_credentials(files: TlsFiles) -> Reloaded[grpc.ChannelCredentials]:
    """`load_credentials`, again whenever a file changes. Raises ConfigError."""
    return Reloaded(files.paths, lambda: load_credentials(files))
