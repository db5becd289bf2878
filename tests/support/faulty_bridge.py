"""
A bridge that answers as a test tells it to: for the faults that a real one does not bring on demand.

    with FaultyBridge() as bridge:
        bridge.answers += [Answer.grpc_failure(UNAVAILABLE, retry_after_s=0.1)]    # for the next call; then `answer`
        ...                                                                        # call bridge.address
        assert [call.method for call in bridge.received] == ["PutMapping", "PutMapping"]

Invariant: what it took is what it answered OK, in order of arrival. An OK without a body accepts every event.
"""

import threading
import time
from collections import deque
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Self

import grpc
from support.certificates import LOOPBACK, Certificates
from support.otlp_answers import TAKE, Answer

from otel_bridge.v1 import profiling_pb2 as pb


@dataclass(frozen=True)
class Call:
    """A call that came in, whatever it was answered; `body` after decompression."""

    method: str
    body: bytes
    metadata: Mapping[str, str]
    answer: Answer

    @property
    def events(self) -> pb.ExportEventsRequest:
        """The body of an `ExportEvents`."""
        return pb.ExportEventsRequest.FromString(self.body)


@dataclass
class FaultyBridge:
    """
    The server, inside a `with` block.

    tls                 serve TLS with these certificates; None: plain text
    client_must_show    with `tls`: refuse clients without a certificate of the authority
    max_request_bytes   refuse larger requests as gRPC does: RESOURCE_EXHAUSTED
    answers, answer     for the next calls, one each; then for all others
    """

    tls: Certificates | None = None
    client_must_show: bool = False
    max_request_bytes: int = 64 << 20
    answers: deque[Answer] = field(default_factory=deque)
    answer: Answer = TAKE
    received: list[Call] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._arrived = threading.Condition()
        self._gone = threading.Event()
        self._port = 0

    def __enter__(self) -> Self:
        self.come_back()
        return self

    def __exit__(self, *_: object) -> None:
        self.go_away()

    @property
    def address(self) -> str:
        """`host:port`, also while it is away."""
        return f"{LOOPBACK}:{self._port}"

    @property
    def taken(self) -> list[pb.ExportEventsRequest]:
        """The requests that it answered OK."""
        return [call.events for call in list(self.received) if call.answer.code is grpc.StatusCode.OK]

    def wait_for_calls(self, count: int, *, timeout_s: float = 20.0) -> list[Call]:
        """Wait until `count` calls or more came in."""
        with self._arrived:
            arrived = self._arrived.wait_for(lambda: len(self.received) >= count, timeout_s)
        assert arrived, f"{len(self.received)} calls of {count} after {timeout_s} s"
        return self.received

    def go_away(self) -> None:
        """Close the port and every connection."""
        self._gone.set()
        self._server.stop(None).wait()

    def come_back(self) -> None:
        """Listen, on the port of before if there was one."""
        self._gone.clear()
        limit = ("grpc.max_receive_message_length", self.max_request_bytes)
        self._server = grpc.server(ThreadPoolExecutor(8), options=[limit])
        self._server.add_generic_rpc_handlers((_Handlers(self),))
        self._port = self._listen(f"{LOOPBACK}:{self._port}")
        self._server.start()

    def _listen(self, address: str) -> int:
        for _ in range(1000):  # the port of a stopped server is let go a moment after `stop`
            try:
                if self.tls is None:
                    return self._server.add_insecure_port(address)
                own = [(self.tls.server_key.read_bytes(), self.tls.server.read_bytes())]
                authority = self.tls.authority.read_bytes() if self.client_must_show else None
                credentials = grpc.ssl_server_credentials(own, authority, self.client_must_show)
                return self._server.add_secure_port(address, credentials)
            except RuntimeError:
                time.sleep(0.02)
        raise AssertionError(f"{address} is taken")

    def _take(self, method: str, body: bytes, context: grpc.ServicerContext) -> bytes:
        with self._arrived:
            answer = self.answers.popleft() if self.answers else self.answer
            metadata = {key: value for key, value in context.invocation_metadata() if isinstance(value, str)}
            self.received.append(Call(method, body, metadata, answer))
            self._arrived.notify_all()
        if answer.delay_s:
            self._gone.wait(answer.delay_s)
        context.set_trailing_metadata(answer.trailers)
        if answer.code is not grpc.StatusCode.OK:
            context.abort(answer.code, answer.details)
        if answer.body or method != "ExportEvents":
            return answer.body
        return pb.ExportEventsResponse(accepted=len(pb.ExportEventsRequest.FromString(body).events.kind)).SerializeToString()


class _Handlers(grpc.GenericRpcHandler):
    """Every method of every service."""

    def __init__(self, bridge: FaultyBridge) -> None:
        self._bridge = bridge

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        method = details.method.rpartition("/")[2]
        return grpc.unary_unary_rpc_method_handler(lambda body, context: self._bridge._take(method, body, context))
