"""What an OTLP back end may answer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTracePartialSuccess, ExportTraceServiceResponse


@dataclass(frozen=True)
class Answer:
    """
    What the sink says to one request. The default takes it.

    body        serialised `ExportTraceServiceResponse`, or any bytes
    code        gRPC status code; not OK: nothing of the request is kept
    details     gRPC status message
    trailers    gRPC trailing metadata
    status      HTTP status; not 2xx: nothing of the request is kept
    headers     HTTP headers, beside content-type and content-length
    delay_s     wait before answering; ends early when the sink goes away
    """

    body: bytes = b""
    code: grpc.StatusCode = grpc.StatusCode.OK
    details: str = ""
    trailers: tuple[tuple[str, str | bytes], ...] = ()
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_s: float = 0.0

    @classmethod
    def partial(cls, rejected_spans: int, message: str) -> Self:
        """Partial success, over gRPC and HTTP."""
        partial = ExportTracePartialSuccess(rejected_spans=rejected_spans, error_message=message)
        return cls(body=ExportTraceServiceResponse(partial_success=partial).SerializeToString())

    @classmethod
    def grpc_failure(cls, code: grpc.StatusCode, details: str = "", *, retry_after_s: float | None = None) -> Self:
        """A gRPC failure, with `google.rpc.RetryInfo` in `grpc-status-details-bin` if a time is given."""
        status = Status(code=code.value[0], message=details)
        if retry_after_s is not None:
            status.details.append(packed(RetryInfo(retry_delay=duration(retry_after_s))))
        trailers = (("grpc-status-details-bin", status.SerializeToString()),) if retry_after_s is not None else ()
        return cls(code=code, details=details, trailers=trailers)

    @classmethod
    def http_failure(cls, status: int, message: str = "", *, retry_after: str | None = None, **headers: str) -> Self:
        """An HTTP failure with a `google.rpc.Status` as its body, and a `Retry-After` header if one is given."""
        body = Status(message=message).SerializeToString()
        return cls(
            status=status, body=body, headers=headers | ({"retry-after": retry_after} if retry_after is not None else {})
        )


TAKE = Answer()


def duration(seconds: float) -> Duration:
    """A protobuf Duration."""
    whole = int(seconds)
    return Duration(seconds=whole, nanos=round((seconds - whole) * 1e9))


def packed(message: Any) -> AnyMessage:
    """A message inside google.protobuf.Any."""
    wrapped = AnyMessage()
    wrapped.Pack(message)
    return wrapped
