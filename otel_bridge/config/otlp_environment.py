"""
The standard variables `OTEL_EXPORTER_OTLP_*`, for egress only.

By the OTLP exporter specification (opentelemetry-specification, specification/protocol/exporter.md):

* `OTEL_EXPORTER_OTLP_TRACES_X` wins over `OTEL_EXPORTER_OTLP_X`; an empty variable is an unset one.
* TIMEOUT is in milliseconds.
* With OTLP/HTTP the general ENDPOINT is a base that `/v1/traces` is added to; that for traces is used as it is, with `/` where
  it has no path.

Two things are our own: the default protocol is grpc, and what the specification ignores with a warning is refused at start.
"""

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from otel_bridge.config.egress import TRACES_PATH

GENERAL = "OTEL_EXPORTER_OTLP_"
TRACES = "OTEL_EXPORTER_OTLP_TRACES_"

VARIABLES = {
    "PROTOCOL": "protocol",
    "ENDPOINT": "endpoint",
    "HEADERS": "headers",
    "COMPRESSION": "compression",
    "TIMEOUT": "timeout_ms",
    "INSECURE": "insecure",
    "CERTIFICATE": "certificate",
    "CLIENT_KEY": "client_key",
    "CLIENT_CERTIFICATE": "client_certificate",
}
"""End of the variable -> the setting of `export` that it gives."""


class Found(NamedTuple):
    """A value and the variable that gave it."""

    value: str
    variable: str


def read(environ: Mapping[str, str]) -> dict[str, Found]:
    """Setting of `export` -> what the environment says, as it stands there."""
    found = {}
    for end, setting in VARIABLES.items():
        for variable in (TRACES + end, GENERAL + end):
            if value := environ.get(variable, "").strip():
                found[setting] = Found(value, variable)
                break
    return found


def endpoint(found: Found, protocol: object) -> str:
    """The full endpoint that the value of an ENDPOINT variable stands for under `protocol`."""
    if protocol != "http/protobuf" or "://" not in found.value:
        return found.value
    try:
        url = urlsplit(found.value)
    except ValueError:
        return found.value  # refused, with words, by the setting's own rule
    path = (url.path or "/") if found.variable.startswith(TRACES) else url.path.rstrip("/") + TRACES_PATH
    return url._replace(path=path).geturl()
