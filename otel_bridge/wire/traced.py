"""
A span of the bridge's own around each request of either door, named and told as the semantic conventions have it
(RPC and HTTP server spans, semantic-conventions v1.44.0, docs/rpc/grpc.md and docs/http/http-spans.md).

Invariants
* Where nothing is traced nothing of this module stands in the way of a request.
* Only requests that were let in: behind the gate, so that strangers make no spans. Health, reflection and metrics make none.
* Of what a sender chooses only its `traceparent` has a say.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import grpc
from opentelemetry.trace import Span, StatusCode
from starlette import types as asgi
from starlette.routing import Route

from otel_bridge.telemetry.traces import TRACEPARENT, Traces
from otel_bridge.wire.call import OWN_METHODS, Context, Handler
from otel_bridge.wire.exchange import Exchange

_SERVER_FAULTS = {
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DATA_LOSS,
}
"""What makes a server's span an error, by the conventions; the rest are faults of the client."""
_LEAST_SERVER_FAULT = 500


class GrpcTraces(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # generic for type checkers only
    """Spans around RPCs; the innermost interceptor."""

    def __init__(self, traces: Traces) -> None:
        self._traces = traces

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """The handler of a call, within a span."""
        handler = await continuation(handler_call_details)
        method = str(handler_call_details.method)
        if (
            handler is None or handler.response_streaming or not method.startswith(OWN_METHODS)
        ):  # streams.py has one for each request
            return handler
        given = (value for key, value in handler_call_details.invocation_metadata or () if key == TRACEPARENT)
        parent = next(given, None)
        name = method.removeprefix("/")
        told = {"rpc.system.name": "grpc", "rpc.method": name}

        async def answer(messages: AsyncIterator[bytes], context: Context) -> bytes:
            with self._traces.request(name, parent if isinstance(parent, str) else None, told) as span:
                try:
                    answered: bytes = await handler.stream_unary(messages, context)
                except asyncio.CancelledError:
                    note_code(span, grpc.StatusCode.CANCELLED)
                    raise
                except BaseException:
                    note_code(span, context.code())
                    raise
                span.set_attribute("rpc.response.status_code", grpc.StatusCode.OK.name)
                return answered

        return grpc.stream_unary_rpc_method_handler(answer, handler.request_deserializer, handler.response_serializer)


def note_code(span: Span, found: object) -> None:
    """How a request over gRPC ended; anything but a code is UNKNOWN."""
    code = found if isinstance(found, grpc.StatusCode) else grpc.StatusCode.UNKNOWN
    span.set_attribute("rpc.response.status_code", code.name)
    if code in _SERVER_FAULTS:
        span.set_attribute("error.type", code.name)
        span.set_status(StatusCode.ERROR)


def trace_routes(routes: Sequence[Route], traces: Traces) -> None:
    """Put spans around the routes that take or give something of the bridge's."""
    for route in routes:
        if traces.is_on and route.path.startswith("/v1/"):
            route.app = _TracedRoute(route.app, route.path, traces)


class _TracedRoute:
    """One route within a span, as an ASGI application."""

    def __init__(self, app: asgi.ASGIApp, path: str, traces: Traces) -> None:
        self._app = app
        self._path = path
        self._traces = traces

    async def __call__(self, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        exchange = Exchange(scope, receive)
        told = {"http.request.method": exchange.method, "http.route": self._path, "url.scheme": str(scope["scheme"])}
        parent = exchange.header(TRACEPARENT.encode()) or None
        with self._traces.request(f"{exchange.method} {self._path}", parent, told) as span:

            async def note_and_send(message: asgi.Message) -> None:
                if message["type"] == "http.response.start":
                    _note_http(span, message["status"])
                await send(message)

            await self._app(scope, receive, note_and_send)


def _note_http(span: Span, status: int) -> None:
    span.set_attribute("http.response.status_code", status)
    if status >= _LEAST_SERVER_FAULT:
        span.set_attribute("error.type", str(status))
        span.set_status(StatusCode.ERROR)
