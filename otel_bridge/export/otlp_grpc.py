"""
OTLP over gRPC.

Invariants
* The payload's bytes go out as they are: no message is built.
* Every status code has one verdict, in `VERDICTS` (opentelemetry-proto docs/specification.md, "Failures").
* `google.rpc.RetryInfo` is read from `grpc-status-details-bin`, where the specification has it.
* The channel reconnects by itself, and no later than `_RECONNECT_MAX_MS` after the back end is there again. One that lets a
  call wait in vain is not used again: a connection may look whole long after its peer is gone.
* No pings: servers hang up on clients that send them more often than every five minutes (gRFC A8).
"""

import asyncio
import re
from collections.abc import Mapping
from enum import Enum
from typing import cast

import grpc
import grpc.aio

from otel_bridge import __version__
from otel_bridge.config.reload import Reloaded
from otel_bridge.errors import BackEndUnavailable, ExportRejected
from otel_bridge.export.answers import read_retry_info, read_sent, read_status, shown, wait_s
from otel_bridge.export.protocol import EXHAUSTED, INVALID, TOO_LARGE, Sent
from otel_bridge.export.renewal import Renewal
from otel_bridge.export.tenant_header import TenantHeader
from otel_bridge.export.token import Token

METHOD = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
_RECONNECT_MAX_MS = 5_000  # gRPC's own bound is two minutes; the waits between retries are bounded by seconds
_RESOLVE_AGAIN_MS = 1_000  # gRPC's own bound is half a minute: so long it would try the addresses of a back end that has moved
_IDLE_MS = 50_000  # balancers forget idle connections after a minute, some without a word

_SIZE = re.compile(r"larger than max|too large|exceeds maximum size|exceeds the (configured )?max", re.IGNORECASE)
"""How servers say that a message is over their limit: gRPC core and Go, tonic, Java, .NET."""


class Verdict(Enum):
    """Whether a retry helps."""

    RETRY = "retry"
    RETRY_IF_TOLD = "only if the answer holds RetryInfo; else, most often, the payload is too large"
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

_MAY_BE_SIZE = frozenset({grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.OUT_OF_RANGE})
"""Codes by which servers refuse a message for its size; OUT_OF_RANGE is tonic's (its codec/decode.rs)."""


class OtlpGrpc:
    """
    Sends to one OTLP/gRPC back end.

    target      `host:port`
    tls         credentials; None: plain text
    headers     metadata of every call; names in lower case
    token       sent as a bearer token; None: none
    of_tenant   tells whose spans a request holds; None: nobody asks
    timeout_s   for one call, connecting included
    max_age_s   of a channel; a new one asks anew where the target is
    """

    def __init__(
        self,
        target: str,
        *,
        tls: Reloaded[grpc.ChannelCredentials] | None = None,
        headers: Mapping[str, str] | None = None,
        token: Token | None = None,
        of_tenant: TenantHeader | None = None,
        gzip: bool = False,
        timeout_s: float = 10.0,
        max_age_s: float = 300.0,
    ) -> None:
        self._target = target
        self._compression = grpc.Compression.Gzip if gzip else grpc.Compression.NoCompression
        self._headers = tuple((headers or {}).items())
        self._token = token
        self._of_tenant = of_tenant
        self._timeout_s = timeout_s
        self._channels = Renewal(self._open, _close, tls=tls, max_age_s=max_age_s)

    async def send(self, payload: bytes, tenant: str = "") -> Sent:
        """See `Exporter.send`."""
        metadata = await self._metadata(tenant)
        async with self._channels.lend() as channel:
            export = channel.unary_unary(METHOD, None, None)  # without serialisers: bytes in, bytes out
            try:
                body = await export(payload, timeout=self._timeout_s, metadata=metadata)
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                    self._channels.retire(channel)
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
        await self._channels.close()

    async def _metadata(self, tenant: str) -> tuple[tuple[str, str], ...]:
        headers = self._headers
        if self._of_tenant is not None:
            headers = (*headers, *self._of_tenant.of(tenant).items())
        if self._token is None:
            return headers
        return (*headers, ("authorization", f"Bearer {await asyncio.to_thread(self._token)}"))

    def _open(self, credentials: grpc.ChannelCredentials | None) -> grpc.aio.Channel:
        """Called on the event loop: a channel belongs to the one that runs when it is made."""
        options = [
            ("grpc.primary_user_agent", f"otel-bridge/{__version__}"),
            ("grpc.max_send_message_length", -1),
            ("grpc.initial_reconnect_backoff_ms", 1_000),
            ("grpc.max_reconnect_backoff_ms", _RECONNECT_MAX_MS),
            ("grpc.dns_min_time_between_resolutions_ms", _RESOLVE_AGAIN_MS),
            ("grpc.client_idle_timeout_ms", _IDLE_MS),
            ("grpc.use_local_subchannel_pool", 1),  # else a new channel would get the connection of the old one
        ]
        if credentials is None:
            return grpc.aio.insecure_channel(self._target, options, self._compression)
        return grpc.aio.secure_channel(self._target, credentials, options, self._compression)

    def _failure(self, error: grpc.aio.AioRpcError) -> BackEndUnavailable | ExportRejected:
        told = read_retry_info(read_status(_details(error)))
        code, details = error.code(), error.details() or ""
        said = f"back end {self._target} answered {code.name}: {shown(details)}"
        if told is None and code in _MAY_BE_SIZE and _SIZE.search(details):
            return ExportRejected(said, reason=TOO_LARGE)
        match VERDICTS[code]:
            case Verdict.RETRY:
                return BackEndUnavailable(said, retry_after_s=wait_s(told))
            case Verdict.RETRY_IF_TOLD if told is not None:
                return BackEndUnavailable(said, retry_after_s=wait_s(told))
            case Verdict.RETRY_IF_TOLD:
                return ExportRejected(said, reason=EXHAUSTED)
            case Verdict.REJECT:
                return ExportRejected(said, reason=INVALID if code is grpc.StatusCode.INVALID_ARGUMENT else None)


async def _close(channel: grpc.aio.Channel) -> None:
    await channel.close(None)


def _details(error: grpc.aio.AioRpcError) -> bytes:
    value = cast("grpc.aio.Metadata", error.trailing_metadata()).get("grpc-status-details-bin")
    return value if isinstance(value, bytes) else b""
