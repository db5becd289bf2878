"""
A real Jaeger, and a typed client of its HTTP API.

Facts (Jaeger 2, module v1.76.0)
* API v3 keeps array attributes and nanoseconds; API v1 turns arrays into strings and times into whole microseconds,
  but only v1 shows the warnings that the query service adds to a span.
* A search of v3 needs both bounds of time and a count; without the count it answers 500.
* Spans that are equal, resource and scope included, show once however often they were sent.
"""

import base64
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
from support.engines import SOURCES
from support.processes import LOOPBACK, Process, free_ports

Value = str | int | float | bool | bytes | tuple["Value", ...] | dict[str, "Value"] | None


@dataclass(frozen=True)
class StoredSpan:
    """A span as Jaeger gives it back. Ids are lower-case hex, "" for no parent; times are nanoseconds since 1970."""

    trace_id: str
    span_id: str
    parent_span_id: str
    name: str
    kind: int
    flags: int
    start_ns: int
    end_ns: int
    status: int
    trace_state: str
    attributes: Mapping[str, Value]
    resource: Mapping[str, Value]
    scope: tuple[str, str]
    links: tuple[tuple[str, str], ...]


class Jaeger:
    """
    A running Jaeger.

    otlp_grpc   "http://127.0.0.1:PORT" for OTLP/gRPC
    otlp_http   the same for OTLP/HTTP; a signal's path is appended
    query       base of its query API
    """

    def __init__(self, process: Process, otlp_grpc_port: int, otlp_http_port: int, query_port: int) -> None:
        self.process = process
        self.otlp_grpc = f"http://{LOOPBACK}:{otlp_grpc_port}"
        self.otlp_http = f"http://{LOOPBACK}:{otlp_http_port}"
        self.query = f"http://{LOOPBACK}:{query_port}"
        self._client = httpx.Client(base_url=self.query, timeout=30, trust_env=False)

    def close(self) -> None:
        """Close the client; the process is its owner's."""
        self._client.close()

    def ready(self) -> bool:
        """Whether both doors that tests use are open."""
        try:
            self._client.get("/api/v3/services").raise_for_status()
            httpx.get(self.otlp_http, timeout=1, trust_env=False)  # 404: it listens
        except httpx.TransportError:
            return False
        return True

    def services(self) -> set[str]:
        """Names of all services that sent a span."""
        return set(self._get("/api/v3/services")["services"] or ())

    def trace(self, trace_id: str) -> list[StoredSpan]:
        """All spans of a trace, by start; empty where Jaeger knows none."""
        answer = self._client.get(f"/api/v3/traces/{trace_id}")
        return [] if answer.status_code == httpx.codes.NOT_FOUND else _spans(answer.raise_for_status().json())

    def search(self, service: str, *, start_ns: int, end_ns: int, count: int = 1000) -> dict[str, list[StoredSpan]]:
        """Traces of a service with a span that starts between the bounds, by trace id."""
        query = {
            "query.service_name": service,
            "query.start_time_min": _rfc3339(start_ns),
            "query.start_time_max": _rfc3339(end_ns),
            "query.num_traces": count,
        }
        answer = self._client.get("/api/v3/traces", params=query)
        traces: dict[str, list[StoredSpan]] = {}
        for span in [] if answer.status_code == httpx.codes.NOT_FOUND else _spans(answer.raise_for_status().json()):
            traces.setdefault(span.trace_id, []).append(span)
        return traces

    def warnings(self, trace_id: str) -> dict[str, list[str]]:
        """What Jaeger complains of, by span id; spans without a complaint are left out."""
        spans = self._get(f"/api/traces/{trace_id}")["data"][0]["spans"]
        return {span["spanID"]: span["warnings"] for span in spans if span.get("warnings")}

    def _get(self, path: str) -> Any:
        return self._client.get(path).raise_for_status().json()


@contextmanager
def running_jaeger(program: Path, *, log: Path) -> Iterator[Jaeger]:
    """A Jaeger of our own on free loopback ports, with an empty store in memory."""
    otlp_grpc, otlp_http, query_http, query_grpc = free_ports(4)
    environment = {
        "OTLP_GRPC_PORT": str(otlp_grpc),
        "OTLP_HTTP_PORT": str(otlp_http),
        "QUERY_HTTP_PORT": str(query_http),
        "QUERY_GRPC_PORT": str(query_grpc),
    }
    command = [program, f"--config=file:{SOURCES / 'jaeger' / 'jaeger.yaml'}"]
    with Process(command, log=log, environment=environment) as process:
        jaeger = Jaeger(process, otlp_grpc, otlp_http, query_http)
        try:
            process.wait_until(jaeger.ready)
            yield jaeger
        finally:
            jaeger.close()


def _rfc3339(unix_ns: int) -> str:
    seconds, nanoseconds = divmod(unix_ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{nanoseconds:09d}Z"


def _spans(answer: Any) -> list[StoredSpan]:
    spans = [
        _span(span, resource, (scope["scope"].get("name", ""), scope["scope"].get("version", "")))
        for resource_spans in answer["result"].get("resourceSpans", ())
        for resource in [_attributes(resource_spans["resource"])]
        for scope in resource_spans["scopeSpans"]
        for span in scope.get("spans", ())  # a repeated copy is left as an empty scope
    ]
    return sorted(spans, key=lambda span: (span.start_ns, -span.end_ns))


def _span(span: Any, resource: Mapping[str, Value], scope: tuple[str, str]) -> StoredSpan:
    return StoredSpan(
        trace_id=span["traceId"],
        span_id=span["spanId"],
        parent_span_id=span.get("parentSpanId", ""),
        name=span["name"],
        kind=span.get("kind", 0),
        flags=span.get("flags", 0),
        start_ns=int(span["startTimeUnixNano"]),
        end_ns=int(span["endTimeUnixNano"]),
        status=span.get("status", {}).get("code", 0),
        trace_state=span.get("traceState", ""),
        attributes=_attributes(span),
        resource=resource,
        scope=scope,
        links=tuple((link["traceId"], link["spanId"]) for link in span.get("links", ())),
    )


def _attributes(holder: Any) -> dict[str, Value]:
    return {attribute["key"]: _value(attribute["value"]) for attribute in holder.get("attributes", ())}


def _value(value: Any) -> Value:
    """An OTLP AnyValue in JSON: one key that names its type; int64 as text."""
    ((kind, content),) = value.items() or [("none", None)]
    match kind:
        case "intValue":
            return int(content)
        case "doubleValue":
            return float(content)  # 1024.0 is written as 1024
        case "bytesValue":
            return base64.b64decode(content)
        case "arrayValue":
            return tuple(_value(each) for each in content.get("values", ()))
        case "kvlistValue":
            return {each["key"]: _value(each["value"]) for each in content.get("values", ())}
        case _:
            return content  # type: ignore[no-any-return]  # text, number, truth value, or None: as JSON has it
