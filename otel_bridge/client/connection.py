"""
A connection to a bridge: channel, credentials, and what an answer means.

Invariants
* What is written wrongly is refused when the connection is made (`ConfigError`); whether somebody answers shows in a call.
* A token travels inside TLS, or to this machine, or where the user said in so many words that it may be read on the way.
* Each attempt carries its own time of sending and the token as it is then.
* An answer means what the OTLP specification says of its code: `export.otlp_grpc.VERDICTS`. A call raises `BridgeUnavailable`
  where a retry helps, else `BridgeRefused`, and nothing else.
"""

import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias, TypeVar, cast

import grpc
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status

from otel_bridge import __version__
from otel_bridge.client.address import Address, read_address
from otel_bridge.errors import BridgeRefused, BridgeUnavailable, ConfigError, TooLarge
from otel_bridge.export.answers import read_retry_info, read_status, wait_s
from otel_bridge.export.otlp_grpc import VERDICTS, Verdict
from otel_bridge.export.retry import RetryPolicy
from otel_bridge.export.tls import TlsFiles, load_credentials
from otel_bridge.export.token import Token, open_token
from otel_bridge.telemetry.logs import escape
from otel_bridge.v1 import mapping_pb2_grpc, profiling_pb2, profiling_pb2_grpc
from otel_bridge.wire.intake import SENT_KEY

CALL_TIMEOUT_S = 60.0
UNREACHABLE = "bridge_unreachable"
"""Reason of a `BridgeUnavailable`: nobody answers at that address."""

TOO_LARGE = TooLarge.reason
"""Reason of a `BridgeRefused`: the request is over the size limit of the bridge, or of somebody before it."""

NO_RETRY = RetryPolicy(max_elapsed_s=0.0)

_EXPORT = "/otel_bridge.v1.ProfilingService/ExportEvents"
_RECONNECT_MAX_MS = 5_000  # gRPC's own bound is two minutes
_MAX_DETAILS = 1_000

Export: TypeAlias = "grpc.CallFuture[profiling_pb2.ExportEventsResponse]"
"""An attempt to send events, under way."""

Q = TypeVar("Q")
A = TypeVar("A")


class Connection:
    """
    A channel to one bridge. It is opened by the first call, reconnects by itself, and may be used from several threads.

    server       `HOST:PORT`, `http://HOST:PORT` (plain text) or `https://HOST:PORT` (TLS)
    token        bearer token, or the file that holds it; the file is read again when it changes
    ca           PEM file of the authorities to trust; without it those of the system. Implies TLS
    cert, key    PEM files of the client's own certificate, for a bridge that asks for one. Imply TLS
    plain_token  send the token without TLS to another machine, too: whoever listens on the way can read it
    gzip         compress what is sent
    alone        share no TCP connection with other channels of this process

    Raises ConfigError.
    """

    def __init__(
        self,
        server: str,
        *,
        token: str | Path | None = None,
        ca: str | Path | None = None,
        cert: str | Path | None = None,
        key: str | Path | None = None,
        plain_token: bool = False,
        gzip: bool = False,
        alone: bool = False,
    ) -> None:
        address = read_address(server)
        self.server = address.target
        self._credentials = _credentials(address, TlsFiles(_path(ca), _path(cert), _path(key)))
        self._token: Token | None = open_token(token) if token is not None else None
        if self._token and self._credentials is None and not address.is_local and not plain_token:
            raise ConfigError(
                f"token: would travel to {self.server} in plain text; use https://{self.server}, "
                "or say plain_token=True (--plain-token)"
            )
        self._compression = grpc.Compression.Gzip if gzip else grpc.Compression.NoCompression
        self._alone = alone
        self._opened: grpc.Channel | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the channel; calls under way fail. The next call opens it again."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    @property
    def channel(self) -> grpc.Channel:
        """The channel, opened if it is not."""
        if self._opened is None:
            options = [
                ("grpc.primary_user_agent", f"otel-bridge/{__version__}"),
                ("grpc.max_send_message_length", -1),  # the bridge has its own limit and says so
                ("grpc.max_receive_message_length", -1),
                ("grpc.initial_reconnect_backoff_ms", 1_000),
                ("grpc.max_reconnect_backoff_ms", _RECONNECT_MAX_MS),
                ("grpc.use_local_subchannel_pool", int(self._alone)),
            ]
            if self._credentials is None:
                self._opened = grpc.insecure_channel(self.server, options, self._compression)
            else:
                self._opened = grpc.secure_channel(self.server, self._credentials, options, self._compression)
        return self._opened

    @property
    def profiling(self) -> profiling_pb2_grpc.ProfilingServiceStub:
        """Methods of the profiling service, for `call`."""
        return profiling_pb2_grpc.ProfilingServiceStub(self.channel)

    @property
    def mappings(self) -> mapping_pb2_grpc.MappingServiceStub:
        """Methods of the mapping service, for `call`."""
        return mapping_pb2_grpc.MappingServiceStub(self.channel)

    def call(
        self,
        method: "grpc.UnaryUnaryMultiCallable[Q, A]",
        request: Q,
        *,
        timeout_s: float = CALL_TIMEOUT_S,
        retry: RetryPolicy = NO_RETRY,
        sleep: Callable[[float], None] = time.sleep,
    ) -> A:
        """
        The answer to a request, for example `call(connection.mappings.PutMapping, request)`.

        `timeout_s` is for one attempt; `retry` says how often there is another where that helps.

        Raises BridgeUnavailable, BridgeRefused.
        """
        started = time.monotonic()
        attempt = 0
        while True:
            try:
                return method(request, timeout=timeout_s, metadata=self.metadata())
            except grpc.RpcError as error:
                failure = self.failure(error)
                if isinstance(failure, BridgeRefused):
                    raise failure from error
                wait = retry.wait_s(attempt, failure.retry_after_s)
                if time.monotonic() - started + wait >= retry.max_elapsed_s:
                    raise failure from error
            sleep(wait)
            attempt += 1

    def begin_export(self, body: bytes, *, timeout_s: float) -> Export:
        """One attempt to send a serialised `ExportEventsRequest`; what it raises later is for `failure`."""
        answer = profiling_pb2.ExportEventsResponse.FromString
        export = self.channel.unary_unary(_EXPORT, None, answer)  # without a serialiser: bytes go out as they are
        return export.future(body, timeout=timeout_s, metadata=self.metadata())

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What goes beside the body of an attempt that is made now."""
        sent = ((SENT_KEY, str(time.time_ns())),)
        return (*sent, ("authorization", f"Bearer {self._token()}")) if self._token else sent

    def failure(self, error: grpc.RpcError) -> BridgeRefused | BridgeUnavailable:
        """What the error of a call means."""
        call = cast("grpc.Call", error)  # an error of a call is one
        code, details = call.code(), escape(call.details() or "", _MAX_DETAILS)
        status = read_status(_status_details(call))
        told = read_retry_info(status)
        said = f"the bridge at {self.server} answered {code.name}: {details}"
        match VERDICTS[code]:
            case Verdict.RETRY:
                return self._unavailable(code, said, details, wait_s(told), reason_of(status))
            case Verdict.RETRY_IF_TOLD if told is not None:
                return self._unavailable(code, said, details, wait_s(told), reason_of(status))
            case Verdict.RETRY_IF_TOLD:
                return BridgeRefused(said, code=code.name, reason=TOO_LARGE)
            case Verdict.REJECT:
                return BridgeRefused(said, code=code.name, reason=reason_of(status))

    def _unavailable(
        self, code: grpc.StatusCode, said: str, details: str, retry_after_s: float | None, reason: str | None
    ) -> BridgeUnavailable:
        if code is grpc.StatusCode.UNAVAILABLE and any(word in details.lower() for word in ("connect", "resol")):
            said = f"no bridge answers at {self.server}: {details}"
            return BridgeUnavailable(said, code=code.name, retry_after_s=retry_after_s, reason=UNREACHABLE)
        return BridgeUnavailable(said, code=code.name, retry_after_s=retry_after_s, reason=reason)


def _credentials(address: Address, files: TlsFiles) -> grpc.ChannelCredentials | None:
    named = any((files.authority, files.certificate, files.key))
    if address.is_tls is False and named:
        raise ConfigError(f"server: http:// is plain text, and ca, cert and key are for TLS; write https://{address.target}")
    return load_credentials(files) if address.is_tls or named else None


def _path(file: str | Path | None) -> Path | None:
    return Path(file) if file is not None else None


def _status_details(call: grpc.Call) -> bytes:
    trailers: Any = call.trailing_metadata() or ()
    found = dict(trailers).get("grpc-status-details-bin")
    return found if isinstance(found, bytes) else b""


def reason_of(status: Status | None) -> str | None:
    """The reason that a bridge gives in `ErrorInfo`, in lower case; None: it gives none."""
    for detail in status.details if status else ():
        info = ErrorInfo()
        try:
            if detail.Unpack(info) and info.domain == "otel_bridge":
                return escape(info.reason.lower(), 64)
        except DecodeError:
            continue
    return None
