"""
The two doors of a bridge, as a load generator uses them: one attempt, answered or refused.

Invariant: what an attempt raises is `BridgeUnavailable` where a retry helps, else `BridgeRefused`, whichever the door.
"""

import http.client
import json
import time
from typing import TYPE_CHECKING, Protocol

from google.protobuf.message import DecodeError

from otel_bridge.client.address import read_address
from otel_bridge.client.connection import CALL_TIMEOUT_S, UNREACHABLE, Connection, reason_of
from otel_bridge.errors import BridgeRefused, BridgeUnavailable, ConfigError
from otel_bridge.export.answers import read_retry_after_s, read_status
from otel_bridge.export.tls import TlsFiles, load_context
from otel_bridge.export.token import Token
from otel_bridge.mapping.source import write_file
from otel_bridge.telemetry.logs import escape
from otel_bridge.v1 import mapping_pb2
from otel_bridge.v1 import profiling_pb2 as pb
from otel_bridge.wire.intake import SENT_KEY

if TYPE_CHECKING:
    import grpc

_EXPORT = "/otel_bridge.v1.ProfilingService/ExportEvents"
_RETRYABLE = frozenset({429, 502, 503, 504})
"""By the OTLP specification, "Failures"."""
_SHOWN = 1_000


class Door(Protocol):
    """A way into a bridge. Each call is one attempt, and raises `BridgeUnavailable` or `BridgeRefused`."""

    def send(self, body: bytes) -> pb.ExportEventsResponse:
        """Hand in a serialised `ExportEventsRequest`."""
        ...

    def put_mapping(self, file: mapping_pb2.MappingFile) -> str:
        """Upload a mapping, unless it is there; the build id that it has."""
        ...

    def close(self) -> None:
        """Let go of the connection."""
        ...


class GrpcDoor:
    """Calls over a connection that others may use at the same time; they close it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._export: grpc.UnaryUnaryMultiCallable[bytes, pb.ExportEventsResponse] = connection.channel.unary_unary(
            _EXPORT, None, pb.ExportEventsResponse.FromString
        )

    def send(self, body: bytes) -> pb.ExportEventsResponse:
        """Hand in a serialised `ExportEventsRequest`."""
        return self._connection.call(self._export, body)

    def put_mapping(self, file: mapping_pb2.MappingFile) -> str:
        """Upload a mapping, unless it is there; the build id that it has."""
        put = self._connection.mappings.PutMapping
        return self._connection.call(put, mapping_pb2.PutMappingRequest(file=file)).build_id

    def close(self) -> None:
        """Nothing: the connection is somebody else's."""


class HttpDoor:
    """
    A connection of its own over HTTP/1.1, opened by the first attempt and again after it broke.

    `http.client`, not httpx: a request costs a fifth of the processor, which the bridge under load may need.

    server   `HOST:PORT`, `http://HOST:PORT` or `https://HOST:PORT`

    Raises ConfigError.
    """

    def __init__(self, server: str, files: TlsFiles, token: Token | None, *, plain_token: bool = False) -> None:
        address = read_address(server)
        is_tls = address.is_tls or (address.is_tls is None and bool(files.paths))
        if token is not None and not (is_tls or address.is_local or plain_token):
            raise ConfigError(f"token: would travel to {address.target} in plain text; use https:// or say --plain-token")
        self._server = address.target
        self._token = token
        self._connection: http.client.HTTPConnection
        if is_tls:
            context = load_context(files)
            self._connection = http.client.HTTPSConnection(address.target, timeout=CALL_TIMEOUT_S, context=context)
        else:
            self._connection = http.client.HTTPConnection(address.target, timeout=CALL_TIMEOUT_S)

    def send(self, body: bytes) -> pb.ExportEventsResponse:
        """Hand in a serialised `ExportEventsRequest`."""
        content = self._exchange("POST", "/v1/events", body, "application/x-protobuf")
        try:
            return pb.ExportEventsResponse.FromString(content)
        except DecodeError as error:
            raise self._not_a_bridge(content) from error

    def put_mapping(self, file: mapping_pb2.MappingFile) -> str:
        """Upload a mapping, unless it is there; the build id that it has."""
        content = self._exchange("PUT", "/v1/mappings", write_file(file, ""), "application/octet-stream")
        try:
            return str(json.loads(content)["build_id"])
        except (ValueError, KeyError, TypeError) as error:
            raise self._not_a_bridge(content) from error

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _exchange(self, method: str, path: str, body: bytes, content_type: str) -> bytes:
        headers = {"content-type": content_type, SENT_KEY: str(time.time_ns())}
        if self._token is not None:
            headers["authorization"] = f"Bearer {self._token()}"
        fresh = self._connection.sock is None  # another may have been closed since: bridges let idle ones go
        while True:
            try:
                self._connection.request(method, path, body, headers)
                answer = self._connection.getresponse()
                content = answer.read()
                break
            except (OSError, http.client.HTTPException) as error:
                self._connection.close()
                if fresh or isinstance(error, TimeoutError):
                    said = f"no bridge answers at {self._server}: {escape(str(error), _SHOWN)}"
                    raise BridgeUnavailable(said, reason=UNREACHABLE) from error
                fresh = True
        if not _is_success(answer.status):
            raise self._failure(answer, content)
        return content

    def _failure(self, answer: http.client.HTTPResponse, content: bytes) -> BridgeRefused | BridgeUnavailable:
        reason, details = _read_fault(answer.getheader("content-type") or "", content)
        said = f"the bridge at {self._server} answered HTTP {answer.status}: {escape(details, _SHOWN)}"
        code = f"HTTP {answer.status}"
        if answer.status in _RETRYABLE:
            wait_s = read_retry_after_s(answer.getheader("retry-after"))
            return BridgeUnavailable(said, code=code, retry_after_s=wait_s, reason=reason)
        return BridgeRefused(said, code=code, reason=reason)

    def _not_a_bridge(self, content: bytes) -> BridgeRefused:
        said = f"{self._server} answers {len(content)} bytes that no bridge would; is it the address of the HTTP door?"
        return BridgeRefused(said, code="UNKNOWN")


def _is_success(status: int) -> bool:
    return 200 <= status < 300  # noqa: PLR2004 - RFC 9110, 15.3


def _read_fault(content_type: str, content: bytes) -> tuple[str | None, str]:
    """Reason, None where there is none, and message of an answer: `google.rpc.Status`, or JSON as wire/http.py has it."""
    if content_type.startswith("application/json"):
        try:
            fault = json.loads(content)
            return escape(str(fault["reason"]), 64), str(fault["message"])
        except (ValueError, KeyError, TypeError):
            return None, ""
    status = read_status(content)
    return reason_of(status), status.message if status is not None else ""
