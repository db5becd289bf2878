"""
OTLP over gRPC.

Invariants
* The payload's bytes go out as they are: no message is built.
* Every status code has one verdict, in `VERDICTS` (opentelemetry-proto docs/specification.md, "Failures").
* `google.rpc.RetryInfo` is read from `grpc-status-details-bin`, where the specification has it.
* The channel reconnects by itself, and no later than `_RECONNECT_MAX_MS` after the back end is there again.
"""

import asyncio
from collections.abc import Mapping
from enum import Enum
from functools import partial
from typing import cast

import grpc
import grpc.aio

from otel_bridge import __version__
from otel_bridge.errors import BackEndUnavailable, ExportRejected
from otel_bridge.export.answers import read_retry_info, read_sent, read_status, shown, wait_s
from otel_bridge.export.protocol import TOO_LARGE, Sent

METHOD = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
_RECONNECT_MAX_MS = 5_000  # gRPC's own bound is two minutes; the waits between retries are bounded by seconds


class Verdict(Enum):
    """Whether a retry helps."""

    RETRY = "retry"
    RETRY_IF_TOLD = "only if the answer holds RetryInfo; else the payload is too large"
    REJECT = "reject"


VERDICTS = {
    grpc.StatusCode.CANCELLED: Verdict.RETRY,
    grpc.StatusCode.UNKNOWN: Verdict.REJECT,
    grpc.StatusCode.INVALID_ARGUMENT: Verdict.REJECT,
    grpc.StatusCode.DEADLINE_EXCEEDED: Verdict.RETRY,
    grpc.StatusCode.NOT_FOUND: Verdict.REJECT,
    grpc.StatusCode.ALREADY_EXISTS: Verdict.REJECT,
    grpc.StatusCode.PERMISSION_DENIED: Verdict.REJECT,
    grpc.StatusCode.UNAUTHENTICATED: Verdict.REJECT,
    grpc.StatusCode.RESOURCE_EXHAUSTED: Verdict.RETRY_IF_TOLD,
    grpc.StatusCode.FAILED_PRECONDITION: Verdict.REJECT,
    grpc.StatusCode.ABORTED: Verdict.RETRY,
    grpc.StatusCode.OUT_OF_RANGE: Verdict.RETRY,
    grpc.StatusCode.UNIMPLEMENTED: Verdict.REJECT,
    grpc.StatusCode.INTERNAL: Verdict.REJECT,
    grpc.StatusCode.UNAVAILABLE: Verdict.RETRY,
    grpc.StatusCode.DATA_LOSS: Verdict.RETRY,
}
"""Every status code but OK."""


class OtlpGrpc:
    """
    Sends to one OTLP/gRPC back end.

    target        `host:port`
    credentials   None: plain text
    headers       metadata of every call; names in lower case
    timeout_s     for one call, connecting included
    """

    def __init__(
        self,
        target: str,
        *,
        credentials: grpc.ChannelCredentials | None = None,
        headers: Mapping[str, str] | None = None,
        gzip: bool = False,
        timeout_s: float = 10.0,
    ) -> None:
        options = [
            ("grpc.primary_user_agent", f"otel-bridge/{__version__}"),
            ("grpc.max_send_message_length", -1),
            ("grpc.initial_reconnect_backoff_ms", 1_000),
            ("grpc.max_reconnect_backoff_ms", _RECONNECT_MAX_MS),
        ]
        compression = grpc.Compression.Gzip if gzip else grpc.Compression.NoCompression
        if credentials is None:
            self._connect = partial(grpc.aio.insecure_channel, target, options, compression)
        else:
            self._connect = partial(grpc.aio.secure_channel, target, credentials, options, compression)
        self._channel: grpc.aio.Channel | None = None
        self._target = target
        self._metadata = tuple((headers or {}).items())
        self._timeout_s = timeout_s

    async def send(self, payload: bytes) -> Sent:
        """See `Exporter.send`."""
        try:
            body = await self._export()(payload, timeout=self._timeout_s, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            raise self._failure(error) from error
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Nobody cancelled this task: gRPC does so to calls under way when their channel is closed.
            raise BackEndUnavailable(f"the connection to back end {self._target} was closed during a request") from error
        return read_sent(body)

    async def close(self) -> None:
        """See `Exporter.close`."""
        if self._channel is not None:
            await self._channel.close(None)

    def _export(self) -> "grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]":
        """Made at the first call: a channel belongs to the event loop that runs when it is made."""
        if self._channel is None:
            self._channel = self._connect()
        return self._channel.unary_unary(METHOD, None, None)  # without serialisers: bytes in, bytes out

    def _failure(self, error: grpc.aio.AioRpcError) -> BackEndUnavailable | ExportRejected:
        told = read_retry_info(read_status(_details(error)))
        said = f"back end {self._target} answered {error.code().name}: {shown(error.details())}"
        match VERDICTS[error.code()]:
            case Verdict.RETRY:
                return BackEndUnavailable(said, retry_after_s=wait_s(told))
            case Verdict.RETRY_IF_TOLD if told is not None:
                return BackEndUnavailable(said, retry_after_s=wait_s(told))
            case Verdict.RETRY_IF_TOLD:
                return ExportRejected(said, reason=TOO_LARGE)
            case Verdict.REJECT:
                return ExportRejected(said)


def _details(error: grpc.aio.AioRpcError) -> bytes:
    value = cast("grpc.aio.Metadata", error.trailing_metadata()).get("grpc-status-details-bin")
    return value if isinstance(value, bytes) else b""
