"""
The HTTP door: events and ETDumps without gRPC, mappings, health and metrics.

    POST /v1/etdump?model=NAME@VERSION&method=M    body: the ETDump
                    build_id=ID  stream=32HEX  sequence=N  first_position=N  ended_at=UNIX_NS  runtime_version=V
                    tick_ratio=N/D  counter_bits=B  anchor=TICKS=UNIX_NS  resource.KEY=VALUE
    POST /v1/events     body and answer: protobuf, as `ExportEvents` has them; so are errors
    ...  /v1/mappings   mapping_routes.py
    GET  /healthz    200 while the process lives
    GET  /readyz     200 while requests are welcome, else 503, with a line for each part that this needs
    GET  /metrics    Prometheus text

Bodies may be gzip or zstd. Answers but for those of /v1/events are JSON: counts with 200; else an object with `code`, `reason`
and `message`, and `Retry-After` where a retry helps.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from starlette import types as asgi
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from otel_bridge.auth.gate import Gate
from otel_bridge.errors import MalformedRequest, TooLarge, Unavailable
from otel_bridge.telemetry.traces import SILENT, Traces
from otel_bridge.v1 import profiling_pb2 as pb
from otel_bridge.wire.body import BodyLimits, read_body
from otel_bridge.wire.exchange import (
    JSON,
    PROTOBUF,
    Endpoint,
    Exchange,
    Reply,
    Requests,
    json_reply,
    protobuf_fault,
)
from otel_bridge.wire.guard import guard_routes
from otel_bridge.wire.health import Condition
from otel_bridge.wire.intake import Intake
from otel_bridge.wire.mapping_routes import mapping_routes
from otel_bridge.wire.mappings import Mappings
from otel_bridge.wire.query import upload_request, values
from otel_bridge.wire.sender import sender
from otel_bridge.wire.traced import trace_routes
from otel_bridge.wire.turnstile import Turnstile


def http_app(
    intake: Intake,
    mappings: Mappings,
    *,
    limits: BodyLimits,
    turnstile: Turnstile,
    ready: Callable[[], Condition],
    metrics: Callable[[], Awaitable[bytes]],
    count: Requests,
    gate: Gate | None = None,
    traces: Traces = SILENT,
) -> Starlette:
    """
    The routes.

    limits      of a body
    turnstile   lets requests in, but for health and metrics, which an overload must not hide
    ready       whether requests are welcome
    metrics     Prometheus text exposition; raises `Unavailable` where it cannot be had now
    count       told the outcome of each request but for health and metrics: "ok", or the reason of its error
    gate        decides who may come in; None: all may
    traces      spans of the bridge's own
    """

    async def read(exchange: Exchange, check_start: Callable[[bytes], None] = _take_any) -> bytes:
        encoding = exchange.header(b"content-encoding")
        # Where the start of a body is looked at, it says more of what is wrong than the size.
        if not encoding and check_start is _take_any and exchange.length > limits.size_bytes:
            raise TooLarge(
                f"header Content-Length: is {exchange.length}, over {limits.size_bytes} bytes; send less at once, or raise "
                "server.max_request_bytes"
            )
        return await read_body(exchange.receive, encoding, limits, exchange.resize, check_start)

    async def upload(exchange: Exchange) -> Reply:
        message = upload_request(exchange.query)
        message.etdump = await read(exchange)
        body = message.SerializeToString()
        answer = await intake.upload_etdump(body, exchange.sent, sender().tenant, exchange.is_given_up)
        return json_reply(_counts(pb.UploadETDumpResponse.FromString(answer)))

    async def export(exchange: Exchange) -> Reply:
        if exchange.query:
            values(exchange.query, {})
        if exchange.header(b"content-type").partition(";")[0].strip().lower() == JSON:
            raise MalformedRequest(f"header Content-Type: is {JSON}; send an ExportEventsRequest as {PROTOBUF}")
        body = await read(exchange)
        answer = await intake.export_events(body, exchange.sent, sender().tenant, exchange.is_given_up)
        return Reply(answer, PROTOBUF)

    endpoint = partial(Endpoint, turnstile=turnstile, count=count)

    async def healthz(_request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(_request: Request) -> Response:
        return ready().reply()

    async def show_metrics(_request: Request) -> Response:
        try:
            return Response(await metrics(), media_type="text/plain; version=0.0.4; charset=utf-8")
        except Unavailable as error:
            return PlainTextResponse(f"{error}\n", 503)

    routes = [
        Route("/v1/events", endpoint(export, fault=protobuf_fault), methods=["POST"]),
        Route("/v1/etdump", endpoint(upload), methods=["POST"]),
        *mapping_routes(mappings, read, endpoint),
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/metrics", show_metrics),
    ]
    trace_routes(routes, traces)
    if gate is not None:
        guard_routes(routes, gate, count)
    return _App(routes)


class _App(Starlette):
    """The routes. Endpoints of a fixed path are called past Starlette's middleware and routing, which cost as much as they."""

    def __init__(self, routes: Sequence[Route]) -> None:
        super().__init__(routes=routes)
        self._direct = {
            (method, route.path): route.app
            for route in routes
            if isinstance(route.endpoint, Endpoint) and not route.param_convertors
            for method in route.methods or ()
        }

    async def __call__(self, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        """Answer a request; the server sends nothing else, neither lifespan nor WebSocket."""
        app = self._direct.get((scope["method"], scope["path"]))
        await (app or super().__call__)(scope, receive, send)


def _take_any(_start: bytes) -> None:
    """Nothing is wrong with the first bytes of a body."""


def _counts(answer: pb.UploadETDumpResponse) -> dict[str, Any]:
    return {
        "accepted": answer.accepted,
        "rejected": {rejection.reason: rejection.events for rejection in answer.rejected},
        "first_rejection": answer.first_rejection,
        "blocks": answer.blocks,
    }
