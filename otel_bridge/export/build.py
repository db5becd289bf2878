"""From settings to an exporter. Everything that can be found wrong without the back end is found here, at start."""

from otel_bridge.config.egress import ExportConfig
from otel_bridge.export.json_lines import JsonLines
from otel_bridge.export.observed import Observed, Watch
from otel_bridge.export.otlp_grpc import OtlpGrpc
from otel_bridge.export.otlp_http import OtlpHttp
from otel_bridge.export.protocol import Exporter
from otel_bridge.export.retry import Retry, RetryPolicy
from otel_bridge.export.split import Split
from otel_bridge.export.tls import TlsFiles, load_context, load_credentials

_NAMES = ("export.certificate", "export.client_certificate", "export.client_key")


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
    files = TlsFiles(config.certificate, config.client_certificate, config.client_key, _NAMES)
    if config.protocol == "http/protobuf":
        tls = load_context(files) if config.secure else None
        return OtlpHttp(config.endpoint, tls=tls, headers=config.headers, gzip=gzip, timeout_s=timeout_s)
    credentials = load_credentials(files) if config.secure else None
    return OtlpGrpc(config.grpc_target, credentials=credentials, headers=config.headers, gzip=gzip, timeout_s=timeout_s)
