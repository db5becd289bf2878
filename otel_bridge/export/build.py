"""From settings to an exporter. Everything that can be found wrong without the back end is found here, at start."""

import logging
import math

from otel_bridge.config.egress import ExportConfig
from otel_bridge.export.circuit import Circuit, State
from otel_bridge.export.isolate import Isolate, Keep
from otel_bridge.export.json_lines import JsonLines
from otel_bridge.export.observed import Observed, Watch
from otel_bridge.export.otlp_grpc import OtlpGrpc
from otel_bridge.export.otlp_http import OtlpHttp
from otel_bridge.export.protocol import Exporter
from otel_bridge.export.retry import Retry, RetryPolicy
from otel_bridge.export.tenant_header import TenantHeader
from otel_bridge.export.tls import TlsFiles, watch_context, watch_credentials
from otel_bridge.export.token import open_token

_log = logging.getLogger(__name__)


def build_exporter(
    config: ExportConfig,
    *,
    section: str = "export",
    watch: Watch | None = None,
    keep: Keep | None = None,
    patience_s: float = math.inf,
) -> Exporter:
    """
    The exporter that `config` describes. Call it before the event loop runs: it reads and opens files.

    section      where the settings stand
    keep         takes what the back end refuses for good
    patience_s   bounds the retries of a request, beside what the settings say: for whom nobody restarts

    Raises ConfigError if a certificate, a key, a token or the file cannot be used.
    """
    exporter = _transport(config, section)
    if watch is not None:
        exporter = Observed(exporter, watch)  # inside the retries: each attempt is a request
    policy = RetryPolicy(
        config.retry_initial_s,
        config.retry_max_s,
        max_elapsed_s=min(config.retry_max_elapsed_s, patience_s),
        max_stuck_s=config.retry_max_stuck_s,
    )
    if policy.max_elapsed_s > 0:
        exporter = Retry(exporter, policy, _circuit(watch, section))
    # Outside the retries: a half that was taken is not sent again because the other waits.
    if watch is None:
        return Isolate(exporter, keep=keep)
    told = watch
    return Isolate(exporter, keep=keep, halved=lambda reason: told.request_halved(reason=reason))


def _circuit(watch: Watch | None, section: str) -> Circuit:
    name = f"the back end of {section}"
    if watch is None:
        return Circuit(name=name)
    told = watch

    def change(state: State) -> None:
        told.circuit_changed(state.value)

    return Circuit(change, name=name)


def _transport(config: ExportConfig, section: str) -> Exporter:
    if config.protocol == "file":
        return JsonLines(config.file, setting=f"{section}.path")
    names = (f"{section}.certificate", f"{section}.client_certificate", f"{section}.client_key")
    files = TlsFiles(config.certificate, config.client_certificate, config.client_key, names)
    token = open_token(config.token_file, name=f"{section}.token_file") if config.token_file is not None else None
    if token is not None and not config.secure:
        _log.warning(
            "%s.token_file is sent to %s in plain text: whoever listens on the way can read it", section, config.endpoint
        )
    of_tenant = TenantHeader(config.tenant_header, config.default_tenant) if config.tenant_header else None
    timeout_s, max_age_s = config.timeout_ms / 1000, config.connection_max_age_s
    if config.protocol == "http/protobuf":
        return OtlpHttp(
            config.endpoint,
            tls=watch_context(files) if config.secure else None,
            headers=config.headers,
            token=token,
            of_tenant=of_tenant,
            compression=config.compression,
            timeout_s=timeout_s,
            max_age_s=max_age_s,
        )
    return OtlpGrpc(
        config.grpc_target,
        tls=watch_credentials(files) if config.secure else None,
        headers=config.headers,
        token=token,
        of_tenant=of_tenant,
        gzip=config.compression == "gzip",
        timeout_s=timeout_s,
        max_age_s=max_age_s,
    )
