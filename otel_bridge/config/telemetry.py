"""The section `telemetry`: what the bridge says of itself."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import ValidationInfo, field_validator

from otel_bridge.config.setting import Number, Section, setting
from otel_bridge.config.values import Headers, LowerCase, check_endpoint


def _default_endpoint(earlier: Mapping[str, Any]) -> str:
    return "http://localhost:4318" if earlier.get("own_protocol") == "http/protobuf" else "http://localhost:4317"


class TelemetryConfig(Section):
    """
    What the bridge says of itself.

    OTEL_EXPORTER_OTLP_* has no say here: it names where spans of devices go.
    """

    log_level: Annotated[Literal["debug", "info", "warning", "error"], LowerCase] = setting(
        "info", "Least severe log line that is written."
    )
    log_format: Annotated[Literal["text", "json"], LowerCase] = setting("text", "Form of log lines on stderr.")
    log_burst: int = setting(
        10,
        "Lines of one kind within log_period_s; one line says how many more there were. 0: all are written.",
        unit="lines",
        least=0,
    )
    log_period_s: Number = setting(10.0, "Time in which lines of one kind are counted.", unit="seconds", above=0)
    own_metrics: bool = setting(False, "Send the bridge's own metrics as OTLP; /metrics always has them.")
    own_traces_ratio: Number = setting(
        0.0,
        "Share of requests of which the bridge sends spans of its own: how they came in, waited, were resolved and left. "
        "0: none.",
        unit="1",
        least=0,
        most=1,
    )
    own_protocol: Annotated[Literal["grpc", "http/protobuf"], LowerCase] = setting(
        "grpc", "How own metrics and traces leave: OTLP over gRPC, or over HTTP."
    )
    own_endpoint: str = setting(
        _default_endpoint,
        "Where they go; with http/protobuf /v1/metrics and /v1/traces are added. Default with http/protobuf: "
        "http://localhost:4318.",
        rule="http://HOST:PORT or https://HOST:PORT; for grpc also HOST:PORT, which is plain text",
    )
    own_headers: Headers = setting(
        {}, "Headers of every such request, for instance an API key.", rule="names and printable ASCII values", secret=True
    )

    @field_validator("own_endpoint")
    @classmethod
    def _endpoint(cls, endpoint: str, info: ValidationInfo) -> str:
        check_endpoint(endpoint, scheme_needed=info.data.get("own_protocol") == "http/protobuf")
        return endpoint
