"""The section `export`, and those of further destinations: where spans go."""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, ValidationInfo, field_validator, model_validator

from otel_bridge.config.setting import Number, Section, setting
from otel_bridge.config.values import HeaderName, Headers, HeaderValue, LowerCase, ReadableFile, Unbounded, check_endpoint
from otel_bridge.model.destination import DEFAULT

TRACES_PATH = "/v1/traces"
"""Where OTLP/HTTP takes spans (opentelemetry-proto docs/specification.md, "OTLP/HTTP Request")."""

DEFAULT_ENDPOINTS = {
    "grpc": "http://localhost:4317",
    "http/protobuf": f"http://localhost:4318{TRACES_PATH}",
    "file": "http://localhost:4317",
}


def _protocol(value: Any) -> Any:
    if value == "http/json":
        raise ValueError("is not supported: use http/protobuf or grpc")
    return value


def _default_endpoint(earlier: Mapping[str, Any]) -> str:
    return DEFAULT_ENDPOINTS.get(earlier.get("protocol", ""), DEFAULT_ENDPOINTS["grpc"])


_DESTINATION = re.compile(r"[a-z][a-z0-9_-]{0,31}")


def _destination(name: str) -> str:
    if not _DESTINATION.fullmatch(name):
        raise ValueError("must be up to 32 of a-z, 0-9, - and _, a letter first")
    if name == DEFAULT:
        raise ValueError("is the name of the destination that the section export describes; choose another one")
    return name


DestinationName = Annotated[str, AfterValidator(_destination)]
"""What tells a destination from others: in the spool, in metrics, in names of directories."""


class ExportConfig(Section):
    """
    Where spans go.

    The standard variables OTEL_EXPORTER_OTLP_* and OTEL_EXPORTER_OTLP_TRACES_* set protocol, endpoint, headers, compression,
    timeout_ms, insecure, certificate, client_key and client_certificate; they are stronger than this file and weaker than
    OTEL_BRIDGE_EXPORT__*.
    """

    protocol: Annotated[Literal["grpc", "http/protobuf", "file"], BeforeValidator(_protocol), LowerCase] = setting(
        "grpc", "How spans leave: OTLP over gRPC, OTLP over HTTP, or OTLP JSON lines."
    )
    endpoint: str = setting(
        _default_endpoint,
        f"Back end to send to; with http/protobuf, {TRACES_PATH} is added where there is no path. Default with http/protobuf: "
        f"{DEFAULT_ENDPOINTS['http/protobuf']}.",
        rule="http://HOST:PORT or https://HOST:PORT; for grpc also HOST:PORT, see insecure",
    )
    path: str = setting(
        "-", "File that JSON lines are appended to, with protocol file.", rule='a path, or "-" for standard output'
    )
    headers: Headers = setting(
        {}, "Headers of every request, for instance an API key.", rule="names and printable ASCII values", secret=True
    )
    tenant_header: HeaderName = setting(
        "",
        "Header by which the back end learns the tenant, for instance X-Scope-OrgID: each request then holds the spans of one "
        "tenant.",
        rule="a name, not one of headers",
    )
    default_tenant: HeaderValue = setting(
        "anonymous",
        "What tenant_header says for the default tenant, which has no name; empty: it is left out.",
        rule="printable ASCII",
    )
    token_file: ReadableFile = setting(
        None,
        "File with a bearer token that goes with every request; read again when it changes.",
        rule="a file that can be read; not together with a header authorization",
    )
    compression: Annotated[Literal["none", "gzip", "zstd"], LowerCase] = setting(
        "none", "Compression of requests; zstd needs protocol http/protobuf."
    )
    timeout_ms: int = setting(10_000, "Longest wait for the answer to one request.", unit="milliseconds", least=1)
    insecure: bool = setting(False, "Plain text for a grpc endpoint without http:// or https://, which else decide.")
    certificate: ReadableFile = setting(
        None,
        "PEM file of the authorities that vouch for the back end; else those of the system. This file and the two "
        "below are read again when they change.",
        rule="a file that can be read",
    )
    client_key: ReadableFile = setting(
        None, "PEM file of this bridge's private key, not encrypted.", rule="a file; needs client_certificate"
    )
    client_certificate: ReadableFile = setting(
        None, "PEM file of this bridge's certificate chain.", rule="a file that can be read; needs client_key"
    )
    max_request_bytes: int = setting(
        1 << 20,
        "Spans are gathered into requests of about this size, before compression; many back ends take at most 4 MiB.",
        unit="bytes",
        least=65_536,
        most=64 << 20,
    )
    linger_ms: int = setting(
        50,
        "How long few events wait for more to share a request with: it costs the same for few as for many.",
        unit="milliseconds",
        least=0,
    )
    retry_initial_s: Number = setting(
        1.0, "Upper bound of the wait before the first retry; doubles with each.", unit="seconds", above=0
    )
    retry_max_s: Number = setting(
        30.0, "Upper bound of the wait before any retry.", unit="seconds", rule="at least retry_initial_s", above=0
    )
    retry_max_elapsed_s: Unbounded = setting(
        math.inf,
        "Retries of one request end after this, and its events are dropped; inf: an outage is waited out, however long; "
        "0: no retries.",
        unit="seconds",
        least=0,
    )
    retry_max_stuck_s: Number = setting(
        300.0,
        "A request that has failed for so long while others got through is given up, lest it hold them up for ever.",
        unit="seconds",
        above=0,
    )
    connection_max_age_s: Number = setting(
        300.0,
        "A connection is made anew after this, so that a name that now stands for other addresses is followed.",
        unit="seconds",
        above=0,
    )
    dead_letter_bytes: int = setting(
        256 << 20,
        "Requests that the back end refused for good are kept in dead-letters below server.data_dir, the oldest going first; "
        '0: none are kept, as with data_dir ":memory:".',
        unit="bytes",
        least=0,
    )

    @field_validator("endpoint")
    @classmethod
    def _endpoint(cls, endpoint: str, info: ValidationInfo) -> str:
        over_http = info.data.get("protocol") == "http/protobuf"
        check_endpoint(endpoint, scheme_needed=over_http)
        if over_http and not urlsplit(endpoint).path:
            return urlsplit(endpoint)._replace(path=TRACES_PATH).geturl()
        return endpoint

    @model_validator(mode="after")
    def _agree(self) -> Self:
        faults = []
        if self.client_key and not self.client_certificate:
            faults.append("export.client_key is set, but export.client_certificate is not: give both, or neither")
        if self.client_certificate and not self.client_key:
            faults.append("export.client_certificate is set, but export.client_key is not: give both, or neither")
        if (self.certificate or self.client_certificate) and not self.secure and self.protocol != "file":
            faults.append(
                f"export has certificates, but export.endpoint ({self.endpoint}) is plain text: use https://, or drop them"
            )
        if self.token_file and "authorization" in self.headers:
            faults.append("export.token_file and the header authorization of export.headers are one thing: give one of them")
        if self.tenant_header and self.tenant_header in self.headers:
            faults.append(
                f"export.tenant_header and the header {self.tenant_header} of export.headers are one: give one of them"
            )
        if self.compression == "zstd" and self.protocol == "grpc":
            faults.append("export.compression is zstd, which gRPC does not have: use gzip, or export.protocol http/protobuf")
        if self.retry_max_s < self.retry_initial_s:
            faults.append(
                f"export.retry_max_s ({self.retry_max_s}) must be at least export.retry_initial_s ({self.retry_initial_s})"
            )
        if faults:
            raise ValueError("\n".join(faults))
        return self

    @property
    def secure(self) -> bool:
        """Is the connection encrypted? The scheme decides; without one, `insecure` does (OTLP exporter specification)."""
        scheme, separator, _ = self.endpoint.partition("://")
        return scheme == "https" if separator else not self.insecure

    @property
    def grpc_target(self) -> str:
        """`host:port` of the endpoint, without scheme and path; the port is that of the scheme where none is given."""
        if "://" not in self.endpoint:
            return self.endpoint
        url = urlsplit(self.endpoint)
        return url.netloc if url.port is not None else f"{url.netloc}:{443 if self.secure else 80}"

    @property
    def file(self) -> Path | None:
        """Where JSON lines go; None is standard output."""
        return None if self.path == "-" else Path(self.path)


def faults_of_files(sections: Mapping[str, ExportConfig]) -> list[str]:
    """Where two destinations would write to one file, in the user's words. `sections` by where their settings stand."""
    faults = []
    writers: dict[Path | None, str] = {}
    for section, config in sections.items():
        if config.protocol != "file":
            continue
        file = config.file.resolve() if config.file is not None else None
        other = writers.setdefault(file, section)
        if other != section:
            faults.append(
                f"{other}.path and {section}.path are one file ({config.path}): a file has one writer, so name another"
            )
    return faults
