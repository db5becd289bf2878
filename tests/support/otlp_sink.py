"""
A real OTLP back end for traces, on loopback and free ports, over gRPC and HTTP at once.

It takes what it is sent and remembers it, or answers whatever a test tells it to. It runs in threads of its own, so it serves a
test with an event loop, one without, and a bridge in another process alike:

    with OtlpSink() as sink:
        ...                                       # send to sink.grpc_endpoint or sink.http_endpoint
        sink.wait_for_spans(3)
        assert {span.name for span in sink.spans} == {...}

    sink.answers += [Answer.grpc_failure(UNAVAILABLE, retry_after_s=0.1)]    # for the next request; then OK again
    sink.go_away(); ...; sink.come_back()                                    # on the same ports
"""

import gzip
import ssl
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from support.certificates import LOOPBACK, Certificates
from support.otlp_answers import TAKE, Answer

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

SERVICE = "opentelemetry.proto.collector.trace.v1.TraceService"
PROTOBUF = "application/x-protobuf"


@dataclass(frozen=True)
class Received:
    """A request that came in, whatever it was answered. Header names are in lower case, `arrived_s` by the monotonic clock."""

    transport: str  # "grpc" or "http"
    payload: bytes  # after decompression
    headers: Mapping[str, str]
    path: str
    answer: Answer
    arrived_s: float = field(default_factory=time.monotonic)

    @property
    def request(self) -> ExportTraceServiceRequest:
        """The payload as a message."""
        return ExportTraceServiceRequest.FromString(self.payload)


class OtlpSink:
    """
    The back end.

    tls                 serve TLS with these certificates; None: plain text. Another one counts from the next `come_back` on
    client_must_show    with `tls`: refuse clients without a certificate of the authority
    host, ports         where it listens, for gRPC and for HTTP; port 0: a free one
    max_request_bytes   refuse larger requests as real servers do: RESOURCE_EXHAUSTED of gRPC, HTTP 413; after decompression.
                        Another one counts from the next `come_back` on
    max_connection_s    gRPC only: send GOAWAY on connections of this age; None: never. Another one counts as above

    judge               asked first what a request is answered, by its payload; None: no matter of its
    answers             one for each of the next requests, of either transport; then `answer`
    answer              what all else is answered
    received            every request, in order of arrival
    """

    def __init__(
        self,
        *,
        tls: Certificates | None = None,
        client_must_show: bool = False,
        max_request_bytes: int = 64 << 20,
        host: str = LOOPBACK,
        ports: tuple[int, int] = (0, 0),
    ) -> None:
        self.answers: deque[Answer] = deque()
        self.answer = TAKE
        self.judge: Callable[[bytes], Answer | None] = lambda _: None
        self.received: list[Received] = []
        self.tls = tls
        self._client_must_show = client_must_show
        self.max_request_bytes = max_request_bytes
        self.max_connection_s: float | None = None
        self._arrived = threading.Condition()
        self._gone = threading.Event()
        self.host = host
        self.ports = ports

    def __enter__(self) -> Self:
        self.come_back()
        return self

    def __exit__(self, *_: object) -> None:
        self.go_away()

    @property
    def grpc_endpoint(self) -> str:
        """URL of the gRPC service."""
        return f"{self._scheme}://{self.host}:{self.ports[0]}"

    @property
    def http_endpoint(self) -> str:
        """URL that takes traces, path included."""
        return f"{self._scheme}://{self.host}:{self.ports[1]}/v1/traces"

    @property
    def requests(self) -> list[ExportTraceServiceRequest]:
        """The requests that were taken."""
        return [one.request for one in self._taken()]

    @property
    def spans(self) -> list[Span]:
        """The spans of the requests that were taken, in order."""
        return [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def wait_for_spans(self, count: int, *, timeout_s: float = 20.0) -> list[Span]:
        """Wait until `count` spans or more were taken. Blocks: in an event loop, call it by `asyncio.to_thread`."""
        with self._arrived:
            arrived = self._arrived.wait_for(lambda: len(self.spans) >= count, timeout_s)
        assert arrived, f"{len(self.spans)} spans of {count} after {timeout_s} s"
        return self.spans

    def wait_for_requests(self, count: int, *, timeout_s: float = 20.0) -> list[Received]:
        """Wait until `count` requests or more came in, taken or not. Blocks, as `wait_for_spans`."""
        with self._arrived:
            arrived = self._arrived.wait_for(lambda: len(self.received) >= count, timeout_s)
        assert arrived, f"{len(self.received)} requests of {count} after {timeout_s} s"
        return self.received

    def go_away(self) -> None:
        """Close both ports and every connection; requests under way get no answer."""
        stopped = self._grpc.stop(None)
        self._http.shutdown()
        self._http.server_close()
        self._http_thread.join()
        self._gone.set()  # only now: who waits to answer finds nobody to answer to
        stopped.wait()

    def come_back(self) -> None:
        """Listen, on the ports of before if there were any."""
        self._gone.clear()
        options = [("grpc.max_receive_message_length", self.max_request_bytes)]
        if self.max_connection_s is not None:
            options.append(("grpc.max_connection_age_ms", int(self.max_connection_s * 1000)))
        self._grpc = grpc.server(ThreadPoolExecutor(8), options=options)
        handler = grpc.unary_unary_rpc_method_handler(self._answer_grpc)  # without serialisers: bytes
        self._grpc.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {"Export": handler}),))
        grpc_port = self._listen_grpc(self.ports[0])
        self._grpc.start()

        self._http = _HttpServer((self.host, self.ports[1]), self)
        if self.tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.tls.server, self.tls.server_key)
            if self._client_must_show:
                context.load_verify_locations(self.tls.authority)
                context.verify_mode = ssl.CERT_REQUIRED
            self._http.socket = context.wrap_socket(self._http.socket, server_side=True, do_handshake_on_connect=False)
        self._http_thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._http_thread.start()
        self.ports = (grpc_port, self._http.server_address[1])

    @property
    def _scheme(self) -> str:
        return "https" if self.tls else "http"

    def _listen_grpc(self, port: int) -> int:
        address = f"{self.host}:{port}"
        for _ in range(1000):  # the port of a stopped server is let go a moment after `stop`
            try:
                if self.tls is None:
                    return self._grpc.add_insecure_port(address)
                credentials = grpc.ssl_server_credentials(
                    [(self.tls.server_key.read_bytes(), self.tls.server.read_bytes())],
                    self.tls.authority.read_bytes() if self._client_must_show else None,
                    self._client_must_show,
                )
                return self._grpc.add_secure_port(address, credentials)
            except RuntimeError:
                time.sleep(0.02)
        raise AssertionError(f"{address} is taken")

    def _taken(self) -> list[Received]:
        return [
            one
            for one in list(self.received)
            if (one.answer.code is grpc.StatusCode.OK if one.transport == "grpc" else one.answer.status < 300)
        ]

    def _receive(self, transport: str, payload: bytes, headers: Mapping[str, str], path: str) -> Answer:
        with self._arrived:
            answer = self.judge(payload) or (self.answers.popleft() if self.answers else self.answer)
            if transport == "http" and len(payload) > self.max_request_bytes:
                answer = Answer.http_failure(413, "request is too large")
            self.received.append(Received(transport, payload, headers, path, answer))
            self._arrived.notify_all()
        if answer.delay_s:
            self._gone.wait(answer.delay_s)
        return answer

    def _answer_grpc(self, payload: bytes, context: grpc.ServicerContext) -> bytes:
        headers = {name: value for name, value in context.invocation_metadata() if isinstance(value, str)}
        answer = self._receive("grpc", payload, headers, f"/{SERVICE}/Export")
        context.set_trailing_metadata(answer.trailers)
        if answer.code is not grpc.StatusCode.OK:
            context.abort(answer.code, answer.details)
        return answer.body


class _HttpServer(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], sink: OtlpSink) -> None:
        self.sink = sink
        self._connections: set[Any] = set()
        super().__init__(address, _HttpHandler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._connections.discard(request)
        super().shutdown_request(request)

    def server_close(self) -> None:
        for connection in list(self._connections):  # else kept-alive ones would still be served
            self.shutdown_request(connection)
        super().server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that breaks off, or fails the handshake, is what some tests are about."""


class _HttpHandler(BaseHTTPRequestHandler):
    server: _HttpServer
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # one packet an answer
    timeout = 30

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        if decompress := {"gzip": gzip.decompress, "zstd": zstd.decompress}.get(headers.get("content-encoding", "")):
            body = decompress(body)
        answer = self.server.sink._receive("http", body, headers, self.path)
        self.send_response(answer.status)
        for name, value in ({"content-type": PROTOBUF, "content-length": str(len(answer.body))} | dict(answer.headers)).items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(answer.body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base class names it so
        """Nothing: tests look at `received`."""
