"""From settings to an exporter. Everything that can be found wrong without the back end is found here, at start."""

import ssl

import grpc

from otel_bridge.config.egress import ExportConfig
from otel_bridge.errors import ConfigError
from otel_bridge.export.json_lines import JsonLines
from otel_bridge.export.observed import Observed, Watch
from otel_bridge.export.otlp_grpc import OtlpGrpc
from otel_bridge.export.otlp_http import OtlpHttp
from otel_bridge.export.protocol import Exporter
from otel_bridge.export.retry import Retry, RetryPolicy
from otel_bridge.export.split import Split


def build_exporter(config: ExportConfig, *, watch: Watch | None = None) -> Exporter:
    """
    The exporter that `config` describes. Call it before the event loop runs: it reads and opens files.

    Raises ConfigError if a certificate, a key or the file cannot be used.
    """
    exporter = _transport(config)
    if watch is not None:
        exporter = Observed(exporter, watch)  # inside the retries: each attempt is a request
    exporter = Retry(exporter, RetryPolicy(config.retry_initial_s, config.retry_max_s, config.retry_max_elapsed_s))
    return Split(exporter)  # outside the retries: a half that was taken is not sent again because the other waits


def _transport(config: ExportConfig) -> Exporter:
    timeout_s, gzip = config.timeout_ms / 1000, config.compression == "gzip"
    if config.protocol == "file":
        return JsonLines(config.file)
    tls = _tls(config) if config.secure else None
    if config.protocol == "http/protobuf":
        return OtlpHttp(config.endpoint, tls=tls, headers=config.headers, gzip=gzip, timeout_s=timeout_s)
    credentials = _credentials(config) if config.secure else None
    return OtlpGrpc(config.grpc_target, credentials=credentials, headers=config.headers, gzip=gzip, timeout_s=timeout_s)


def _tls(config: ExportConfig) -> ssl.SSLContext:
    """Also the check of what gRPC would only find wrong at the first connection."""
    try:
        context = ssl.create_default_context(cafile=config.certificate)
    except OSError as error:
        raise ConfigError(f"export.certificate ({config.certificate}) holds no certificate in PEM form: {error}") from error
    if config.client_certificate and config.client_key:
        try:
            context.load_cert_chain(
                config.client_certificate, config.client_key, password=""
            )  # else OpenSSL asks on the terminal
        except OSError as error:
            raise ConfigError(
                f"export.client_certificate ({config.client_certificate}) and export.client_key ({config.client_key}) "
                f"must be a certificate and its private key, not encrypted, in PEM form: {error}"
            ) from error
    return context


def _credentials(config: ExportConfig) -> grpc.ChannelCredentials:
    authorities, key, chain = (
        path.read_bytes() if path else None for path in (config.certificate, config.client_key, config.client_certificate)
    )
    return grpc.ssl_channel_credentials(authorities, key, chain)
